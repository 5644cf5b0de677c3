//! The public API as it is on the wire, for tests that choose request ids, nodes and
//! moments themselves.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence::wire::reason::NO_FORWARD;
use ringfence::wire::v1::admin_client::AdminClient;
use ringfence::wire::v1::locks_client::LocksClient;
use ringfence::wire::v1::renewal_answer::Result as Told;
use ringfence::wire::v1::sessions_client::SessionsClient;
use ringfence::wire::v1::watch_client::WatchClient;
use ringfence::wire::{Reason, v1};
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::cluster::PATIENCE;

/// One node, over one connection.
///
/// It asks again, with the same message, while no leader or no majority answers: on a
/// busy machine that may happen at any time. [`Wire::once`] does not.
#[derive(Clone)]
pub struct Wire {
    address: String,
    channel: Channel,
    no_forward: bool,
    once: bool,
}

/// An owner with a session, and the ids of its requests.
pub struct Owner {
    pub id: [u8; 16],
    pub session: u64,
    next: AtomicU64,
}

impl Owner {
    pub fn new(id: [u8; 16], session: u64) -> Self {
        Self { id, session, next: AtomicU64::new(1) }
    }

    /// The header of a new request; all before it are settled.
    pub fn next(&self) -> v1::RequestHeader {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.header(id, id)
    }

    /// The header of this request id.
    pub fn header(&self, request_id: u64, oldest_outstanding: u64) -> v1::RequestHeader {
        v1::RequestHeader {
            owner_id: self.id.to_vec().into(),
            session: self.session,
            request_id,
            oldest_outstanding,
            answered: Vec::new(),
        }
    }

    pub fn renewal(&self, sequence: u64) -> v1::Renewal {
        v1::Renewal { owner_id: self.id.to_vec().into(), session: self.session, sequence }
    }
}

impl Wire {
    /// A connection is made when it is needed.
    pub fn to(address: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = endpoint.connect_timeout(Duration::from_secs(1)).connect_lazy();
        Self { address: address.to_owned(), channel, no_forward: false, once: false }
    }

    /// Of what is not read, little is on the way: the node notices.
    pub fn to_with_little_room(address: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let room = Some(65_535);
        let endpoint = endpoint.initial_stream_window_size(room);
        let channel = endpoint.initial_connection_window_size(room).connect_lazy();
        Self { channel, ..Self::to(address) }
    }

    /// What the first answer says is what the test is about.
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Calls are not to be forwarded to the leader.
    pub fn without_forwarding(mut self) -> Self {
        self.no_forward = true;
        self
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if self.no_forward {
            request.metadata_mut().insert(NO_FORWARD, MetadataValue::from_static("1"));
        }
        request
    }

    /// What a node says that cannot tell yet, or has just forwarded to a leader that
    /// was.
    fn is_for_later(&self, reason: Option<Reason>) -> bool {
        reason == Some(Reason::NoQuorum)
            || reason == Some(Reason::OutcomeUnknown)
            || (reason == Some(Reason::NotLeader) && !self.no_forward)
    }

    pub fn locks(&self) -> LocksClient<Channel> {
        LocksClient::new(self.channel.clone())
    }

    pub fn sessions(&self) -> SessionsClient<Channel> {
        SessionsClient::new(self.channel.clone())
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// No call may hang: one without an answer within [`PATIENCE`] fails the test.
    async fn answer<Q: Clone, T, F>(
        &self,
        message: Q,
        call: impl Fn(Request<Q>) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = tokio::time::timeout_at(until, call(self.request(message.clone()))).await;
            let answer = answer.unwrap_or_else(|_| panic!("no answer from {}", self.address));
            match answer {
                Err(status) if !self.once && self.is_for_later(Reason::of(&status)) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => return Err(status),
            }
        }
    }

    pub async fn open(&self, owner: [u8; 16], ttl: Duration) -> Result<Owner, Status> {
        let answer = self.open_as(owner, millis(ttl)).await?;
        Ok(Owner::new(owner, answer.session))
    }

    pub async fn open_as(
        &self,
        owner: [u8; 16],
        ttl_ms: u64,
    ) -> Result<v1::OpenSessionResponse, Status> {
        let labels = std::collections::BTreeMap::new();
        let message = v1::OpenSessionRequest { owner_id: owner.to_vec().into(), ttl_ms, labels };
        self.answer(message, async |message| self.sessions().open(message).await).await
    }

