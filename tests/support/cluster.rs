//! Real `ringfence serve` processes on loopback, for tests. Each cluster has a
//! temporary folder and free ports, and stops its processes by pid when it is
//! dropped.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringfence::wire::v1::cluster_client::ClusterClient;
use ringfence::wire::v1::{StatusRequest, StatusResponse};

/// How long a cluster may take to do what a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes numbered from 1.
pub struct Cluster {
    folder: tempfile::TempDir,
    nodes: BTreeMap<u64, NodeProcess>,
    members: String,
    flags: Vec<String>,
    stalls: Stalls,
}

struct NodeProcess {
    address: String,
    child: Option<Child>,
}

impl Cluster {
    /// Starts `size` nodes and waits until one leads and is ready to grant.
    pub async fn start(size: u64) -> Self {
        Self::start_with(size, &[]).await
    }

    /// As [`Cluster::start`], with more flags for each `serve`.
    pub async fn start_with(size: u64, flags: &[&str]) -> Self {
        let mut cluster = Self::prepare(size, flags);
        cluster.run_all();
        cluster.leader().await;
        cluster
    }

    /// A cluster of which no node runs yet.
    pub fn prepare(size: u64, flags: &[&str]) -> Self {
        let addresses = free_addresses(size);
        let listed = addresses.iter().map(|(id, address)| format!("{id}={address}"));
        let members = listed.collect::<Vec<_>>().join(",");
        let nodes =
            addresses.into_iter().map(|(id, address)| (id, NodeProcess { address, child: None }));
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            nodes: nodes.collect(),
            members,
            flags: flags.iter().map(ToString::to_string).collect(),
            stalls: Stalls::watch(),
        }
    }

    /// Starts all nodes; none runs yet.
    pub fn run_all(&mut self) {
        for id in self.ids() {
            self.run(id);
        }
    }

    /// `host:port` of every node.
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.values().map(|node| node.address.clone()).collect()
    }

    /// `host:port` of one node.
    pub fn address(&self, id: u64) -> &str {
        &self.nodes[&id].address
    }

    /// The ids of all nodes.
    pub fn ids(&self) -> Vec<u64> {
        self.nodes.keys().copied().collect()
    }

    /// Where a node keeps its data.
    pub fn data(&self, id: u64) -> PathBuf {
        self.folder.path().join(format!("node-{id}"))
    }

    /// What a node has printed.
    pub fn log(&self, id: u64) -> String {
        std::fs::read_to_string(self.log_path(id)).unwrap_or_default()
    }

    /// The process id of a running node.
    pub fn pid(&self, id: u64) -> u32 {
        self.nodes[&id].child.as_ref().expect("the node runs").id()
    }

    /// Starts a node that does not run.
    pub fn run(&mut self, id: u64) {
        self.run_with(id, &[]);
    }

    /// As [`Cluster::run`], with more in its environment.
    pub fn run_with(&mut self, id: u64, environment: &[(&str, PathBuf)]) {
        let mut command = self.command(id);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        self.run_as(id, command);
    }

    /// As [`Cluster::run`], by this command.
    pub fn run_as(&mut self, id: u64, mut command: Command) {
        let log = File::options().create(true).append(true).open(self.log_path(id));
        let log = log.expect("the log can be written");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(log).spawn().expect("ringfence starts");
        let node = self.nodes.get_mut(&id).expect("a node of the cluster");
        assert!(node.child.replace(child).is_none(), "node {id} runs already");
    }

    /// The command that runs a node, for tests that change it.
    pub fn command(&self, id: u64) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
        command
            .args(["serve", "--node-id", &id.to_string()])
            .args(["--listen", self.address(id), "--members", &self.members])
            .arg("--data")
            .arg(self.data(id))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// Kills a node with SIGKILL.
    pub fn kill(&mut self, id: u64) {
        let mut child = self.take(id);
        child.kill().expect("the node runs");
        child.wait().expect("a killed process ends");
    }

    /// Asks a node to stop with SIGTERM, and waits until it has.
    pub async fn terminate(&mut self, id: u64) -> ExitStatus {
        self.signal(id, "TERM");
        self.ended(id).await
    }

    /// Whether a node has ended by itself.
    pub fn has_ended(&mut self, id: u64) -> bool {
        let node = self.nodes.get_mut(&id).expect("a node of the cluster");
        let child = node.child.as_mut().expect("it was started");
        child.try_wait().expect("the process is ours").is_some()
    }

    /// Waits until a node has ended by itself.
    pub async fn ended(&mut self, id: u64) -> ExitStatus {
        let child = self.take(id);
        let log = || self.log(id);
        ended(child)
            .await
            .unwrap_or_else(|| panic!("node {id} did not stop within {PATIENCE:?}:\n{}", log()))
    }

    /// Sends a signal (`STOP`, `CONT`, `TERM` …) to a node.
    pub fn signal(&self, id: u64, name: &str) {
        let pid = self.pid(id).to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -s {name} {pid}");
        let until = Instant::now() + PATIENCE;
        // On a busy machine its threads run on until one of them has seen the signal.
        while name == "STOP" && !is_stopped(&pid) {
            assert!(Instant::now() < until, "node {id} does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a node answers and has applied all that was committed when it was
    /// asked for.
    pub async fn caught_up(&self, id: u64) {
        let leader = self.leader().await;
        let committed = self.status(leader).await.map_or(0, |status| status.committed);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.status(id).await.is_some_and(|status| status.applied >= committed) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("node {id} is not at {committed} within {PATIENCE:?}\n{}", self.log(id));
    }

    /// Waits until a node leads with a quorum, and says which.
    pub async fn leader(&self) -> u64 {
        self.leader_but(None).await
    }

    /// As [`Cluster::leader`], any node but this one.
    pub async fn leader_but(&self, not: Option<u64>) -> u64 {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            for id in self.nodes.keys().copied().filter(|id| Some(*id) != not) {
                let leads = |s: &StatusResponse| {
                    s.role == "leader" && !s.cluster_id.is_empty() && s.quorum_ack_age_ms < 1_000
                };
                if self.status(id).await.as_ref().is_some_and(leads) {
                    return id;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let logs = self.nodes.keys().map(|id| format!("--- node {id}\n{}", self.log(*id)));
        panic!("no leader within {PATIENCE:?}\n{}", logs.collect::<String>());
    }

    /// By how much later things may come than they should: what stalls have moved
    /// deadlines by on all nodes that answer, as the contract lets them, and how long
    /// this machine let nothing of ours run.
    pub async fn stalls(&self) -> Duration {
        let mut all = self.stalls.so_far();
        for id in self.ids() {
            let status = self.status(id).await;
            all += Duration::from_millis(status.map_or(0, |status| status.postponed_ms));
        }
        all
    }

    /// What a node says of itself; `None` if it does not answer.
    pub async fn status(&self, id: u64) -> Option<StatusResponse> {
        status_of(self.address(id)).await
    }

    fn take(&mut self, id: u64) -> Child {
        let node = self.nodes.get_mut(&id).expect("a node of the cluster");
        node.child.take().expect("the node runs")
    }

    fn log_path(&self, id: u64) -> PathBuf {
        self.folder.path().join(format!("node-{id}.log"))
    }

    /// The temporary folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A thread that wants to run every few milliseconds, and how much later than that it
/// did, all in all.
struct Stalls {
    lost_micros: Arc<AtomicU64>,
}

impl Stalls {
    fn watch() -> Self {
        let lost_micros = Arc::new(AtomicU64::new(0));
        let watched = Arc::downgrade(&lost_micros);
        std::thread::spawn(move || {
            let mut ran = Instant::now();
            while let Some(lost) = watched.upgrade() {
                std::thread::sleep(Duration::from_millis(5));
                let late = ran.elapsed().saturating_sub(Duration::from_millis(20));
                lost.fetch_add(u64::try_from(late.as_micros()).unwrap_or(0), Ordering::Relaxed);
                ran = Instant::now();
            }
        });
        Self { lost_micros }
    }

    fn so_far(&self) -> Duration {
        Duration::from_micros(self.lost_micros.load(Ordering::Relaxed))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            if let Some(mut child) = node.child.take() {
                let _ended = child.kill();
                let _reaped = child.wait();
            }
        }
    }
}

/// Whether all threads of a process are stopped by a signal.
fn is_stopped(pid: &str) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process is ours");
    let stopped = |thread: std::fs::DirEntry| {
        // The state follows the name, which stands in parentheses.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    threads.flatten().all(stopped)
}

/// Waits until a process has ended; `None`, and the process is killed, if it has not
/// within [`PATIENCE`].
pub async fn ended(mut child: Child) -> Option<ExitStatus> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("the process is ours") {
            return Some(status);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.kill().expect("it runs still");
    child.wait().expect("a killed process ends");
    None
}

/// What the node at an address says of itself; `None` if it does not answer.
pub async fn status_of(address: &str) -> Option<StatusResponse> {
    let asked = async {
        let mut client = ClusterClient::connect(format!("http://{address}")).await.ok()?;
        client.status(StatusRequest {}).await.ok().map(tonic::Response::into_inner)
    };
    tokio::time::timeout(Duration::from_millis(500), asked).await.ok().flatten()
}

/// Free loopback addresses below the range from which the system takes ports for
/// outgoing connections: a node that is down keeps its port to itself.
pub fn free_addresses(count: u64) -> BTreeMap<u64, String> {
    (1..=count).map(|id| (id, free_address())).collect()
}

/// One of them.
pub fn free_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, ports) = (10_000, 20_000);
    // Test programs that run side by side begin at different ports.
    let start = std::process::id().wrapping_mul(613);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(step < ports, "no free port between {first} and {}", first + ports);
        let port = first + start.wrapping_add(step) % ports;
        let address = format!("127.0.0.1:{port}");
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}
