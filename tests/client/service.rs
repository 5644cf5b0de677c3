//! What a node of the scripted authority serves: it notes each call, and plays it as
//! the script has it.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use ringfence::wire::reason::Reason;
use ringfence::wire::v1::admin_server::Admin;
use ringfence::wire::v1::cluster_server::Cluster;
use ringfence::wire::v1::locks_server::Locks;
use ringfence::wire::v1::sessions_server::Sessions;
use ringfence::wire::v1::{self, renewal_answer};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::authority::{Authority, Manner, no_forward};

/// One node's services.
#[derive(Clone)]
pub struct Service {
    pub authority: Authority,
    pub number: usize,
}

pub type Answer<T> = Result<Response<T>, Status>;
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

/// What a call says.
pub trait Message: Clone + Debug {
    /// Who asks, and under which id.
    fn header(&self) -> Option<&v1::RequestHeader> {
        None
    }

    /// What must be the same for every attempt under one id.
    fn contents(&self) -> String {
        format!("{self:?}")
    }
}

macro_rules! numbered {
    ($($name:ident $(without $field:ident)?),*) => { $(
        impl Message for v1::$name {
            fn header(&self) -> Option<&v1::RequestHeader> {
                self.header.as_ref()
            }

            fn contents(&self) -> String {
                let mut bare = self.clone();
                bare.header = None;
                $(bare.$field = Default::default();)?
                format!("{bare:?}")
            }
        }
    )* };
}

macro_rules! free {
    ($($name:ident),*) => { $(impl Message for v1::$name {})* };
}

numbered!(
    AcquireRequest without answer_queued,
    ReleaseRequest,
    CancelRequest,
    ConfirmRequest,
    SetValueRequest,
    SetTtlRequest
);
free!(OpenSessionRequest, CloseSessionRequest, HeldRequest, GetRequest, CheckTokenRequest);
free!(RevokeRequest, FreezeRequest, ThawRequest, ResizeRequest, AskReleaseRequest);
free!(WatchRequest, ExplainRequest);

impl Service {
    /// Plays a call as the script has it.
    pub async fn play<Q: Message, T>(
        &self,
        what: &'static str,
        request: Request<Q>,
        effect: impl AsyncFnOnce(&Authority, &Q) -> Result<T, Status>,
    ) -> Answer<T> {
        let no_forward = no_forward(&request);
        let message = request.into_inner();
        let (header, contents) = (message.header(), message.contents());
        match self.authority.enter(self.number, what, header, no_forward, contents) {
            Manner::Well => effect(&self.authority, &message).await.map(Response::new),
            Manner::LosesReply => {
                let _ = effect(&self.authority, &message).await;
                Err(Status::unavailable("the connection broke"))
            }
            Manner::BreaksOff => {
                let effect = effect(&self.authority, &message);
                let broken = |_| Err(Status::unavailable("the connection broke"));
                let answer = tokio::time::timeout(Duration::ZERO, effect).await;
                answer.unwrap_or_else(broken).map(Response::new)
            }
            Manner::SwallowsReply => {
                let _ = effect(&self.authority, &message).await;
                std::future::pending().await
            }
            Manner::Silent => std::future::pending().await,
            Manner::Refuses(reason, metadata) => Err(reason.status("as the script says", metadata)),
        }
    }

    fn renew(&self, renewal: &v1::Renewal) -> Option<v1::RenewalAnswer> {
        let result = match self.authority.next_manner(self.number, "renew") {
            Manner::Well => self.authority.renew(self.number, renewal),
            Manner::Refuses(reason, metadata) => {
                let leader = metadata.into_iter().find(|(name, _)| *name == "leader");
                renewal_answer::Result::Refused(v1::RenewalRefusal {
                    reason: reason.as_str().to_owned(),
                    message: String::new(),
                    leader: leader.map(|(_, leader)| leader).unwrap_or_default(),
                })
            }
            Manner::LosesReply | Manner::SwallowsReply | Manner::BreaksOff | Manner::Silent => {
                return None;
            }
        };
        let (session, sequence) = (renewal.session, renewal.sequence);
        Some(v1::RenewalAnswer { session, sequence, result: Some(result) })
    }
}

#[tonic::async_trait]
impl Sessions for Service {
    async fn open(&self, r: Request<v1::OpenSessionRequest>) -> Answer<v1::OpenSessionResponse> {
        self.play("open", r, async |a, m| a.open(m)).await
    }

    type KeepAliveStream = Answers<v1::KeepAliveResponse>;

