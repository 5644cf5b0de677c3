//! The same over gRPC: metadata, statuses with details, a raise as a call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::request::Parts;
use ringfence::fence::grpc::{self, Fencing, Target};
use ringfence::fence::hold::{MarkStore, MemoryStore, SqliteStore};
use ringfence::fence::http::{FenceLayer, Fences, Gate, Scope};
use ringfence::fence::{Fence, FenceError, FenceTarget, MemoryMarks};
use ringfence::locks::ClusterId;
use ringfence::wire::v1;
use ringfence::wire::v1::cluster_client::ClusterClient;
use ringfence::wire::v1::cluster_server::{Cluster, ClusterServer};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt;

use crate::http::sqlite_store;
use crate::stories::{AUTHORITY, exclusive, name, shared};
use crate::vectors::PATIENCE;

const BRIEFLY: Duration = Duration::from_millis(300);

/// Any service; this one is at hand. It answers with the token that it was called under.
#[derive(Clone)]
struct Service {
    calls: Arc<AtomicUsize>,
    /// Checks in its own step, if it is to.
    checks: Option<Arc<MemoryMarks>>,
    inside: mpsc::UnboundedSender<()>,
    go: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl Cluster for Service {
    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        let fences = request.extensions().get::<Fences>().expect("the layer's").clone();
        let fence = fences.of(&name("job/7")).map_err(|refusal| grpc::refused(&refusal))?;
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.inside.send(()).expect("the test listens");
        self.go.clone().wait_for(|go| *go).await.expect("the test tells");
        if let Some(marks) = &self.checks {
            marks.guarded(fence, || ()).map_err(grpc::status)?;
        }
        let node_id = fence.token.get();
        Ok(Response::new(v1::StatusResponse { node_id, ..Default::default() }))
    }
}

/// A server with one service, and what the test sees and tells of it.
struct Served {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
    inside: mpsc::UnboundedReceiver<()>,
    go: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The method writes `job/7`.
fn scope(parts: &Parts) -> Scope {
    if parts.uri.path().ends_with("/Status") { Scope::writes("job/7") } else { Scope::Unknown }
}

impl Served {
    /// Behind the layer.
    async fn behind<G: Gate>(layer: FenceLayer<G, fn(&Parts) -> Scope>) -> Self {
        let server = |service, listener| {
            let mut server = tonic::transport::Server::builder().layer(layer.grpc());
            let server = server.add_service(ClusterServer::new(service));
            server.serve_with_incoming(TcpListenerStream::new(listener))
        };
        Self::start(None, server).await
    }

    /// Behind the interceptor; the handler checks.
    async fn intercepted() -> Self {
        let server = |service, listener| {
            let mut server = tonic::transport::Server::builder();
            let service = ClusterServer::with_interceptor(service, grpc::parse);
            server.add_service(service).serve_with_incoming(TcpListenerStream::new(listener))
        };
        Self::start(Some(Arc::default()), server).await
    }

    async fn start<R>(
        checks: Option<Arc<MemoryMarks>>,
        server: impl FnOnce(Service, TcpListener) -> R,
    ) -> Self
    where
        R: Future<Output = Result<(), tonic::transport::Error>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let calls = Arc::<AtomicUsize>::default();
        let (entered, inside) = mpsc::unbounded_channel();
        let (go, going) = watch::channel(true);
        let service = Service { calls: Arc::clone(&calls), checks, inside: entered, go: going };
        let serving = server(service, listener);
        let task = tokio::spawn(async move { serving.await.expect("it serves") });
        Self { address, calls, inside, go, task }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.address)).expect("an address")
    }

    fn channel(&self) -> Channel {
        self.endpoint().connect_lazy()
    }

    async fn call(&self, fence: &Fence) -> Result<u64, Status> {
        let fencing = Fencing::new(std::slice::from_ref(fence)).expect("one fence");
        let mut client = ClusterClient::with_interceptor(self.channel(), fencing);
        let answer = client.status(v1::StatusRequest {}).await?;
        Ok(answer.into_inner().node_id)
    }

    /// A call that is refused so, and the handler is not called.
    async fn refuses(
        &self,
        request: Request<v1::StatusRequest>,
        code: Code,
        reason: &str,
    ) -> Status {
        let before = self.calls.load(Ordering::SeqCst);
        let status = ClusterClient::new(self.channel()).status(request).await;
        let status = status.expect_err("it is refused");
        let info = status.get_details_error_info().expect("it says why");
        assert_eq!((status.code(), &*info.reason, &*info.domain), (code, reason, "ringfence"));
        assert_eq!(self.calls.load(Ordering::SeqCst), before, "it reached the handler");
        status
    }
}

