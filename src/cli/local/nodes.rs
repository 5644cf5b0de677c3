//! A cluster of our own: real `serve` processes on loopback.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::process::{Process, itself};
use super::{PATIENCE, POLL};
use crate::client::{Address, Client};
use crate::clock::Moment;
use crate::wire::v1;

/// The first port that is tried.
const PORT_FIRST: u16 = 10_000;
/// Where the system begins to take ports for outgoing connections, if it does not say.
const EPHEMERAL_FIRST: u16 = 32_768;

/// The nodes, numbered from 1. Those that run are stopped when this is dropped.
#[derive(Debug)]
pub struct Nodes {
    folder: PathBuf,
    addresses: BTreeMap<u64, String>,
    running: BTreeMap<u64, Process>,
    client: Client,
}

/// Who leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    /// The node.
    pub node: u64,
    /// Since which term.
    pub term: u64,
}

impl Nodes {
    /// Starts so many nodes, with their data under `folder`, at `port` and the ports
    /// after it; at free ones if it is not given.
    ///
    /// # Errors
    /// A port is busy, or what the system says.
    pub fn start(folder: &Path, size: u16, port: Option<u16>) -> anyhow::Result<Self> {
        let ports = match port {
            Some(first) => given_ports(first, size)?,
            None => free_ports(size)?,
        };
        let addresses = ports.iter().map(|port| format!("127.0.0.1:{port}"));
        let addresses: BTreeMap<u64, String> = (1..).zip(addresses).collect();
        let client = Client::connect(addresses.values())?;
        let folder = folder.to_owned();
        let mut nodes = Self { folder, addresses, running: BTreeMap::new(), client };
        for node in 1..=u64::from(size) {
            nodes.run(node)?;
        }
        Ok(nodes)
    }

    /// Starts a node that does not run; on its old data, if it has any.
    ///
    /// # Errors
    /// What the system says.
    pub fn run(&mut self, node: u64) -> anyhow::Result<()> {
        let members = self.addresses.iter().map(|(node, address)| format!("{node}={address}"));
        let members = members.collect::<Vec<_>>().join(",");
        let mut command = itself("serve")?;
        command.args(["--node-id", &node.to_string(), "--listen", &self.addresses[&node]]);
        command.args(["--members", &members, "--data"]).arg(self.data(node));
        let log = self.folder.join(format!("node-{node}.log"));
        let process = Process::start(&format!("node {node}"), command, &log)?;
        self.running.insert(node, process);
        Ok(())
    }

    /// Kills a node with SIGKILL: nothing of it runs when this returns.
    pub fn kill(&mut self, node: u64) {
        self.running.remove(&node);
    }

    /// Waits until a node leads, in a later term than this one, and says which.
    ///
    /// # Errors
    /// A node has ended, or none leads in time.
    pub async fn leader_after(&mut self, term: u64) -> anyhow::Result<Leader> {
        let until = Moment::now().plus(PATIENCE);
        while Moment::now() < until {
            for process in self.running.values_mut() {
                process.check()?;
            }
            for node in self.running.keys() {
                let leads = |s: &v1::StatusResponse| {
                    s.role == "leader" && !s.cluster_id.is_empty() && s.term > term
                };
                if let Ok(status) = self.status(*node).await
                    && leads(&status)
                {
                    return Ok(Leader { node: *node, term: status.term });
                }
            }
            tokio::time::sleep(POLL).await;
        }
        anyhow::bail!("no node leads after {} s", PATIENCE.as_secs())
    }

    /// What a node says of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn status(&self, node: u64) -> anyhow::Result<v1::StatusResponse> {
        let address = Address::parse(&self.addresses[&node])?;
        Ok(self.client.status_of(&address).await?)
    }

    /// `host:port` of each.
    pub fn endpoints(&self) -> Vec<String> {
        self.addresses.values().cloned().collect()
    }

    /// The process number of a node that runs.
    pub fn process(&self, node: u64) -> Option<u32> {
        self.running.get(&node).map(Process::id)
    }

    /// The processor time that the nodes which run have taken so far.
    pub fn processor_time(&self) -> Duration {
        self.running.values().filter_map(|process| process.processor_time().ok()).sum()
    }

    /// Where a node keeps its data.
    pub fn data(&self, node: u64) -> PathBuf {
        self.folder.join(format!("node-{node}"))
    }
}

fn given_ports(first: u16, size: u16) -> anyhow::Result<Vec<u16>> {
    let last = first.checked_add(size - 1).context("--port is too high for so many nodes")?;
    for port in first..=last {
        TcpListener::bind(("127.0.0.1", port))
            .with_context(|| format!("--port {first}: cannot listen at 127.0.0.1:{port}"))?;
    }
    Ok((first..=last).collect())
}

/// Ports that the system does not take for outgoing connections: a node that is down
/// keeps its port to itself.
fn free_ports(size: u16) -> anyhow::Result<Vec<u16>> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok());
    let end = first.unwrap_or(EPHEMERAL_FIRST).max(PORT_FIRST + 1_000);
    // Programs that run side by side begin at different ports.
    let ports = u32::from(end - PORT_FIRST);
    let from = std::process::id().wrapping_mul(613) % ports;
    let all = (0..ports).map(|step| (from + step) % ports);
    let all = all.filter_map(|step| u16::try_from(step).ok()).map(|step| PORT_FIRST + step);
    let free = all.filter(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    let found: Vec<u16> = free.take(size.into()).collect();
    anyhow::ensure!(found.len() == usize::from(size), "no free port from {PORT_FIRST} to {end}");
    Ok(found)
}
