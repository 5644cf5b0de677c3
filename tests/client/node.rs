//! A node of the scripted authority: a gRPC server on a free loopback port, and a
//! link to it that can go dark.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence::wire::reason::Reason;
use ringfence::wire::v1::cluster_server::{Cluster, ClusterServer};
use ringfence::wire::v1::locks_server::{Locks, LocksServer};
use ringfence::wire::v1::sessions_server::{Sessions, SessionsServer};
use ringfence::wire::v1::{self, renewal_answer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::authority::{Authority, Manner, no_forward};

/// Runs on a thread of its own; gone with all its connections when dropped.
pub struct Node {
    pub address: String,
    runtime: Option<Runtime>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Node {
    /// Serves the authority as its node of this number.
    pub async fn start(authority: &Authority, number: usize) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let service = Service { authority: authority.clone(), number };
        let (bound, address) = oneshot::channel();
        runtime.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let address = listener.local_addr().expect("it is bound").to_string();
            bound.send(address).expect("the test waits for it");
            Server::builder()
                // As many servers have it.
                .max_concurrent_streams(200)
                .add_service(SessionsServer::new(service.clone()))
                .add_service(LocksServer::new(service.clone()))
                .add_service(ClusterServer::new(service))
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .expect("the server runs");
        });
        let address = address.await.expect("it starts");
        Self { address, runtime: Some(runtime) }
    }
}

/// A TCP link that can go dark: nothing is refused or reset, bytes just stop.
pub struct Link {
    pub address: String,
    light: watch::Sender<bool>,
    taken: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    pub async fn to(node: &Node) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let there: SocketAddr = node.address.parse().expect("an address");
        let (light, lit) = watch::channel(true);
        let taken = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&taken);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(carry(near, there, lit.clone()));
            }
        });
        Self { address, light, taken, task }
    }

    /// How many connections it has taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub fn goes_dark(&self) {
        self.light.send_replace(false);
    }

    pub fn is_lit(&self) {
        self.light.send_replace(true);
    }
}

async fn carry(near: TcpStream, there: SocketAddr, lit: watch::Receiver<bool>) {
    let Ok(far) = TcpStream::connect(there).await else { return };
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    tokio::join!(pass(near_in, far_out, lit.clone()), pass(far_in, near_out, lit));
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut lit: watch::Receiver<bool>,
) {
    let mut bytes = [0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes).await {
        // In the dark they wait, as in a network that drops packets.
        if lit.wait_for(|&lit| lit).await.is_err() || to.write_all(&bytes[..n]).await.is_err() {
            return;
        }
    }
}

#[derive(Clone)]
struct Service {
    authority: Authority,
    number: usize,
}

type Answer<T> = Result<Response<T>, Status>;

impl Service {
    /// Plays a call as the script has it.
    async fn play<Q, T>(
        &self,
        what: &'static str,
        request: Request<Q>,
        header: impl Fn(&Q) -> Option<&v1::RequestHeader>,
        effect: impl AsyncFnOnce(&Authority, &Q) -> Result<T, Status>,
    ) -> Answer<T> {
        let no_forward = no_forward(&request);
        let message = request.into_inner();
        match self.authority.enter(self.number, what, header(&message), no_forward) {
            Manner::Well => effect(&self.authority, &message).await.map(Response::new),
            Manner::LosesReply => {
                let _ = effect(&self.authority, &message).await;
                Err(Status::unavailable("the connection broke"))
            }
            Manner::SwallowsReply => {
                let _ = effect(&self.authority, &message).await;
                std::future::pending().await
            }
            Manner::Silent => std::future::pending().await,
            Manner::Refuses(reason, metadata) => Err(reason.status("as the script says", metadata)),
        }
    }
}

#[tonic::async_trait]
impl Sessions for Service {
    async fn open(&self, r: Request<v1::OpenSessionRequest>) -> Answer<v1::OpenSessionResponse> {
        self.play("open", r, |_| None, async |a, m| Ok(a.open(m))).await
    }

    type KeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<v1::KeepAliveResponse, Status>> + Send + 'static>>;

    async fn keep_alive(
        &self,
        request: Request<Streaming<v1::KeepAliveRequest>>,
    ) -> Answer<Self::KeepAliveStream> {
        match self.authority.enter(self.number, "keep_alive", None, no_forward(&request)) {
            Manner::Refuses(reason, metadata) => return Err(reason.status("", metadata)),
            Manner::Silent => std::future::pending().await,
            Manner::Well | Manner::LosesReply | Manner::SwallowsReply => {}
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
        self.play("set_ttl", r, |m| m.header.as_ref(), async |a, m| a.set_ttl(m)).await
    }

    async fn close(&self, r: Request<v1::CloseSessionRequest>) -> Answer<v1::CloseSessionResponse> {
        let effect = async |a: &Authority, m: &_| a.close(m).map(|()| v1::CloseSessionResponse {});
        self.play("close", r, |_| None, effect).await
    }

    async fn list(&self, _: Request<v1::ListSessionsRequest>) -> Answer<v1::ListSessionsResponse> {
        Err(Status::unimplemented("no test asks"))
    }
}

impl Service {
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
            Manner::LosesReply | Manner::SwallowsReply | Manner::Silent => return None,
        };
        let (session, sequence) = (renewal.session, renewal.sequence);
        Some(v1::RenewalAnswer { session, sequence, result: Some(result) })
    }
}

#[tonic::async_trait]
impl Locks for Service {
    async fn acquire(&self, r: Request<v1::AcquireRequest>) -> Answer<v1::AcquireResponse> {
        let effect = async |a: &Authority, m: &v1::AcquireRequest| {
            a.begin_acquire(m)?;
            a.answer_acquire(&m.header.clone().unwrap_or_default()).await
        };
        self.play("acquire", r, |m| m.header.as_ref(), effect).await
    }

    async fn release(&self, r: Request<v1::ReleaseRequest>) -> Answer<v1::ReleaseResponse> {
        self.play("release", r, |m| m.header.as_ref(), async |a, m| a.release(m)).await
    }

    async fn cancel(&self, r: Request<v1::CancelRequest>) -> Answer<v1::CancelResponse> {
        self.play("cancel", r, |m| m.header.as_ref(), async |a, m| a.cancel(m)).await
    }

    async fn held(&self, r: Request<v1::HeldRequest>) -> Answer<v1::HeldResponse> {
        self.play("held", r, |_| None, async |a, m| a.held(m)).await
    }

    async fn check_token(
        &self,
        r: Request<v1::CheckTokenRequest>,
    ) -> Answer<v1::CheckTokenResponse> {
        let effect = async |a: &Authority, m: &v1::CheckTokenRequest| {
            let current = a.holder(&m.resource) == Some(m.token);
            Ok(v1::CheckTokenResponse { current, grant: None, index: 1 })
        };
        self.play("check_token", r, |_| None, effect).await
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        Err(Reason::NoQuorum.status("no test asks", []))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Answer<v1::ListResponse> {
        Err(Reason::NoQuorum.status("no test asks", []))
    }
}

#[tonic::async_trait]
impl Cluster for Service {
    async fn status(&self, _: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        let node_id = self.number as u64;
        Ok(Response::new(v1::StatusResponse { node_id, ..Default::default() }))
    }
}

/// Long enough for any answer, short enough for a test.
pub const SOON: Duration = Duration::from_secs(20);
