//! The scripted authority's state: the rules themselves, without a log, and what the
//! script does beside its clients. Time is the script's: nothing ends by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence::locks::{
    Bootstrap, Claim, ClusterId, Command, Done, Fact, GrantRow, Header, Invalid, Limits, LockTable,
    Millis, Mode, Note, Outcome, Overdue, OwnerId, Position, Refusal, RequestId, ResourceName,
    SessionId, Term, Terms, Timer, Token, Wait, WaitId,
};
use ringfence::wire::events::event_out;
use ringfence::wire::reason::{Reason, key};
use ringfence::wire::v1;
use tonic::Status;

use crate::authority::{CLUSTER, Manner, Seen};

/// Whoever else there is: a session that no client has.
const RIVAL: OwnerId = OwnerId::new([9; 16]);

pub struct Table {
    pub locks: LockTable,
    index: u64,
    pub rival: SessionId,
    rival_asked: u64,
    pub seen: Vec<Seen>,
    /// Node and kind of call, and how the next so many of them go.
    pub manners: BTreeMap<(usize, &'static str), VecDeque<(Manner, usize)>>,
    pub streams: usize,
    pub owners: BTreeSet<Vec<u8>>,
    /// Everything that happened, for watches.
    pub events: Vec<v1::Event>,
    /// Which nodes keep no event up to which index.
    pub compacted: BTreeMap<usize, u64>,
    /// Nodes that have lost the others: their watches end.
    pub cut_off: BTreeSet<usize>,
    /// Nodes where more happens than they keep, while they tell a state.
    pub outrun: BTreeSet<usize>,
    /// Watches that began before the last cut are at their end.
    pub cuts: usize,
}

impl Table {
    pub fn new() -> Self {
        let mut table = Self {
            locks: LockTable::new(),
            index: 0,
            rival: SessionId(0),
            rival_asked: 0,
            seen: Vec::new(),
            manners: BTreeMap::new(),
            streams: 0,
            owners: BTreeSet::new(),
            events: Vec::new(),
            compacted: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            outrun: BTreeSet::new(),
            cuts: 0,
        };
        let cluster = ClusterId::new(CLUSTER);
        let bootstrap = Bootstrap { cluster, token_floor: 0, limits: Limits::default() };
        table.apply(&Command::Bootstrap(bootstrap)).expect("the first entry");
        let (ttl, labels) = (Millis(60_000), BTreeMap::new());
        let open = Command::OpenSession { owner: RIVAL, ttl, labels };
        match table.apply(&open) {
            Ok(Done::Opened { session, .. }) => table.rival = session,
            other => panic!("{other:?}"),
        }
        table
    }

    /// Applies an entry, and those that it leaves to the next ones.
    pub fn apply(&mut self, command: &Command) -> Outcome {
        self.index += 1;
        let at = Position { term: Term(1), index: self.index };
        let effects = self.locks.apply(at, command);
        self.events.extend(effects.events.iter().map(event_out));
        let settle = |fact: &Fact| matches!(fact, Fact::TimerBegan { timer: Timer::Settle, .. });
        if effects.facts.iter().any(settle) {
            self.apply(&Command::Settle).expect("it settles");
        }
        effects.outcome
    }

    pub fn next_manner(&mut self, node: usize, what: &'static str) -> Manner {
        let Some(queue) = self.manners.get_mut(&(node, what)) else { return Manner::Well };
        let Some((manner, times)) = queue.front_mut() else { return Manner::Well };
        let next = manner.clone();
        *times -= 1;
        if *times == 0 {
            queue.pop_front();
        }
        next
    }

    /// The first grant on a resource.
    pub fn holder(&self, resource: &str) -> Option<&GrantRow> {
        self.locks.resource(&name(resource))?.holders().next()
    }

    pub fn holders(&self, resource: &str) -> Vec<&GrantRow> {
        self.locks.resource(&name(resource)).into_iter().flat_map(|view| view.holders()).collect()
    }

    pub fn waiting(&self, resource: &str) -> usize {
        self.locks.resource(&name(resource)).map_or(0, |view| view.waiting())
    }

    /// Someone else asks for a resource.
    pub fn rival_asks(&mut self, resource: &str, mode: Mode) -> Outcome {
        self.rival_asked += 1;
        let header = header(RIVAL, self.rival, self.rival_asked, self.rival_asked);
        self.apply(&acquire(header, resource, mode, Wait::Try))
    }

    /// Someone else lets go of it, if it is theirs.
    pub fn rival_frees(&mut self, resource: &str) {
        let theirs = self.holders(resource).into_iter();
        let theirs = theirs.filter(|grant| grant.wait.session == self.rival);
        for token in theirs.map(|grant| grant.token).collect::<Vec<_>>() {
            self.rival_asked += 1;
            let header = header(RIVAL, self.rival, self.rival_asked, self.rival_asked);
            let release = Command::Release { header, resource: name(resource), token };
            self.apply(&release).expect("it is theirs");
        }
    }

