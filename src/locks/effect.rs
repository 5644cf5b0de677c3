//! What comes out: the answer to the command, what happened in order, facts for
//! the leases, and the rows to write through.

use super::command::{Mode, WaitId};
use super::ids::{Millis, RequestId, ResourceName, Revision, SessionId, Term, Token};
use super::rows::Change;

/// Everything that one entry of the log brought about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effects {
    /// The answer to the command. A refusal by the rules is an outcome too: the
    /// same on every replica.
    pub outcome: Outcome,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// What the leases must know, in order.
    pub facts: Vec<Fact>,
    /// Rows that changed, each once.
    pub changes: Vec<Change>,
}

/// Done or refused; *unknown* is never an outcome of the rules.
pub type Outcome = Result<Done, Refusal>;

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "a variant's sentence speaks for its fields")]
pub enum Done {
    /// Nothing is told: blank entries, bootstrap, marks and expiries.
    Nothing,
    /// The owner's live session; `created` is false when it was live already.
    Opened { session: SessionId, ttl: Millis, created: bool },
    /// The session has ended.
    Closed,
    /// The ttl in force.
    TtlSet { ttl: Millis },
    /// The grant is live.
    Granted { token: Token },
    /// In the queue, behind this many others.
    Queued { ahead: u64 },
    /// The grant was given back.
    Released { at: Revision },
    /// The target will never be granted.
    CancelledTarget,
}

/// Why the rules said no.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "a variant's sentence speaks for its fields")]
pub enum Refusal {
    /// The session has ended, or belongs to another owner.
    SessionExpired,
    /// No entry so far has opened such a session.
    SessionUnknown,
    /// The authority has no identity yet, or has one already.
    NotBootstrapped,
    /// The request id is settled and forgotten: no statement about its effect.
    StaleRequest,
    /// The session keeps [`super::WINDOW_MAX`] outcomes and ranges.
    WindowFull,
    /// The request id was used with other contents.
    RequestChanged,
    /// Held by another, and the request would not wait.
    Busy { holder: Option<Token>, waiting: u64 },
    /// The session holds it already, under another request id.
    AlreadyHeld { resource: ResourceName, token: Token, mode: Mode },
    /// The session waits for it already, under this request id.
    AlreadyWaiting { resource: ResourceName, request: RequestId },
    /// The grant of this request was made and has ended.
    GrantEnded { token: Token },
    /// The request was cancelled.
    Cancelled,
    /// The wait's deadline passed.
    WaitTimeout,
    /// No such grant of this session: nothing was changed. (I5)
    NotHeld,
    /// The resource has as many waiters as it may.
    QueueFull { max: u64 },
    /// A named limit is reached.
    LimitReached { limit: Limit, max: u64 },
    /// The ttl is outside the bounds in force.
    TtlOutOfBounds { min: Millis, max: Millis },
}

/// The limits that refuse with `LIMIT_REACHED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Live sessions.
    Sessions,
    /// Grants and waits of one session.
    PlacesPerSession,
    /// All tokens below 2^53 are used up.
    Tokens,
}

/// Something that happened to a session or to resources, at a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Revision,
    /// What.
    pub what: Happened,
}

/// What happened. Names are those of the claim, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "a variant's sentence speaks for its fields")]
pub enum Happened {
    /// A session began.
    Opened { session: SessionId },
    /// A session ended, after all its grants and waits.
    Ended { session: SessionId, cause: EndCause },
    /// A claim stands in its queues.
    Queued { wait: WaitId, names: Vec<ResourceName>, mode: Mode },
    /// A claim was granted.
    Granted { wait: WaitId, names: Vec<ResourceName>, mode: Mode, token: Token },
    /// A grant ended.
    GrantEnded { wait: WaitId, names: Vec<ResourceName>, token: Token, cause: GrantEndCause },
    /// A wait left the queue without a grant.
    LeftQueue { wait: WaitId, names: Vec<ResourceName>, cause: LeaveCause },
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// Its owner closed it.
    Closed,
    /// Its deadline passed.
    Expired,
}

/// Why a grant ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantEndCause {
    /// Its holder gave it back.
    Released,
    /// Its session ended.
    Session(EndCause),
}

/// Why a wait left the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaveCause {
    /// Cancelled by its request id.
    Cancelled,
    /// Its deadline passed.
    TimedOut,
    /// Its session ended.
    Session(EndCause),
}

impl LeaveCause {
    /// What the waiting call is told.
    pub const fn refusal(self) -> Refusal {
        match self {
            Self::Cancelled => Refusal::Cancelled,
            Self::TimedOut => Refusal::WaitTimeout,
            Self::Session(_) => Refusal::SessionExpired,
        }
    }
}

/// A fact that moves deadlines. Section 3 of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "a variant's sentence speaks for its fields")]
pub enum Fact {
    /// The entry is the first of a term, and the entry just before it was of
    /// `previous`.
    TermBegan { term: Term, previous: Term },
    /// The entry saw the session, at this term and index.
    Seen { session: SessionId, ttl: Millis, term: Term, index: u64 },
    /// The session is no more.
    Ended { session: SessionId },
    /// A wait with a deadline began.
    WaitBegan { wait: WaitId, deadline: Millis },
    /// It is over, whichever way.
    WaitEnded { wait: WaitId },
}
