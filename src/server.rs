//! One node, put together: storage, replica, leader task and services on one port.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::server::TcpIncoming;

use crate::api::{
    AdminService, ClusterService, LockService, Node, SessionService, WatchService, Written,
    WrittenNow,
};
use crate::authority::Authority;
use crate::config::NodeConfig;
use crate::feed::{Over, Watchers};
use crate::leader;
use crate::leases::Moment;
use crate::locks::{Bootstrap as BootstrapCommand, ClusterId, Command};
use crate::raft::machine::{LoadError, StateMachine};
use crate::raft::transfer::RowTransfer;
use crate::raft::{self, Bootstrap, Home, Identity, LogLimits, Parts, PeerService, Replica};
use crate::raft_types::EncodedCommand;
use crate::storage::{Storage, StorageError};
use crate::wire::log::encode_command;
use crate::wire::v1::admin_server::AdminServer;
use crate::wire::v1::cluster_server::ClusterServer;
use crate::wire::v1::locks_server::LocksServer;
use crate::wire::v1::sessions_server::SessionsServer;
use crate::wire::v1::watch_server::WatchServer;

pub use crate::raft::{BootstrapError, Ended};
pub use crate::storage::StorageOptions;

/// Threads of the consensus, apart from those that serve clients: a burst of calls
/// must not make a heartbeat late.
const RAFT_THREADS: usize = 2;

/// How long a node that stops waits for its watches to tell their clients.
const WATCHES_END_WITHIN: Duration = Duration::from_millis(500);

/// Why a node did not start. One line each, that says what to do.
#[derive(Debug, Error)]
pub enum StartError {
    /// The port is taken, or the address is not of this machine.
    #[error("cannot listen at {address}: {source}; choose another --listen or stop what uses it")]
    Listen {
        /// Where.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The data folder.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The rows in it.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The consensus.
    #[error(transparent)]
    Raft(#[from] raft::StartError),
    /// No threads to run on.
    #[error("cannot start the consensus threads: {0}")]
    Threads(io::Error),
}

/// A running node.
pub struct Server {
    replica: Replica,
    authority: Arc<Authority>,
    address: SocketAddr,
    storage: Storage,
    bootstrap: Option<JoinHandle<Result<ClusterId, BootstrapError>>>,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
    watching: [JoinHandle<()>; 2],
    stop: oneshot::Sender<()>,
    /// Set when the folder turns out to be another cluster's.
    astray: watch::Receiver<Option<BootstrapError>>,
    raft_threads: RaftThreads,
}

/// The consensus's own threads. Left to themselves when dropped: a runtime may not
/// wait for its threads on a thread of another.
struct RaftThreads(Option<Runtime>);

impl RaftThreads {
    fn start() -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(RAFT_THREADS)
            .thread_name("ringfence-raft")
            .enable_all()
            .build();
        Ok(Self(Some(runtime.map_err(StartError::Threads)?)))
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.as_ref().expect("it is taken when dropped only").spawn(task)
    }
}

impl Drop for RaftThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Server {
    /// Opens the data folder, recovers, and serves. Returns before the cluster has
    /// formed; see [`Server::formed`].
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(config: NodeConfig, options: StorageOptions) -> Result<Self, StartError> {
        let listen = |source| StartError::Listen { address: config.listen.clone(), source };
        let listener = TcpListener::bind(&config.listen).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (data, node_id) = (config.data.clone(), config.node_id);
        let opened = tokio::task::spawn_blocking(move || -> Result<_, StartError> {
            let storage = Storage::open(&data, node_id, options)?;
            let (machine, authority) = StateMachine::load(storage.rows(), Moment::now())?;
            Ok((storage, machine, authority))
        });
        let (storage, machine, authority) = opened.await.expect("opening does not panic")?;
        authority.lock().feed.limit(config.feed);
        authority.watchers().limit(config.watchers_max);
        let raft_threads = RaftThreads::start()?;
        let home: Arc<dyn Home> = Arc::new(Folder(storage.clone()));
        let parts = parts(&config, Arc::clone(&home), &storage, machine);
        let started = raft_threads.spawn(raft::start(parts));
        let (replica, peers) = started.await.expect("starting does not panic")?;
        let renewals =
            leader::start(replica.clone(), Arc::clone(&authority), config.timing.heartbeat);
        let written = written(storage.clone());
        let admitted = config.admitted_max;
        let node = Node::new(replica.clone(), Arc::clone(&authority), renewals, written, admitted);
        let node = Arc::new(node);
        let watchers = Arc::clone(authority.watchers());
        let watching = [
            tokio::spawn(Arc::clone(&authority).serve_watchers()),
            tokio::spawn(follow_contact(replica.contact(), watchers)),
        ];
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, node, peers, async {
            let _asked = stopped.await;
        }));
        let (wrong, astray) = watch::channel(None);
        let bootstrap = form(config, home, replica.clone(), Arc::clone(&authority), wrong);
        let bootstrap = Some(raft_threads.spawn(bootstrap));
        Ok(Self {
            replica,
            authority,
            address,
            storage,
            bootstrap,
            serving,
            watching,
            stop,
            astray,
            raft_threads,
        })
    }

    /// Waits until this node is a member of a cluster.
    ///
    /// # Errors
    /// What waiting cannot mend: see [`BootstrapError`].
    pub async fn formed(&mut self) -> Result<(), BootstrapError> {
        match self.bootstrap.take() {
            Some(task) => tokio::select! {
                formed = task => formed.expect("bootstrap does not panic").map(|_| ()),
                error = self.gone_astray() => Err(error),
            },
            None => Ok(()),
        }
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The way into the log; for tests and embedding.
    pub const fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The table as applied here; for tests and embedding.
    pub const fn authority(&self) -> &Arc<Authority> {
        &self.authority
    }

    /// The data folder, for its counters.
    pub const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Resolves when the node cannot go on.
    pub async fn ended(&self) -> Ended {
        tokio::select! {
            ended = self.replica.ended() => ended,
            error = self.gone_astray() => Ended::Broken(error.to_string()),
        }
    }

    /// Resolves when the folder turns out to be another cluster's.
    async fn gone_astray(&self) -> BootstrapError {
        let mut astray = self.astray.clone();
        let found = astray.wait_for(Option::is_some).await.map(|found| found.clone());
        match found.ok().flatten() {
            Some(error) => error,
            // Nobody looks any longer.
            None => std::future::pending().await,
        }
    }

    /// Hands leadership over, stops serving, and closes the data folder.
    pub async fn stop(self) {
        self.replica.shutdown().await;
        let watchers = self.authority.watchers();
        watchers.end(Over::Stops);
        // Those who do not read are not told.
        let _late = tokio::time::timeout(WATCHES_END_WITHIN, watchers.all_gone()).await;
        self.watching.iter().for_each(JoinHandle::abort);
        let _gone = self.stop.send(());
        self.serving.abort();
        let _ended = self.serving.await;
        if let Some(task) = self.bootstrap {
            task.abort();
        }
        drop(self.raft_threads);
        self.storage.close().await;
    }
}