fn holding<S: MarkStore>(
    store: S,
    bound: Duration,
) -> FenceLayer<ringfence::fence::http::Holding<S>, fn(&Parts) -> Scope> {
    FenceLayer::holding(store, bound, scope as fn(&Parts) -> Scope).wait(PATIENCE)
}

fn request(fences: &[Fence]) -> Request<v1::StatusRequest> {
    let mut request = Request::new(v1::StatusRequest {});
    grpc::insert(&mut request, fences).expect("a set");
    request
}

fn with(name: &'static str, value: &'static str) -> Request<v1::StatusRequest> {
    let mut request = request(&[exclusive("job/7", 5)]);
    request.metadata_mut().insert(name, value.parse().expect("visible"));
    request
}

#[tokio::test]
async fn grpc_refuses_with_a_status_that_says_why_and_does_not_call_the_handler() {
    let (_dir, store) = sqlite_store();
    let served = Served::behind(holding(store, PATIENCE)).await;
    let none = Request::new(v1::StatusRequest {});
    let (invalid, failed) = (Code::InvalidArgument, Code::FailedPrecondition);
    let missing = served.refuses(none, invalid, "MISSING_FENCE").await;
    let field = missing.get_details_error_info().expect("it says why").metadata;
    assert_eq!(field["field"], "fencing-resource");
    for number in ["0", "05", "-1", "9007199254740992", "five"] {
        served.refuses(with("fencing-token", number), invalid, "MALFORMED_FENCE").await;
    }
    served.refuses(with("fencing-floor", "6"), invalid, "MALFORMED_FENCE").await;
    let mut twice = with("fencing-token", "5");
    twice.metadata_mut().append("fencing-token", "6".parse().expect("visible"));
    served.refuses(twice, invalid, "MALFORMED_FENCE").await;
    let other = request(&[exclusive("job/8", 5)]);
    served.refuses(other, Code::PermissionDenied, "OTHER_RESOURCE").await;

    let slot = |token, floor| Fence { slot: Some(1), ..shared("job/7", token, floor) };
    assert_eq!(served.call(&slot(7, 5)).await.expect("accepted"), 7);
    let stale = served.refuses(request(&[slot(6, 5)]), failed, "STALE_FENCE").await;
    let Some(FenceError::Stale { resource, token, mark, slot }) = grpc::read_status(&stale) else {
        panic!("{stale:?}")
    };
    assert_eq!((resource, token.get(), mark.get(), slot), (name("job/7"), 6, 7, Some(1)));
    let foreign = Fence { cluster: ClusterId::new([8; 16]), ..exclusive("job/7", 9) };
    let status = served.refuses(request(&[foreign]), failed, "FOREIGN_AUTHORITY").await;
    let known = grpc::read_status(&status);
    assert!(matches!(known, Some(FenceError::ForeignCluster { known: AUTHORITY, .. })));
}

