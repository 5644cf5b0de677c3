//! All that a run left, in a form small enough to hold a million operations.

use std::collections::{HashMap, HashSet};

use crate::history::Kind;

/// A time that never comes, or is not known.
pub const NEVER: u64 = u64::MAX;

/// A name that occurs often, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(u32);

/// The names and their numbers.
#[derive(Debug, Default)]
pub struct Names {
    numbers: HashMap<String, Name>,
    all: Vec<String>,
}

impl Names {
    /// The number of `name`, a new one if it is new.
    pub fn number(&mut self, name: &str) -> Name {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        let number = Name(u32::try_from(self.all.len()).expect("fewer than 2^32 names"));
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// The name of a number that came from here.
    pub fn name(&self, number: Name) -> &str {
        &self.all[number.0 as usize]
    }
}

/// A session of a cluster. A restored cluster is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Session {
    /// 0, and one more with each restore.
    pub cluster: u32,
    /// As the authority numbered it.
    pub id: u64,
}

/// How a resource is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// One holder.
    Exclusive,
    /// Many.
    Shared,
    /// One for each slot.
    Slots,
}

/// The refusals that checkers go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No refusal, or none of the others.
    Other,
    /// `SESSION_EXPIRED` or `SESSION_UNKNOWN`.
    SessionOver,
    /// `NOT_HELD`.
    NotHeld,
    /// `GRANT_ENDED`.
    GrantEnded,
    /// `FENCED`, of a destination: the token is below the mark.
    Fenced,
}

/// When an operation was and how it ended.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Index of its invocation.
    pub inv: u64,
    /// Index of its completion; of its invocation if there is none.
    pub ret: u64,
    /// When it was invoked, in nanoseconds.
    pub t_inv: u64,
    /// When it was completed; [`NEVER`] if it may still take effect.
    pub t_ret: u64,
    /// How it ended.
    pub kind: Kind,
    /// Why it was refused.
    pub reason: Reason,
    /// The log index that its answer speaks of; 0 if it told none.
    pub log_index: u64,
}

impl Span {
    /// That it took effect.
    pub fn ok(&self) -> bool {
        self.kind == Kind::Ok
    }

    /// That it may have taken effect.
    pub fn maybe(&self) -> bool {
        self.kind != Kind::Fail
    }
}

/// `acquire`
#[derive(Clone, Debug)]
pub struct Acquire {
    pub at: Span,
    pub session: Session,
    pub request: u64,
    pub resource: Name,
    /// The other resources of a set.
    pub more: Box<[Name]>,
    pub mode: Mode,
    pub slots: u32,
    /// Of a strict handoff: how long it may stay unconfirmed.
    pub barrier_ms: Option<u64>,
    /// That it came back active: raised and confirmed.
    pub confirmed: bool,
    /// Of what was granted; none if it was only queued.
    pub token: Option<u64>,
    pub slot: Option<u32>,
    pub floor: u64,
    /// That the answer was a place in the queue.
    pub queued: bool,
    /// That it proves, after the last fault, that its resource can be had.
    pub last: bool,
}

/// `release` and `confirm`
#[derive(Clone, Debug)]
pub struct Named {
    pub at: Span,
    pub session: Session,
    pub resource: Name,
    pub token: u64,
}

/// `open` and `renew`
#[derive(Clone, Debug)]
pub struct Renewal {
    pub at: Span,
    /// Id 0 of an open that told none.
    pub session: Session,
    pub ttl_ms: u64,
}

/// `close`, `cancel`, `set_value` and `set_ttl`
#[derive(Clone, Debug)]
pub struct Use {
    pub at: Span,
    pub session: Session,
    /// Of `set_ttl`; else 0.
    pub ttl_ms: u64,
}

/// A holder that a read showed.
#[derive(Clone, Debug)]
pub struct Shown {
    pub token: u64,
    pub mode: Mode,
    pub slot: Option<u32>,
    pub active: bool,
}

/// `get`, and `check_token` with one holder or none
#[derive(Clone, Debug)]
pub struct Read {
    pub at: Span,
    pub resource: Name,
    /// Of `check_token`: the token it asked for.
    pub asked: Option<u64>,
    pub holders: Box<[Shown]>,
    pub stale: bool,
}

