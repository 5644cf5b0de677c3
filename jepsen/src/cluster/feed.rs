//! The audit feed: a watch on everything that goes on at another node when one breaks off.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ringfence::wire::v1::{self, watch_response::Part};
use serde_json::{Value, json};

use super::observe::connect;

/// After so long without a word the feed is taken from another node.
const SILENCE: Duration = Duration::from_millis(2_500);

/// Follows everything that happens until `stop`, into `audit.jsonl`. `reached` is the index up to
/// which the file is complete.
///
/// # Errors
/// The file cannot be written.
pub async fn follow(
    addresses: &[String],
    folder: &Path,
    reached: &AtomicU64,
    stop: &AtomicBool,
) -> Result<()> {
    let path = folder.join("audit.jsonl");
    let file = File::options().append(true).create_new(true).open(&path);
    let mut feed = Feed {
        file: file.with_context(|| format!("cannot begin {}", path.display()))?,
        at: None,
        cluster: Vec::new(),
        compacted: BTreeSet::new(),
        nodes: addresses.len(),
        half: false,
    };
    for address in addresses.iter().cycle() {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        feed.from(address, reached, stop).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

struct Feed {
    file: File,
    /// The last revision that was told.
    at: Option<v1::Revision>,
    cluster: Vec<u8>,
    /// The nodes that no longer have what follows the last revision.
    compacted: BTreeSet<String>,
    nodes: usize,
    /// That a part of the state was written, and not its last one.
    half: bool,
}

impl Feed {
    /// Follows one node until it breaks off.
    async fn from(&mut self, address: &str, reached: &AtomicU64, stop: &AtomicBool) -> Result<()> {
        let Ok(channel) = connect(address).await else { return Ok(()) };
        if self.half {
            self.write(&json!({"kind": "gap"}))?;
            self.half = false;
        }
        let request = v1::WatchRequest {
            what: None,
            resume_after: self.at,
            cluster_id: self.cluster.clone().into(),
        };
        let mut client = v1::watch_client::WatchClient::new(channel);
        let opened = client.watch(request);
        let mut stream = match tokio::time::timeout(SILENCE, opened).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => return self.broken(address, &status),
            Err(_) => return Ok(()),
        };
        let resumed = self.at.is_some();
        while !stop.load(Ordering::SeqCst) {
            match tokio::time::timeout(SILENCE, stream.message()).await {
                Ok(Ok(Some(answer))) => self.take(answer, resumed)?,
                Ok(Err(status)) => return self.broken(address, &status),
                Ok(Ok(None)) | Err(_) => return Ok(()),
            }
            reached.store(self.at.map_or(0, |at| at.index), Ordering::SeqCst);
        }
        Ok(())
    }

    /// What no node keeps any longer is missing for good: the feed begins anew with the state.
    fn broken(&mut self, address: &str, status: &tonic::Status) -> Result<()> {
        if ringfence::wire::Reason::of(status) == Some(ringfence::wire::Reason::Compacted) {
            self.compacted.insert(address.to_owned());
        }
        if self.compacted.len() == self.nodes {
            self.compacted.clear();
            self.at = None;
            self.write(&json!({"kind": "gap"}))?;
        }
        Ok(())
    }

    fn take(&mut self, answer: v1::WatchResponse, resumed: bool) -> Result<()> {
        self.compacted.clear();
        if !answer.cluster_id.is_empty() {
            self.cluster = answer.cluster_id.to_vec();
        }
        match answer.part {
            Some(Part::State(state)) if !resumed => {
                for view in &state.resources {
                    self.write_state(view)?;
                }
                self.half = !state.last;
                if state.last {
                    self.at = state.at;
                }
            }
            Some(Part::State(_)) | None => {}
            Some(Part::Events(events)) => {
                for event in events.events {
                    self.write(&line(&event))?;
                    self.at = event.at.or(self.at);
                }
            }
            Some(Part::Progress(at)) => self.at = Some(at),
        }
        Ok(())
    }

    /// Who holds it, who waits and what keeps it closed, as lines of the feed.
    fn write_state(&mut self, view: &v1::ResourceView) -> Result<()> {
        for grant in &view.holders {
            self.write(&json!({
                "kind": "state_held", "resources": [view.resource], "session": grant.session,
                "request": grant.request, "token": grant.token, "slots": grant.slots,
                "slot": grant.slot, "floor": grant.floor,
                "mode": word(grant.mode().as_str_name(), "MODE_"),
            }))?;
        }
        for waiter in &view.waiters {
            self.write(&json!({
                "kind": "state_waits", "resources": [view.resource],
                "session": waiter.session, "request": waiter.request,
            }))?;
        }
        if let Some(frozen) = &view.frozen {
            let (resource, token) = (&view.resource, frozen.token);
            let kind = "state_frozen";
            self.write(&json!({"kind": kind, "resources": [resource], "token": token}))?;
        }
        Ok(())
    }

    fn write(&mut self, line: &Value) -> Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes()).context("cannot write the feed")
    }
}

/// A word of `events.proto` without its prefix.
fn word(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}

fn line(event: &v1::Event) -> Value {
    let at = event.at.unwrap_or_default();
    let mut line = json!({
        "cluster": 0, "index": at.index, "ordinal": at.ordinal,
        "kind": word(event.kind().as_str_name(), "EVENT_KIND_"),
        "resources": event.resources, "session": event.session, "request": event.request,
        "token": event.token, "slots": event.slots, "slot": event.slot, "floor": event.floor,
        "by": event.by,
    });
    if event.mode() != v1::Mode::Unspecified {
        line["mode"] = json!(word(event.mode().as_str_name(), "MODE_"));
    }
    if event.phase() != v1::Phase::Unspecified {
        line["phase"] = json!(word(event.phase().as_str_name(), "PHASE_"));
    }
    if event.cause() != v1::Cause::Unspecified {
        line["cause"] = json!(word(event.cause().as_str_name(), "CAUSE_"));
    }
    line
}