    pub async fn acquire(
        &self,
        header: v1::RequestHeader,
        resource: &str,
        wait: Duration,
    ) -> Result<v1::Grant, Status> {
        let (resource, wait_ms) = (resource.to_owned(), millis(wait));
        let message = v1::AcquireRequest { resource, wait_ms, ..Default::default() };
        let answer = self.ask(header, message).await?;
        Ok(answer.grant.expect("a grant in the answer"))
    }

    /// As [`Wire::acquire`], with whatever else may be asked for.
    pub async fn ask(
        &self,
        header: v1::RequestHeader,
        message: v1::AcquireRequest,
    ) -> Result<v1::AcquireResponse, Status> {
        let message = v1::AcquireRequest { header: Some(header), ..message };
        self.answer(message, async |message| self.locks().acquire(message).await).await
    }

    pub async fn set_value(
        &self,
        header: v1::RequestHeader,
        grant: &v1::Grant,
        value: Vec<u8>,
    ) -> Result<(), Status> {
        let (resource, token) = (grant.resource.clone(), grant.token);
        let (header, value) = (Some(header), value.into());
        let message = v1::SetValueRequest { header, resource, token, value };
        self.answer(message, async |message| self.locks().set_value(message).await).await?;
        Ok(())
    }

    pub async fn revoke(
        &self,
        grant: &v1::Grant,
        note: v1::Note,
    ) -> Result<Vec<v1::Fence>, Status> {
        let (resource, token) = (grant.resource.clone(), grant.token);
        let message = v1::RevokeRequest { resource, token, note: Some(note) };
        let mut admin = AdminClient::new(self.channel());
        Ok(admin.revoke(message).await?.into_inner().fences)
    }

    pub async fn explain(&self, resource: &str) -> Result<v1::ExplainResponse, Status> {
        let message = v1::ExplainRequest { resource: resource.to_owned() };
        let ask = async |message| WatchClient::new(self.channel()).explain(message).await;
        self.answer(message, ask).await
    }

    /// One try, under a new request id.
    pub async fn try_acquire(&self, owner: &Owner, resource: &str) -> Result<v1::Grant, Status> {
        self.acquire(owner.next(), resource, Duration::ZERO).await
    }

    pub async fn release(
        &self,
        header: v1::RequestHeader,
        resource: &str,
        token: u64,
    ) -> Result<v1::Revision, Status> {
        let resource = resource.to_owned();
        let message = v1::ReleaseRequest { header: Some(header), resource, token };
        let answer =
            self.answer(message, async |message| self.locks().release(message).await).await?;
        Ok(answer.released_at.expect("a revision in the answer"))
    }

    pub async fn cancel(
        &self,
        header: v1::RequestHeader,
        target: u64,
    ) -> Result<v1::CancelResponse, Status> {
        let message = v1::CancelRequest { header: Some(header), target };
        self.answer(message, async |message| self.locks().cancel(message).await).await
    }

    pub async fn check(&self, resource: &str, token: u64) -> Result<bool, Status> {
        let message = v1::CheckTokenRequest { resource: resource.to_owned(), token };
        let answer =
            self.answer(message, async |message| self.locks().check_token(message).await).await?;
        Ok(answer.current)
    }

    pub async fn get(&self, resource: &str) -> Result<v1::ResourceView, Status> {
        let message = v1::GetRequest { resource: resource.to_owned(), stale: false };
        let answer = self.answer(message, async |message| self.locks().get(message).await).await?;
        Ok(answer.resource.expect("a view in the answer"))
    }

    pub async fn held(&self, owner: &Owner) -> Result<v1::HeldResponse, Status> {
        let owner_id = owner.id.to_vec().into();
        let message = v1::HeldRequest { owner_id, session: owner.session };
        self.answer(message, async |message| self.locks().held(message).await).await
    }

    pub async fn set_ttl(&self, header: v1::RequestHeader, ttl_ms: u64) -> Result<u64, Status> {
        let message = v1::SetTtlRequest { header: Some(header), ttl_ms };
        Ok(self
            .answer(message, async |message| self.sessions().set_ttl(message).await)
            .await?
            .ttl_ms)
    }

