//! What the nodes say of themselves, asked from a host that no fault touches.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ringfence::wire::v1;
use serde_json::json;
use tonic::transport::{Channel, Endpoint};

use crate::run::book::Book;
use crate::worker::hex;

/// How often a node is asked.
const EVERY: Duration = Duration::from_millis(100);
/// How long it may take to answer.
const LIMIT: Duration = Duration::from_millis(400);

/// What a node last said of itself.
#[derive(Debug, Clone)]
pub struct Told {
    /// When, by the wall of this process.
    pub at: Instant,
    /// `leader`, `follower`, ...
    pub role: String,
    /// Its term.
    pub term: u64,
    /// The number of the leader it knows; 0 if none.
    pub leader: u64,
    /// What it has applied.
    pub applied: u64,
    /// How many sessions live.
    pub sessions: u64,
    /// How far it has told its log to be committed.
    pub committed: u64,
}

impl Default for Told {
    fn default() -> Told {
        Told {
            at: Instant::now(),
            role: String::new(),
            term: 0,
            leader: 0,
            applied: 0,
            sessions: 0,
            committed: 0,
        }
    }
}

impl Told {
    /// How old it is.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.at.elapsed()
    }
}

/// What all nodes last said.
#[derive(Debug, Default)]
pub struct View(Mutex<BTreeMap<String, Told>>);

impl View {
    /// By the nodes' names.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The name of the node that leads in the highest term, by what was said lately.
    #[must_use]
    pub fn leader(&self) -> Option<String> {
        let all = self.all();
        let leads = all
            .iter()
            .filter(|(_, told)| told.role == "leader" && told.age() < Duration::from_secs(2));
        leads.max_by_key(|(_, told)| told.term).map(|(name, _)| name.clone())
    }

    fn put(&self, name: &str, told: Told) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), told);
    }
}

/// A node as it is observed.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// How often it was started.
    pub starts: Arc<AtomicU64>,
}

/// Connects to a node.
///
/// # Errors
/// It does not answer.
pub async fn connect(address: &str) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
    Ok(endpoint.connect_timeout(LIMIT).tcp_nodelay(true).connect().await?)
}

/// Asks a node for its status until `stop`, and writes each answer to its `status.jsonl`.
///
/// # Errors
/// The file cannot be written.
pub async fn watch_status(
    node: Observed,
    folder: &Path,
    book: &Book,
    view: &View,
    stop: &AtomicBool,
) -> Result<()> {
    let path = folder.join("nodes").join(&node.name).join("status.jsonl");
    let file = File::options().append(true).create(true).open(&path);
    let mut file = file.with_context(|| format!("cannot open {}", path.display()))?;
    let mut channel = None;
    let mut before = 0;
    while !stop.load(Ordering::SeqCst) {
        let start = node.starts.load(Ordering::SeqCst);
        if start != before {
            (channel, before) = (None, start);
        }
        match ask(&mut channel, &node.address).await {
            Some(status) if start == node.starts.load(Ordering::SeqCst) => {
                write(&mut file, &node.name, start, &status, book, view)?;
            }
            Some(_) => {}
            None => channel = None,
        }
        tokio::time::sleep(EVERY).await;
    }
    Ok(())
}

async fn ask(channel: &mut Option<Channel>, address: &str) -> Option<v1::StatusResponse> {
    let asked = async {
        let open = match channel {
            Some(open) => open.clone(),
            None => connect(address).await.ok()?,
        };
        *channel = Some(open.clone());
        let mut client = v1::cluster_client::ClusterClient::new(open);
        Some(client.status(v1::StatusRequest {}).await.ok()?.into_inner())
    };
    tokio::time::timeout(LIMIT, asked).await.ok()?
}

fn write(
    file: &mut File,
    name: &str,
    start: u64,
    status: &v1::StatusResponse,
    book: &Book,
    view: &View,
) -> Result<()> {
    if matches!(status.role.as_str(), "starting" | "stopped") {
        return Ok(());
    }
    let line = json!({
        "time": book.now(), "start": start, "role": status.role, "term": status.term,
        "leader": status.leader_id, "commit": status.committed, "applied": status.applied,
        "last_log": status.last_log, "purged": status.purged, "token": status.token,
        "state_hash": hex(&status.state_hash), "state_hash_index": status.state_hash_index,
        "sessions": status.sessions, "grants": status.grants, "waits": status.waits,
        "postponed_ms": status.postponed_ms,
    });
    file.write_all(format!("{line}\n").as_bytes()).context("cannot write a status")?;
    view.put(
        name,
        Told {
            at: Instant::now(),
            role: status.role.clone(),
            term: status.term,
            leader: status.leader_id,
            applied: status.applied,
            sessions: status.sessions,
            committed: status.committed,
        },
    );
    Ok(())
}
