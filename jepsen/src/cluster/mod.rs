//! The cluster under test: `ringfence serve` processes, each on a host and a disk of its own,
//! with clocks and disk errors that can be made.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::means::Run;
use crate::means::disk::Volume;
use crate::means::net::Network;
use crate::means::process::{Process, Spec};
use crate::means::shim::Shim;

mod feed;
pub mod observe;

pub use feed::follow;
pub use observe::{Told, View, watch_status};

/// The port that nodes listen at.
pub const PORT: u16 = 7411;

/// MiB of a node's disk.
const DISK_MIB: u64 = 192;

/// What all nodes are started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The product's program.
    pub binary: PathBuf,
    /// How many nodes.
    pub nodes: usize,
    /// `--heartbeat-ms`
    pub heartbeat_ms: u64,
    /// `--election-ms`
    pub election_ms: u64,
    /// `--ttl-min-ms`
    pub ttl_min_ms: u64,
    /// More of the environment of every node.
    pub environment: Vec<(String, String)>,
}

/// One node.
#[derive(Debug)]
pub struct Node {
    /// `n1`, and the name of its host.
    pub name: String,
    /// Its number as the product knows it.
    pub id: u64,
    /// Where it listens.
    pub address: String,
    /// Its disk.
    pub volume: Volume,
    /// Its clocks and disk errors.
    pub shim: Shim,
    /// Its process; none while it is down.
    pub process: Option<Process>,
    /// How often it was started.
    pub starts: Arc<AtomicU64>,
}

/// All nodes.
#[derive(Debug)]
pub struct Cluster {
    run: Arc<Run>,
    /// Hosts and links.
    pub network: Arc<Network>,
    settings: Settings,
    members: String,
    store: PathBuf,
    /// In the order of their numbers.
    pub nodes: Vec<Node>,
}

/// The name of the node of this number.
#[must_use]
pub fn name(id: usize) -> String {
    format!("n{id}")
}

impl Cluster {
    /// Makes disks and starts all nodes. The network has hosts of their names.
    ///
    /// # Errors
    /// A means fails, or the program is not there.
    pub fn start(
        run: &Arc<Run>,
        network: Arc<Network>,
        settings: Settings,
        store: &Path,
    ) -> Result<Cluster> {
        let mut nodes = Vec::new();
        let mut members = Vec::new();
        for id in 1..=settings.nodes {
            let name = name(id);
            let address = format!("{}:{PORT}", network.host(&name)?.address);
            members.push(format!("{id}={address}"));
            let volume = Volume::make(run, &name, DISK_MIB)?;
            let shim = Shim::make(run, &name, volume.folder())?;
            fs::create_dir_all(store.join("nodes").join(&name))?;
            nodes.push(Node {
                name,
                id: id as u64,
                address,
                volume,
                shim,
                process: None,
                starts: Arc::default(),
            });
        }
        let (run, store, members) = (Arc::clone(run), store.to_owned(), members.join(","));
        let mut cluster = Cluster { run, network, settings, members, store, nodes };
        for at in 0..cluster.nodes.len() {
            cluster.start_node(at)?;
        }
        Ok(cluster)
    }

    /// The place of a node by its name.
    ///
    /// # Errors
    /// There is none.
    pub fn place(&self, name: &str) -> Result<usize> {
        let place = self.nodes.iter().position(|node| node.name == name);
        place.with_context(|| format!("no node is named {name}"))
    }

    /// Starts the node at this place, if it is down.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start_node(&mut self, at: usize) -> Result<()> {
        if self.runs(at)? {
            return Ok(());
        }
        let args = self.arguments(at);
        let node = &mut self.nodes[at];
        let log = self.store.join("nodes").join(&node.name).join("log");
        let host = self.network.host(&node.name)?;
        let mut environment: Vec<(&str, OsString)> = vec![("RUST_BACKTRACE", "1".into())];
        for (name, value) in &self.settings.environment {
            environment.push((name, value.into()));
        }
        let spec = Spec {
            args,
            environment,
            namespace: Some(&host.namespace),
            shim: Some(&node.shim),
            ..Spec::new(&node.name, &self.settings.binary, log)
        };
        node.starts.fetch_add(1, Ordering::SeqCst);
        node.process = Some(Process::start(&self.run, spec)?);
        Ok(())
    }

    fn arguments(&self, at: usize) -> Vec<OsString> {
        let node = &self.nodes[at];
        let settings = &self.settings;
        let data = node.volume.folder().join("node").display().to_string();
        let text = [
            "serve".to_owned(),
            format!("--node-id={}", node.id),
            format!("--listen={}", node.address),
            format!("--members={}", self.members),
            format!("--data={data}"),
            format!("--heartbeat-ms={}", settings.heartbeat_ms),
            format!("--election-ms={}", settings.election_ms),
            format!("--ttl-min-ms={}", settings.ttl_min_ms),
        ];
        text.into_iter().map(OsString::from).collect()
    }

    /// Whether the node's process is there, paused or not.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn runs(&mut self, at: usize) -> Result<bool> {
        match &mut self.nodes[at].process {
            Some(process) => Ok(process.ended()?.is_none()),
            None => Ok(false),
        }
    }

    /// Kills the node's process, as a crash of the process does: the kernel keeps what it wrote.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&mut self, at: usize) -> Result<()> {
        if let Some(mut process) = self.nodes[at].process.take() {
            process.kill()?;
        }
        Ok(())
    }

    /// Cuts the power of these nodes at once, and brings their disks back as after a boot. The
    /// nodes stay down.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn power_cut(&mut self, at: &[usize]) -> Result<()> {
        for &at in at {
            if let Some(process) = &mut self.nodes[at].process
                && process.ended()?.is_none()
                && !process.is_paused()
            {
                process.pause()?;
            }
        }
        for &at in at {
            self.nodes[at].volume.power_cut()?;
        }
        for &at in at {
            self.kill(at)?;
            self.nodes[at].volume.restore()?;
        }
        Ok(())
    }

    /// The process of a node that runs.
    ///
    /// # Errors
    /// It is down.
    pub fn process(&mut self, at: usize) -> Result<&mut Process> {
        let node = &mut self.nodes[at];
        node.process.as_mut().with_context(|| format!("{} is down", node.name))
    }

    /// Takes every fault back and starts what is down.
    ///
    /// # Errors
    /// Something cannot be taken back.
    pub fn heal(&mut self) -> Result<()> {
        self.network.heal();
        for at in 0..self.nodes.len() {
            self.nodes[at].shim.heal();
            self.nodes[at].volume.unfill()?;
            if self.runs(at)? && self.process(at)?.is_paused() {
                self.process(at)?.resume()?;
            }
            self.start_node(at)?;
        }
        Ok(())
    }
}

/// Waits until exactly one node leads and all have applied as much, with the same state.
///
/// # Errors
/// They do not within `patience`.
pub fn wait_agreed(view: &View, nodes: usize, patience: Duration) -> Result<()> {
    let end = Instant::now() + patience;
    loop {
        let told = view.all();
        let last = told.values().max_by_key(|told| told.term).cloned().unwrap_or_default();
        let alike = |told: &Told| {
            (told.term, told.leader, told.applied) == (last.term, last.leader, last.applied)
        };
        let fresh = told.values().filter(|told| told.age() < Duration::from_secs(1)).count();
        if fresh == nodes && last.leader != 0 && told.values().all(alike) {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("the nodes have not agreed within {patience:?}: {told:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