/// What an administrator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    Revoke,
    Freeze,
    Thaw,
}

/// `revoke`, `freeze` and `thaw`
#[derive(Clone, Debug)]
pub struct Admin {
    pub at: Span,
    pub hand: Hand,
    pub resource: Name,
    /// Of the grant that is revoked, or of the freeze that is thawed.
    pub token: u64,
    /// The token of the fence that came back.
    pub by: Option<u64>,
}

/// `write`, at a destination
#[derive(Clone, Debug)]
pub struct Write {
    pub at: Span,
    pub resource: Name,
    pub token: u64,
    pub slot: Option<u32>,
    pub element: Name,
}

/// What the nemesis or the harness did.
#[derive(Clone, Debug)]
pub struct Fault {
    pub index: u64,
    pub time: u64,
    pub f: String,
    pub outcome: String,
}

/// What an event of the audit feed says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    SessionOpened,
    SessionEnded,
    Queued,
    Granted,
    Activated,
    ValueChanged,
    Asked,
    Ended,
    LeftQueue,
    Reopened,
    Frozen,
    Thawed,
    Resized,
    /// Not of the authority: the feed was interrupted here and events are missing.
    Gap,
    /// After a gap, of the state that the feed begins anew with: a grant that is held,
    StateHeld,
    /// a wait, in the order of its queue,
    StateWaits,
    /// a freeze.
    StateFrozen,
}

/// Why a grant, a wait or a session ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    #[default]
    Unspecified,
    Released,
    Closed,
    Expired,
    Revoked,
    Frozen,
    Unconfirmed,
    Cancelled,
    TimedOut,
}

/// A line of `audit.jsonl`
#[derive(Clone, Debug)]
pub struct Event {
    pub index: u64,
    pub ordinal: u32,
    pub kind: EventKind,
    pub resources: Box<[Name]>,
    pub session: Session,
    pub request: u64,
    pub token: u64,
    pub mode: Mode,
    pub slots: u32,
    pub slot: Option<u32>,
    pub floor: u64,
    pub cause: Cause,
}

/// A line of `dest-ledger.jsonl`
#[derive(Clone, Debug)]
pub struct Entry {
    pub seq: u64,
    pub dest: Name,
    pub resource: Name,
    pub token: u64,
    pub floor: u64,
    pub slot: Option<u32>,
    pub session: Session,
    pub element: Option<Name>,
    pub accepted: bool,
    pub reason: Reason,
    pub counter: Option<u64>,
}

/// A line of `nodes/<n>/status.jsonl`
#[derive(Clone, Debug)]
pub struct Status {
    pub node: Name,
    pub time: u64,
    pub cluster: u32,
    pub start: u64,
    pub leads: bool,
    pub term: u64,
    pub vote: Option<u64>,
    pub leader: u64,
    pub commit: u64,
    pub applied: u64,
    pub last_log: u64,
    pub hash_index: u64,
    pub hash: Option<Name>,
}

/// All of it. Operations stand in the order of their completion.
#[derive(Debug, Default)]
pub struct Evidence {
    pub names: Names,
    pub events: u64,
    pub acquires: Vec<Acquire>,
    pub releases: Vec<Named>,
    pub confirms: Vec<Named>,
    pub opens: Vec<Renewal>,
    pub renewals: Vec<Renewal>,
    pub closes: Vec<Use>,
    pub uses: Vec<Use>,
    pub reads: Vec<Read>,
    pub admin: Vec<Admin>,
    pub writes: Vec<Write>,
    pub faults: Vec<Fault>,
    /// By name and then by phase (false: main, true: after the last heal): how many were `ok`.
    pub ok: HashMap<(String, bool), u64>,
    /// None if the run kept no feed.
    pub audit: Option<Vec<Event>>,
    /// None if the run kept no ledger.
    pub ledger: Option<Vec<Entry>>,
    pub statuses: Vec<Status>,
    /// Sessions of the client library, which gives grants back by itself.
    pub libraries: HashSet<Session>,
}