    async fn keep_alive(
        &self,
        request: Request<Streaming<v1::KeepAliveRequest>>,
    ) -> Answer<Self::KeepAliveStream> {
        let no_forward = no_forward(&request);
        match self.authority.enter(self.number, "keep_alive", None, no_forward, String::new()) {
            Manner::Refuses(reason, metadata) => return Err(reason.status("", metadata)),
            Manner::Silent => std::future::pending().await,
            Manner::Well | Manner::LosesReply | Manner::SwallowsReply | Manner::BreaksOff => {}
        }
        let (answers, stream) = mpsc::channel(16);
        let service = self.clone();
        tokio::spawn(async move {
            let mut messages = request.into_inner();
            while let Ok(Some(message)) = messages.message().await {
                let answered = message.renewals.iter().filter_map(|r| service.renew(r)).collect();
                if answers.send(Ok(v1::KeepAliveResponse { answers: answered })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn set_ttl(&self, r: Request<v1::SetTtlRequest>) -> Answer<v1::SetTtlResponse> {
        self.play("set_ttl", r, async |a, m| a.set_ttl(m)).await
    }

    async fn close(&self, r: Request<v1::CloseSessionRequest>) -> Answer<v1::CloseSessionResponse> {
        self.play("close", r, async |a, m| a.close(m)).await
    }

    async fn list(&self, _: Request<v1::ListSessionsRequest>) -> Answer<v1::ListSessionsResponse> {
        Err(Status::unimplemented("no test asks"))
    }
}

#[tonic::async_trait]
impl Locks for Service {
    async fn acquire(&self, r: Request<v1::AcquireRequest>) -> Answer<v1::AcquireResponse> {
        let effect = async |a: &Authority, m: &v1::AcquireRequest| match a.begin_acquire(m)? {
            Some(answer) => Ok(answer),
            None => a.end_acquire(m.header.as_ref()).await,
        };
        self.play("acquire", r, effect).await
    }

    async fn confirm(&self, r: Request<v1::ConfirmRequest>) -> Answer<v1::ConfirmResponse> {
        self.play("confirm", r, async |a, m| a.confirm(m)).await
    }

    async fn set_value(&self, r: Request<v1::SetValueRequest>) -> Answer<v1::SetValueResponse> {
        self.play("set_value", r, async |a, m| a.set_value(m)).await
    }

    async fn release(&self, r: Request<v1::ReleaseRequest>) -> Answer<v1::ReleaseResponse> {
        self.play("release", r, async |a, m| a.release(m)).await
    }

    async fn cancel(&self, r: Request<v1::CancelRequest>) -> Answer<v1::CancelResponse> {
        self.play("cancel", r, async |a, m| a.cancel(m)).await
    }

    async fn held(&self, r: Request<v1::HeldRequest>) -> Answer<v1::HeldResponse> {
        self.play("held", r, async |a, m| a.held(m)).await
    }

    async fn check_token(
        &self,
        r: Request<v1::CheckTokenRequest>,
    ) -> Answer<v1::CheckTokenResponse> {
        self.play("check_token", r, async |a, m| Ok(a.check_token(m))).await
    }

    async fn get(&self, r: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        self.play("get", r, async |a, m| Ok(a.get(m))).await
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Answer<v1::ListResponse> {
        Err(Reason::NoQuorum.status("no test asks", []))
    }
}

#[tonic::async_trait]
impl Admin for Service {
    async fn revoke(&self, r: Request<v1::RevokeRequest>) -> Answer<v1::RevokeResponse> {
        self.play("revoke", r, async |a, m| a.revoke_grant(m)).await
    }

    async fn freeze(&self, r: Request<v1::FreezeRequest>) -> Answer<v1::FreezeResponse> {
        self.play("freeze", r, async |a, m| a.freeze(m)).await
    }

    async fn thaw(&self, r: Request<v1::ThawRequest>) -> Answer<v1::ThawResponse> {
        self.play("thaw", r, async |a, m| a.thaw(m)).await
    }

    async fn resize(&self, r: Request<v1::ResizeRequest>) -> Answer<v1::ResizeResponse> {
        self.play("resize", r, async |a, m| a.resize(m)).await
    }

    async fn ask_release(
        &self,
        r: Request<v1::AskReleaseRequest>,
    ) -> Answer<v1::AskReleaseResponse> {
        self.play("ask_release", r, async |a, m| a.ask_release(m)).await
    }
}

#[tonic::async_trait]
impl Cluster for Service {
    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let node_id = self.number as u64;
        Ok(Response::new(v1::StatusResponse { node_id, ..Default::default() }))
    }
}