#[tokio::test]
async fn a_busy_mark_is_unavailable_and_an_unfit_store_internal() {
    let (dir, store) = sqlite_store();
    let layer = FenceLayer::holding(store, PATIENCE, scope as fn(&Parts) -> Scope).wait(BRIEFLY);
    let served = Served::behind(layer).await;
    let file = rusqlite::Connection::open(dir.path().join("marks.db")).expect("it is there");
    file.execute_batch("BEGIN IMMEDIATE").expect("it is free");
    let seven = || request(&[exclusive("job/7", 5)]);
    let busy = served.refuses(seven(), Code::Unavailable, "BUSY").await;
    assert!(matches!(grpc::read_status(&busy), Some(FenceError::Busy(_))));
    file.execute_batch("ROLLBACK").expect("it is ours");
    file.execute_batch("UPDATE ringfence_schema SET version = 2").expect("it is ours");
    let patient = SqliteStore::open(dir.path().join("marks.db")).expect("it is there");
    let served = Served::behind(holding(patient, PATIENCE)).await;
    served.refuses(seven(), Code::Internal, "STORE_UNFIT").await;
}

#[tokio::test]
async fn a_raise_over_grpc_waits_for_a_call_that_is_past_its_check() {
    let mut served = Served::behind(holding(MemoryStore::new(), PATIENCE)).await;
    served.go.send_replace(false);
    let mut client = ClusterClient::new(served.channel());
    let old = tokio::spawn(async move { client.status(request(&[exclusive("job/7", 5)])).await });
    served.inside.recv().await.expect("it is called");
    let target = Target::new(&served.endpoint());
    assert_eq!(target.name(), format!("grpc://{}", served.address));
    let busy = target.raise(&[exclusive("job/7", 6)], BRIEFLY).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    served.go.send_replace(true);
    target.raise(&[exclusive("job/7", 6)], PATIENCE).await.expect("raised");
    assert_eq!(old.await.expect("it ran").expect("served").into_inner().node_id, 5);
    let stale = target.raise(&[exclusive("job/7", 5)], PATIENCE).await;
    assert!(matches!(&stale, Err(FenceError::Stale { mark, .. }) if mark.get() == 6), "{stale:?}");
    let late = request(&[exclusive("job/7", 5)]);
    served.refuses(late, Code::FailedPrecondition, "STALE_FENCE").await;
    // A set in one header.
    let set = [exclusive("a", 9), Fence { slot: Some(0), ..shared("b", 9, 8) }];
    target.raise(&set, PATIENCE).await.expect("raised");
    let stale = target.raise(&[exclusive("b", 7)], PATIENCE).await;
    assert!(matches!(&stale, Err(FenceError::Stale { mark, .. }) if mark.get() == 8), "{stale:?}");
}

#[tokio::test]
async fn a_slow_call_is_cut_off_at_the_bound_and_its_outcome_is_unknown() {
    let served = Served::behind(holding(MemoryStore::new(), BRIEFLY)).await;
    served.go.send_replace(false);
    let cut = served.call(&exclusive("job/7", 5)).await.expect_err("it takes too long");
    assert_eq!(cut.code(), Code::DeadlineExceeded);
    assert_eq!(cut.get_details_error_info().expect("it says why").reason, "CUT_OFF");
    assert!(matches!(grpc::read_status(&cut), Some(FenceError::Store(_))));
    let target = Target::new(&served.endpoint());
    target.raise(&[exclusive("job/7", 6)], PATIENCE).await.expect("let go");
}

#[tokio::test]
async fn behind_the_interceptor_the_handler_checks_in_its_own_step() {
    let served = Served::intercepted().await;
    let none = Request::new(v1::StatusRequest {});
    served.refuses(none, Code::InvalidArgument, "MISSING_FENCE").await;
    let other = request(&[exclusive("job/8", 5)]);
    served.refuses(other, Code::PermissionDenied, "OTHER_RESOURCE").await;
    assert_eq!(served.call(&exclusive("job/7", 6)).await.expect("accepted"), 6);
    let stale = served.call(&exclusive("job/7", 5)).await.expect_err("the handler refuses");
    assert!(matches!(grpc::read_status(&stale), Some(FenceError::Stale { .. })), "{stale:?}");
    // It serves no raise: whoever asks is told.
    let target = Target::new(&served.endpoint());
    let raised = target.raise(&[exclusive("job/7", 7)], PATIENCE).await;
    assert!(matches!(raised, Err(FenceError::Store(_))), "{raised:?}");
}
