//! Nodes in one process, each with a runtime of its own, so that one can be killed
//! with all its sockets as a process is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringfence::locks::{ClusterId, Position};
use ringfence::raft::{self, Bootstrap, BootstrapError, LogLimits, Parts, Replica, Timing};
use ringfence::raft_types::EncodedCommand;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::net::{self, Net};
use crate::store::{Disk, Lengths};

pub const SOON: Duration = Duration::from_secs(60);

/// Patient enough for a machine that is busy with other things.
pub fn patient() -> Timing {
    Timing {
        heartbeat: Duration::from_millis(200),
        election_min: Duration::from_millis(1_000),
        election_max: Duration::from_millis(2_000),
        ..Timing::default()
    }
}

/// Shows what happens, when `RUST_LOG` asks for it.
pub fn trace() {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).try_init().ok();
    }
}

/// Waits until `look` finds something.
pub async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn command(text: &str) -> EncodedCommand {
    EncodedCommand(Bytes::copy_from_slice(text.as_bytes()))
}

pub struct Node {
    pub disk: Disk,
    pub replica: Replica,
    pub bootstrap: Option<JoinHandle<Result<ClusterId, BootstrapError>>>,
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Node {
    /// Starts a node's process. It listens on `listen` and calls from its own
    /// source address.
    pub async fn start(
        disk: Disk,
        listen: SocketAddr,
        members: BTreeMap<u64, String>,
        timing: Timing,
        limits: LogLimits,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let kept = disk.clone();
        let started = runtime.spawn(async move {
            let id = kept.home.identity.node;
            let bind = Some(net::source(id));
            let parts = Parts {
                home: kept.home.clone(),
                timing: timing.clone(),
                limits,
                members: members.clone(),
                bind,
                log: kept.clone(),
                machine: kept.clone(),
                snapshots: Lengths,
            };
            let (replica, service) = raft::start(parts).await.expect("started");
            let incoming = TcpIncoming::bind(listen).expect("a free port").with_nodelay(Some(true));
            let address = incoming.local_addr().expect("bound");
            let server = Server::builder()
                .http2_keepalive_interval(Some(timing.keepalive))
                .http2_keepalive_timeout(Some(timing.keepalive_timeout))
                .add_service(service.into_server());
            tokio::spawn(server.serve_with_incoming(incoming));
            let bootstrap = Bootstrap { home: kept.home.clone(), members, timing, bind };
            let of = replica.clone();
            let bootstrap = tokio::spawn(async move { bootstrap.run(&of).await });
            (replica, address, bootstrap)
        });
        let (replica, address, bootstrap) = started.await.expect("started");
        Self { disk, replica, bootstrap: Some(bootstrap), address, runtime: Some(runtime) }
    }

    /// Ends the process at once: no goodbye, sockets closed by the kernel.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub fn is_up(&self) -> bool {
        self.runtime.is_some()
    }

    pub fn commands(&self) -> Vec<Bytes> {
        self.disk.machine.lock().commands.clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A formed cluster behind a network that can be cut.
pub struct Cluster {
    pub net: Net,
    pub nodes: BTreeMap<u64, Node>,
    pub members: BTreeMap<u64, String>,
    pub timing: Timing,
    pub limits: LogLimits,
}

impl Cluster {
    pub async fn of(n: u64) -> Self {
        Self::with(n, patient(), LogLimits::default()).await
    }

    pub async fn with(n: u64, timing: Timing, limits: LogLimits) -> Self {
        trace();
        let net = Net::new();
        let mut members = BTreeMap::new();
        for id in 1..=n {
            members.insert(id, net.door(id).await.to_string());
        }
        let mut cluster = Self { net, nodes: BTreeMap::new(), members, timing, limits };
        for id in 1..=n {
            cluster.boot(Disk::fresh(id)).await;
        }
        for node in cluster.nodes.values_mut() {
            let bootstrap = node.bootstrap.take().expect("just started");
            let formed = tokio::time::timeout(SOON, bootstrap).await.expect("in time");
            formed.expect("not killed").expect("formed");
        }
        cluster
    }

    /// Starts or restarts a node with what is on its disk.
    pub async fn boot(&mut self, disk: Disk) {
        let id = disk.home.identity.node;
        let listen = "127.0.0.1:0".parse().expect("an address");
        let (members, timing) = (self.members.clone(), self.timing.clone());
        let node = Node::start(disk, listen, members, timing, self.limits).await;
        self.net.stands_behind(id, node.address);
        self.nodes.insert(id, node);
    }

    pub fn node(&self, id: u64) -> &Node {
        &self.nodes[&id]
    }

    pub fn kill(&mut self, id: u64) {
        self.nodes.get_mut(&id).expect("a node").kill();
    }

    pub async fn restart(&mut self, id: u64) {
        self.kill(id);
        let disk = self.node(id).disk.clone();
        self.boot(disk).await;
    }

    /// The node that leads, as soon as a majority of those who are up, and not in
    /// `but`, agree on it.
    pub async fn leader_but(&self, but: &[u64]) -> u64 {
        let quorum = self.nodes.len() / 2 + 1;
        eventually("a leader", || {
            let up = self.nodes.iter().filter(|(id, n)| n.is_up() && !but.contains(id));
            let mut views = BTreeMap::new();
            for (id, node) in up {
                let seen = node.replica.leadership().borrow().clone();
                if let Some((leader, _)) = seen.leader {
                    let view: &mut (usize, bool) = views.entry((seen.term, leader)).or_default();
                    view.0 += 1;
                    view.1 |= seen.here && leader == *id;
                }
            }
            let agreed = views.into_iter().find(|(_, (n, own))| *n >= quorum && *own);
            agreed.map(|((_, leader), _)| leader)
        })
        .await
    }

    pub async fn leader(&self) -> u64 {
        self.leader_but(&[]).await
    }

    pub fn others(&self, id: u64) -> Vec<u64> {
        self.nodes.keys().copied().filter(|o| *o != id).collect()
    }

    pub async fn propose(&self, at: u64, text: &str) -> Position {
        self.node(at).replica.propose(command(text)).await.expect("applied").0
    }

    /// Waits until every follower would notice the end of the leader's process.
    pub async fn attended(&self, leader: u64) {
        let others = self.others(leader);
        let attends = |id: &u64| self.node(*id).replica.status().presence;
        eventually("a presence", || others.iter().all(attends).then_some(())).await;
    }

    /// Waits until all who are up have applied the same number of commands.
    pub async fn caught_up(&self, ids: &[u64], n: usize) {
        let behind = |id: &&u64| self.node(**id).commands().len() < n;
        let all = || ids.iter().find(behind).is_none().then_some(());
        eventually("all replicas have applied everything", all).await;
    }
}