    /// A session that an earlier attempt of this call may have closed is closed.
    pub async fn close(&self, owner: &Owner) -> Result<(), Status> {
        let owner_id = owner.id.to_vec().into();
        let message = v1::CloseSessionRequest { owner_id, session: owner.session };
        let attempts = AtomicU64::new(0);
        let answer = self.answer(message, async |message| {
            attempts.fetch_add(1, Ordering::Relaxed);
            self.sessions().close(message).await
        });
        match answer.await {
            Ok(_) => Ok(()),
            Err(status) if attempts.into_inner() > 1 && is_over(&status) => Ok(()),
            Err(status) => Err(status),
        }
    }

    pub async fn list_sessions(&self) -> Result<Vec<v1::SessionView>, Status> {
        let message = v1::ListSessionsRequest { after: 0, limit: 1_000 };
        Ok(self
            .answer(message, async |message| self.sessions().list(message).await)
            .await?
            .sessions)
    }

    pub async fn list(&self, prefix: &str) -> Result<Vec<v1::ResourceView>, Status> {
        let (prefix, after) = (prefix.to_owned(), String::new());
        let message = v1::ListRequest { prefix, after, limit: 1_000, stale: false };
        Ok(self.answer(message, async |message| self.locks().list(message).await).await?.resources)
    }

    /// Renews, over a stream of its own. The word of a refusal, if it is one.
    pub async fn renew(&self, owner: &Owner) -> Result<v1::Renewed, Refused> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.renew_once(owner).await {
                Err(Refused(told))
                    if !self.once
                        && self.is_for_later(Reason::parse(&told))
                        && Instant::now() < until =>
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                told => return told,
            }
        }
    }

    async fn renew_once(&self, owner: &Owner) -> Result<v1::Renewed, Refused> {
        let message = v1::KeepAliveRequest { renewals: vec![owner.renewal(1)] };
        // Not ended by the client: a server that reads the end ends the stream.
        let stream =
            tokio_stream::StreamExt::chain(tokio_stream::once(message), tokio_stream::pending());
        let asked = async {
            let answers = self.sessions().keep_alive(self.request(stream)).await;
            let mut answers = answers.map_err(|status| Refused::by(&status))?.into_inner();
            answers.message().await.map_err(|status| Refused::by(&status))
        };
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer from {}", self.address))?;
        let answer = answer.and_then(|mut message| message.answers.pop()).expect("one answer");
        match answer.result.expect("a result") {
            Told::Renewed(renewed) => Ok(renewed),
            Told::Refused(refusal) => Err(Refused(refusal.reason)),
        }
    }
}

/// The word of a refusal.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl Refused {
    fn by(status: &Status) -> Self {
        Self(Reason::of(status).map_or_else(|| status.to_string(), |r| r.as_str().to_owned()))
    }
}

/// The reason of a refusal that carries one.
pub fn reason(status: &Status) -> Reason {
    Reason::of(status).unwrap_or_else(|| panic!("not a refusal of ours: {status:?}"))
}

/// The reason why a call was refused.
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> Reason {
    reason(&answer.expect_err("a refusal"))
}

/// An owner id that no other test uses on the same cluster.
pub fn owner(number: u64) -> [u8; 16] {
    let mut id = [0xA5; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    id
}

/// Sends one request until it is answered for good, one node after the other: the
/// same message each time, as a client must.
pub async fn insist<T, C, F>(nodes: &[Wire], mut call: C) -> Result<T, Status>
where
    C: FnMut(Wire) -> F,
    F: Future<Output = Result<T, Status>>,
{
    for node in nodes.iter().cycle() {
        let within = Duration::from_secs(8);
        match tokio::time::timeout(within, call(node.clone().once())).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) if is_final(&status) => return Err(status),
            Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(_) => {}
        }
    }
    unreachable!("a cycle of nodes does not end")
}

fn is_final(status: &Status) -> bool {
    let again = [Reason::NotLeader, Reason::NoQuorum, Reason::OutcomeUnknown, Reason::Overloaded];
    Reason::of(status).is_some_and(|reason| !again.contains(&reason))
}

fn is_over(status: &Status) -> bool {
    Reason::of(status) == Some(Reason::SessionExpired)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("below an age")
}