fn parts(
    config: &NodeConfig,
    home: Arc<dyn Home>,
    storage: &Storage,
    machine: StateMachine,
) -> Parts<crate::storage::LogStore, StateMachine, RowTransfer> {
    Parts {
        home,
        timing: config.timing.clone(),
        limits: LogLimits::default(),
        members: config.members.clone(),
        bind: None,
        log: storage.log(),
        machine,
        snapshots: RowTransfer,
    }
}

/// The disk's counts, for the services.
fn written(storage: Storage) -> WrittenNow {
    Box::new(move || {
        let counters = storage.counters();
        Written {
            synced_writes: counters.synced_writes,
            entries: counters.entries,
            rows: counters.rows,
            bytes: counters.bytes,
        }
    })
}

/// Serves peers and clients on one port until told to stop.
async fn serve(
    listener: TcpListener,
    node: Arc<Node>,
    peers: PeerService<StateMachine, RowTransfer>,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<SessionsServer<SessionService>>().await;
    health.set_serving::<LocksServer<LockService>>().await;
    health.set_serving::<WatchServer<WatchService>>().await;
    health.set_serving::<AdminServer<AdminService>>().await;
    health.set_serving::<ClusterServer<ClusterService>>().await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(crate::wire::PUBLIC_DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors were made by the build");
    // The builder's own setting is for listeners that it makes itself. Without it an
    // answer can wait some 40 ms for the acknowledgement of the one before.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .add_service(peers.into_server())
        .add_service(SessionsServer::new(SessionService(Arc::clone(&node))))
        .add_service(LocksServer::new(LockService(Arc::clone(&node))))
        .add_service(WatchServer::new(WatchService(Arc::clone(&node))))
        .add_service(AdminServer::new(AdminService(Arc::clone(&node))))
        .add_service(ClusterServer::new(ClusterService(node)))
        .add_service(health_service)
        .add_service(reflection)
        .serve_with_incoming_shutdown(incoming, stop)
        .await
}

/// Ends the watches whenever this node has lost the cluster: they would say nothing.
async fn follow_contact(mut contact: watch::Receiver<bool>, watchers: Arc<Watchers>) {
    while contact.changed().await.is_ok() {
        match *contact.borrow_and_update() {
            true => watchers.go_on(),
            false => watchers.end(Over::CutOff),
        }
    }
}

/// Forms the cluster, then names the authority: whoever leads first proposes the
/// identity that the bootstrap gave every folder. A second proposal is refused by the
/// rules.
async fn form(
    config: NodeConfig,
    home: Arc<dyn Home>,
    replica: Replica,
    authority: Arc<Authority>,
    astray: watch::Sender<Option<BootstrapError>>,
) -> Result<ClusterId, BootstrapError> {
    let (members, timing) = (config.members.clone(), config.timing.clone());
    let bootstrap = Bootstrap { home, members, timing, bind: None };
    let cluster = bootstrap.run(&replica).await?;
    tokio::spawn(async move {
        let error = bootstrap.astray(cluster).await;
        astray.send_replace(Some(error));
    });
    let named = || authority.lock().table.cluster().is_some();
    let mut leadership = replica.leadership();
    while !named() {
        if leadership.borrow_and_update().here {
            let (token_floor, limits) = (config.token_floor, config.limits);
            let bootstrap = BootstrapCommand { cluster, token_floor, limits };
            let bootstrap = EncodedCommand(encode_command(&Command::Bootstrap(bootstrap)));
            let _again = replica.propose(bootstrap).await;
        }
        let news = tokio::time::timeout(config.timing.heartbeat, leadership.changed()).await;
        if matches!(news, Ok(Err(_))) {
            break; // the replica has stopped
        }
    }
    Ok(cluster)
}

/// The data folder as peers ask about it.
struct Folder(Storage);

impl Home for Folder {
    fn identity(&self) -> Identity {
        let identity = self.0.identity();
        Identity { node: identity.node_id, incarnation: identity.incarnation }
    }

    fn cluster(&self) -> Option<ClusterId> {
        self.0.cluster()
    }

    fn adopt_cluster(&self, cluster: ClusterId) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move { self.0.adopt_cluster(cluster).await.map_err(io::Error::other) })
    }
}