    /// A grant to this session that no request of its client awaits.
    pub fn stray(&mut self, resource: &str, session: u64) {
        let session = SessionId(session);
        let owner = self.locks.session(session).expect("it is live").row.owner;
        let header = header(owner, session, 1_000_000, 1);
        let stray = acquire(header, resource, Mode::Exclusive, Wait::Try);
        self.apply(&stray).expect("it is free");
    }

    pub fn revoke(&mut self, resource: &str, token: Token) {
        let resource = name(resource);
        let note = note();
        self.apply(&Command::Revoke { resource, token, note }).expect("it is held");
    }

    pub fn end(&mut self, session: u64) {
        let session = SessionId(session);
        let seen = self.locks.session(session).expect("it is live").row.seen.index;
        let sessions = vec![Overdue { session, seen }];
        self.apply(&Command::ExpireSessions { sessions }).expect("it ends");
    }

    /// How an acquire ended; `None` while it is queued.
    pub fn outcome(&self, id: WaitId) -> Option<Outcome> {
        if self.locks.session(id.session).is_none() {
            return Some(Err(Refusal::SessionExpired));
        }
        self.locks.outcome_of(id)
    }
}

pub fn name(resource: &str) -> ResourceName {
    ResourceName::new(resource).expect("a good name")
}

pub fn note() -> Note {
    Note::new("the script", "as it says").expect("a good note")
}

fn header(owner: OwnerId, session: SessionId, id: u64, oldest: u64) -> Header {
    let checked = |id| RequestId::new(id).expect("a good id");
    let (oldest_outstanding, id) = (checked(oldest), checked(id));
    Header { owner, session, id, oldest_outstanding, answered: vec![] }
}

fn acquire(header: Header, resource: &str, mode: Mode, wait: Wait) -> Command {
    let claim = Claim::new(vec![name(resource)], mode, Terms::default()).expect("a good claim");
    Command::Acquire { header, claim, wait }
}

pub fn bad(invalid: &Invalid) -> Status {
    let metadata = [(key::FIELD, invalid.field.to_owned()), (key::BOUND, invalid.bound.to_owned())];
    Reason::InvalidArgument.status(invalid.to_string(), metadata)
}

/// A refusal as the documented reasons and metadata have it.
pub fn refused(refusal: &Refusal) -> Status {
    let of = |resource: &ResourceName| (key::RESOURCE, resource.to_string());
    let with = |token: &Token| (key::TOKEN, token.to_string());
    let (reason, metadata) = match refusal {
        Refusal::SessionExpired => (Reason::SessionExpired, vec![]),
        Refusal::SessionUnknown => (Reason::SessionUnknown, vec![]),
        Refusal::StaleRequest => (Reason::StaleRequest, vec![]),
        Refusal::WindowFull => (Reason::WindowFull, vec![]),
        Refusal::RequestChanged => {
            (Reason::InvalidArgument, vec![(key::FIELD, "request_id".into())])
        }
        Refusal::Busy { holder, waiting } => {
            let holder = holder.map(|token| (key::HOLDER, token.to_string()));
            let waiting = (key::WAITING, waiting.to_string());
            (Reason::Busy, holder.into_iter().chain([waiting]).collect())
        }
        Refusal::AlreadyHeld { resource, token, .. } => {
            (Reason::AlreadyHeld, vec![of(resource), with(token)])
        }
        Refusal::AlreadyWaiting { resource, .. } => (Reason::AlreadyWaiting, vec![of(resource)]),
        Refusal::GrantEnded { token } => (Reason::GrantEnded, vec![with(token)]),
        Refusal::Cancelled => (Reason::Cancelled, vec![]),
        Refusal::WaitTimeout => (Reason::WaitTimeout, vec![]),
        Refusal::NotHeld => (Reason::NotHeld, vec![]),
        Refusal::Deadlock { cycle } => {
            let sessions: Vec<_> = cycle.iter().map(|b| b.session.0.to_string()).collect();
            let resources: Vec<_> = cycle.iter().map(|b| b.resource.to_string()).collect();
            let metadata =
                vec![(key::SESSIONS, sessions.join(",")), (key::RESOURCES, resources.join("\n"))];
            (Reason::Deadlock, metadata)
        }
        Refusal::CapacityMismatch { resource, slots } => {
            (Reason::CapacityMismatch, vec![of(resource), (key::SLOTS, slots.to_string())])
        }
        Refusal::Frozen { resource, token } => (Reason::Frozen, vec![of(resource), with(token)]),
        Refusal::NotBootstrapped
        | Refusal::QueueFull { .. }
        | Refusal::TooEntangled { .. }
        | Refusal::LimitReached { .. }
        | Refusal::TtlOutOfBounds { .. } => panic!("no test comes to {refusal:?}"),
    };
    reason.status("as the rules say", metadata)
}
