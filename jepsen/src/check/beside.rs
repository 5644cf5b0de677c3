//! The lines of the files that lie beside a history.

use serde::Deserialize;

use super::evidence::{self, Cause, Event, EventKind, Mode, Name, Names, Session};
use super::load::reason;

/// A line of `audit.jsonl`: an event of the watch on everything, with the names of
/// `events.proto` in lower case and snake_case.
#[derive(Debug, Deserialize)]
pub struct Line {
    #[serde(default)]
    cluster: u32,
    #[serde(default)]
    index: u64,
    #[serde(default)]
    ordinal: u32,
    kind: EventKind,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    session: u64,
    #[serde(default)]
    request: u64,
    #[serde(default)]
    token: u64,
    #[serde(default)]
    mode: Option<ModeWord>,
    #[serde(default)]
    slots: u32,
    #[serde(default)]
    slot: Option<u32>,
    #[serde(default)]
    floor: u64,
    #[serde(default)]
    cause: Option<Cause>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ModeWord {
    Exclusive,
    Shared,
    Slots,
}

impl Line {
    /// The event, with its names as numbers.
    pub fn event(self, names: &mut Names) -> Event {
        Event {
            index: self.index,
            ordinal: self.ordinal,
            kind: self.kind,
            resources: self.resources.iter().map(|name| names.number(name)).collect(),
            session: Session { cluster: self.cluster, id: self.session },
            request: self.request,
            token: self.token,
            mode: match self.mode {
                Some(ModeWord::Exclusive) | None => Mode::Exclusive,
                Some(ModeWord::Shared) => Mode::Shared,
                Some(ModeWord::Slots) => Mode::Slots,
            },
            slots: self.slots,
            slot: self.slot,
            floor: self.floor,
            cause: self.cause.unwrap_or_default(),
        }
    }
}

/// A line of `dest-ledger.jsonl`: what a destination was asked, in the order in which it did it.
#[derive(Debug, Deserialize)]
pub struct Entry {
    seq: u64,
    #[serde(default)]
    dest: String,
    resource: String,
    token: u64,
    floor: u64,
    #[serde(default)]
    slot: Option<u32>,
    #[serde(default)]
    cluster: u32,
    #[serde(default)]
    session: u64,
    #[serde(default)]
    element: Option<String>,
    accepted: bool,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    counter: Option<u64>,
}

impl Entry {
    /// The entry, with its names as numbers.
    pub fn entry(self, names: &mut Names) -> evidence::Entry {
        evidence::Entry {
            seq: self.seq,
            dest: names.number(&self.dest),
            resource: names.number(&self.resource),
            token: self.token,
            floor: self.floor,
            slot: self.slot,
            session: Session { cluster: self.cluster, id: self.session },
            element: self.element.map(|element| names.number(&element)),
            accepted: self.accepted,
            reason: reason(self.reason.as_deref()),
            counter: self.counter,
        }
    }
}

/// A line of `nodes/<n>/status.jsonl`: what a node said of itself.
#[derive(Debug, Deserialize)]
pub struct Status {
    time: u64,
    #[serde(default)]
    cluster: u32,
    start: u64,
    #[serde(default)]
    role: String,
    term: u64,
    #[serde(default)]
    vote: Option<u64>,
    #[serde(default)]
    leader: Option<u64>,
    commit: u64,
    applied: u64,
    #[serde(default)]
    last_log: u64,
    #[serde(default)]
    state_hash: Option<String>,
    #[serde(default)]
    state_hash_index: u64,
}

impl Status {
    /// The status of this node, with its names as numbers.
    pub fn status(self, node: Name, names: &mut Names) -> evidence::Status {
        let hash = self.state_hash.filter(|hash| !hash.is_empty());
        evidence::Status {
            node,
            time: self.time,
            cluster: self.cluster,
            start: self.start,
            leads: self.role == "leader",
            term: self.term,
            vote: self.vote,
            leader: self.leader.unwrap_or(0),
            commit: self.commit,
            applied: self.applied,
            last_log: self.last_log,
            hash_index: self.state_hash_index,
            hash: hash.map(|hash| names.number(&hash)),
        }
    }
}

#[cfg(test)]
impl evidence::Evidence {
    /// Lines as they would stand in the files.
    pub fn take_audit(&mut self, lines: Option<Vec<serde_json::Value>>) {
        let Some(lines) = lines else { return };
        let lines = lines.into_iter().map(|line| serde_json::from_value::<Line>(line).unwrap());
        self.audit = Some(lines.map(|line| line.event(&mut self.names)).collect());
    }

    pub fn take_ledger(&mut self, lines: Option<Vec<serde_json::Value>>) {
        let Some(lines) = lines else { return };
        let lines = lines.into_iter().map(|line| serde_json::from_value::<Entry>(line).unwrap());
        self.ledger = Some(lines.map(|line| line.entry(&mut self.names)).collect());
    }

    pub fn take_status(&mut self, node: &str, line: serde_json::Value) {
        let node = self.names.number(node);
        let status: Status = serde_json::from_value(line).unwrap();
        self.statuses.push(status.status(node, &mut self.names));
    }
}
