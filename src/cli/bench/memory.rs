//! Memory, disk and restart of a node that holds many locks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::progress::Progress;
use super::raw::{RawSession, connect};
use super::target::Target;
use crate::cli::local::{Nodes, PATIENCE, POLL};
use crate::clock::Moment;

/// Longer than any run.
const TTL: Duration = Duration::from_secs(3_600);
/// Sessions that ask side by side, on as many connections as below.
const SIDE_BY_SIDE: u32 = 128;
const CONNECTIONS: u32 = 8;

/// How many.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Locks.
    pub locks: u32,
    /// Sessions that share them.
    pub sessions: u32,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Memory {
    /// Locks.
    pub locks: u32,
    /// Sessions.
    pub sessions: u32,
    /// Acquires that were acknowledged while they were taken.
    pub per_second: f64,
    /// Resident, the leader, when empty. Bytes.
    pub leader_empty_bytes: u64,
    /// Resident, the leader. Bytes.
    pub leader_bytes: u64,
    /// Resident, a follower. Bytes.
    pub follower_bytes: u64,
    /// Resident, that follower after its restart. Bytes.
    pub restarted_bytes: u64,
    /// That follower's data folder. Bytes.
    pub data_bytes: u64,
    /// From its start, after a SIGKILL, until it follows and has applied all that was
    /// committed. Microseconds.
    pub restart_us: u64,
}

/// Measures.
///
/// # Errors
/// A lock is not granted, or the node does not come back.
pub async fn run(target: &mut Target, asked: Asked) -> anyhow::Result<Memory> {
    let Asked { locks, sessions } = asked;
    let leader = target.leader().await?;
    let (node, address) = (leader.node_id, leader.leader);
    let nodes = target.own()?;
    let leader_empty_bytes = resident(nodes, node)?;
    let began = Moment::now();
    hold(&address, asked).await?;
    let took = Moment::now().since(began);
    let held = nodes.status(node).await?;
    anyhow::ensure!(held.grants == u64::from(locks), "{} of {locks} locks are held", held.grants);
    let progress = Progress::begin("restart".to_owned());
    let others = (1..).take_while(|id| nodes.process(*id).is_some()).find(|id| *id != node);
    // A cluster of one has no other.
    let follower = others.unwrap_or(node);
    ready(nodes, follower, held.committed).await?;
    let (leader_bytes, follower_bytes) = (resident(nodes, node)?, resident(nodes, follower)?);
    nodes.kill(follower);
    let data_bytes = size(&nodes.data(follower))?;
    let started = Moment::now();
    nodes.run(follower)?;
    ready(nodes, follower, held.committed).await?;
    let restart = Moment::now().since(started);
    drop(progress);
    Ok(Memory {
        locks,
        sessions,
        per_second: f64::from(locks) / took.as_secs_f64(),
        leader_empty_bytes,
        leader_bytes,
        follower_bytes,
        restarted_bytes: resident(nodes, follower)?,
        data_bytes,
        restart_us: u64::try_from(restart.as_micros())?,
    })
}

/// Takes the locks; they stay held.
async fn hold(address: &str, asked: Asked) -> anyhow::Result<()> {
    let Asked { locks, sessions } = asked;
    let progress = Progress::begin(format!("memory, {locks} locks in {sessions} sessions"));
    let held = Arc::new(AtomicU64::new(0));
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(connect(address).await?);
    }
    let mut running = JoinSet::new();
    let shares = (0..sessions).map(|n| locks / sessions + u32::from(n < locks % sessions));
    let mut shares = shares.enumerate().zip(channels.iter().cycle());
    loop {
        while running.len() < SIDE_BY_SIDE as usize
            && let Some(((number, share), channel)) = shares.next()
        {
            running.spawn(hold_share(channel.clone(), number, share, held.clone()));
        }
        let Some(ended) = running.join_next().await else { return Ok(()) };
        ended??;
        progress.at(&format!("{} held", held.load(Ordering::Relaxed)));
    }
}

async fn hold_share(
    channel: Channel,
    number: usize,
    locks: u32,
    held: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let mut session = RawSession::open(&channel, TTL).await?;
    for lock in 0..locks {
        session.hold(&channel, format!("bench/held/{number}/{lock}")).await?;
        held.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits until the node has applied so much, and follows or leads.
pub(super) async fn ready(nodes: &mut Nodes, node: u64, index: u64) -> anyhow::Result<()> {
    let until = Moment::now().plus(PATIENCE);
    loop {
        if let Ok(status) = nodes.status(node).await
            && ["follower", "leader"].contains(&status.role.as_str())
            && status.applied >= index
        {
            return Ok(());
        }
        anyhow::ensure!(Moment::now() < until, "node {node} does not catch up");
        tokio::time::sleep(POLL).await;
    }
}

/// The memory that a node's process has in use. Bytes.
pub(super) fn resident(nodes: &Nodes, node: u64) -> anyhow::Result<u64> {
    let process = nodes.process(node).context("the node runs")?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    let kibibytes: u64 = kibibytes.context("this system does not tell VmRSS")?;
    Ok(kibibytes * 1_024)
}

/// All files under the folder. Bytes.
pub(super) fn size(folder: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // The node goes on: a file may be gone by now.
        let Ok(about) = entry.metadata() else { continue };
        sum += if about.is_dir() { size(&entry.path())? } else { about.len() };
    }
    Ok(sum)
}
