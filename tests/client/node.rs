//! A node of the scripted authority: a gRPC server on a free loopback port, and a
//! link to it that can go dark.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence::client::Client;
use ringfence::wire::v1::admin_server::AdminServer;
use ringfence::wire::v1::cluster_server::ClusterServer;
use ringfence::wire::v1::locks_server::LocksServer;
use ringfence::wire::v1::sessions_server::SessionsServer;
use ringfence::wire::v1::watch_server::WatchServer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::authority::Authority;
use crate::service::Service;

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
                .add_service(AdminServer::new(service.clone()))
                .add_service(WatchServer::new(service.clone()))
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

/// A client that knows all these nodes and waits long for each.
pub fn client_of(nodes: &[Node]) -> Client {
    let client = Client::builder().attempt_timeout(Duration::from_secs(10));
    client.connect(nodes.iter().map(|node| &node.address)).expect("good endpoints")
}

/// Long enough for any answer, short enough for a test.
pub const SOON: Duration = Duration::from_secs(20);

/// An authority with so many nodes.
pub async fn nodes(count: usize) -> (Authority, Vec<Node>) {
    let authority = Authority::new();
    let mut nodes = Vec::new();
    for number in 0..count {
        nodes.push(Node::start(&authority, number).await);
    }
    (authority, nodes)
}
