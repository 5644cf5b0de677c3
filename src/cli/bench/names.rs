//! Names that are used once each: what a node takes must not grow with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::memory::{ready, resident, size};
use super::progress::Progress;
use super::raw::{RawSession, connect};
use super::target::Target;
use crate::clock::Moment;

/// Longer than any run.
const TTL: Duration = Duration::from_secs(86_400);
/// Sessions that ask side by side, on as many connections as below.
const SESSIONS: u64 = 256;
const CONNECTIONS: usize = 8;
/// How often the node is looked at: after so many equal parts of the names.
const PARTS: u64 = 10;

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Names {
    /// Names, each acquired and released once.
    pub names: u64,
    /// Of them, so many a second.
    pub per_second: f64,
    /// The leader before the first and after each tenth of them.
    pub leader: Vec<Taken>,
}

/// What a node takes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Taken {
    /// Resident. Bytes.
    pub resident_bytes: u64,
    /// Its data folder. Bytes.
    pub data_bytes: u64,
}

/// Measures.
///
/// # Errors
/// A lock is not granted.
pub async fn run(target: &mut Target, names: u64) -> anyhow::Result<Names> {
    let leader = target.leader().await?;
    let (node, address) = (leader.node_id, leader.leader);
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(connect(&address).await?);
    }
    let mut sessions = Vec::new();
    for (_, channel) in (0..SESSIONS).zip(channels.iter().cycle()) {
        sessions.push((RawSession::open(channel, TTL).await?, channel.clone()));
    }
    let mut taken = vec![looked_at(target, node).await?];
    let progress = Progress::begin(format!("{names} names, each used once"));
    let used = Arc::new(AtomicU64::new(0));
    let began = Moment::now();
    for part in 1..=PARTS {
        let until = names * part / PARTS;
        let mut running = JoinSet::new();
        for (session, channel) in std::mem::take(&mut sessions) {
            running.spawn(use_names(session, channel, used.clone(), until));
        }
        while let Some(ended) = running.join_next().await {
            sessions.push(ended??);
            progress.at(&format!("{} used", used.load(Ordering::Relaxed).min(names)));
        }
        taken.push(looked_at(target, node).await?);
    }
    let took = Moment::now().since(began);
    let per_second = names as f64 / took.as_secs_f64();
    Ok(Names { names, per_second, leader: taken })
}

/// Takes and releases the next name until so many are used.
async fn use_names(
    mut session: RawSession,
    channel: Channel,
    used: Arc<AtomicU64>,
    until: u64,
) -> anyhow::Result<(RawSession, Channel)> {
    loop {
        let number = used.fetch_add(1, Ordering::Relaxed);
        if number >= until {
            used.fetch_sub(1, Ordering::Relaxed);
            return Ok((session, channel));
        }
        session.use_once(&channel, format!("bench/once/{number}")).await?;
    }
}

async fn looked_at(target: &mut Target, node: u64) -> anyhow::Result<Taken> {
    let nodes = target.own()?;
    let committed = nodes.status(node).await?.committed;
    ready(nodes, node, committed).await?;
    Ok(Taken { resident_bytes: resident(nodes, node)?, data_bytes: size(&nodes.data(node))? })
}
