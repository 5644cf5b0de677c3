//! What comes out: the answer to the command, what happened in order, facts for
//! the leases, and the rows to write through.

use super::claim::{Mode, Note, Phase, Value};
use super::command::WaitId;
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
    /// The grant is active.
    Confirmed { at: Revision },
    /// The grant carries the value.
    ValueSet { at: Revision },
    /// What an administrator did. Kept for nobody: it belongs to no session.
    Administered(Administered),
}

/// What a command of an administrator did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "a variant's sentence speaks for its fields")]
pub enum Administered {
    /// The grant has ended. With this token and floor its holder can be shut out at
    /// destinations: on each of its names, and in its slot if it had one.
    Revoked { names: Vec<ResourceName>, slot: Option<u32>, token: Token, floor: Token },
    /// Everybody is out, and the resource stays closed. The token is the fence's, floor
    /// included, and names the freeze.
    Frozen { token: Token },
    /// The resource is open again.
    Thawed { at: Revision },
    /// There are `slots` slots now. With this token and floor each of `removed` can be
    /// fenced at destinations once it is empty.
    Resized { slots: u32, token: Token, floor: Token, removed: std::ops::Range<u32> },
    /// The holder will see that it is asked.
    Asked { at: Revision },
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
    AlreadyHeld { resource: ResourceName, token: Token, mode: Mode, phase: Phase },
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
    /// Whether the wait could ever be granted was not found within so many steps.
    TooEntangled { max: u64 },
    /// The wait could never be granted: each of these waits for what the next one
    /// holds or stands before, and the last one for the first.
    Deadlock { cycle: Vec<Blocked> },
    /// The resource is in use with this many slots.
    CapacityMismatch { resource: ResourceName, slots: u32 },
    /// The freeze of this token keeps the resource closed.
    Frozen { resource: ResourceName, token: Token },
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
    /// Shared holders and waiters of one resource.
    Holders,
    /// Lock delays that run on one resource.
    Closures,
    /// Frozen resources.
    Frozen,
}

impl Limit {
    /// One number for rows and hashes; [`Limit::from_code`] reads it.
    pub const fn code(self) -> u8 {
        match self {
            Self::Sessions => 1,
            Self::PlacesPerSession => 2,
            Self::Tokens => 3,
            Self::Holders => 4,
            Self::Closures => 5,
            Self::Frozen => 6,
        }
    }

    /// Reads [`Limit::code`].
    pub fn from_code(code: u64) -> Option<Self> {
        use Limit::{Closures, Frozen, Holders, PlacesPerSession, Sessions, Tokens};
        let all = [Sessions, PlacesPerSession, Tokens, Holders, Closures, Frozen];
        all.into_iter().find(|limit| u64::from(limit.code()) == code)
    }
}

/// One step of a cycle of waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// Who waits.
    pub session: SessionId,
    /// For what.
    pub resource: ResourceName,
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
    Granted { wait: WaitId, names: Vec<ResourceName>, grant: Granted },
    /// A grant was confirmed and is active now.
    Activated { wait: WaitId, names: Vec<ResourceName>, token: Token },
    /// A grant carries another value.
    ValueChanged { wait: WaitId, names: Vec<ResourceName>, token: Token, value: Value },
    /// A holder is asked to give its grant back within a time.
    Asked { wait: WaitId, names: Vec<ResourceName>, token: Token, within: Millis, note: Note },
    /// A grant ended; the names (the slot) stay closed for the delay, if there is one.
    GrantEnded {
        wait: WaitId,
        names: Vec<ResourceName>,
        slot: Option<u32>,
        token: Token,
        cause: GrantEndCause,
        delay: Millis,
    },
    /// The lock delay after a grant is over.
    Reopened { names: Vec<ResourceName>, slot: Option<u32>, token: Token },
    /// A wait left the queue without a grant.
    LeftQueue { wait: WaitId, names: Vec<ResourceName>, cause: LeaveCause },
    /// An administrator keeps a resource closed; its grants ended before.
    Frozen { name: ResourceName, token: Token, note: Note },
    /// The freeze of this token is over.
    Thawed { name: ResourceName, token: Token, note: Note },
    /// A resource has another number of slots.
    Resized { name: ResourceName, slots: u32, token: Token, note: Note },
}

/// A grant as it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Its fencing token.
    pub token: Token,
    /// What destinations raise their marks to.
    pub floor: Token,
    /// How it shares.
    pub mode: Mode,
    /// Its slot, of a slotted resource.
    pub slot: Option<u32>,
    /// Whether it is active or has yet to be confirmed.
    pub phase: Phase,
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
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "a variant's sentence speaks for its fields")]
pub enum GrantEndCause {
    /// Its holder gave it back.
    Released,
    /// Its session ended.
    Session(EndCause),
    /// It was not confirmed in time.
    Unconfirmed,
    /// An administrator ended it; the token `by` shuts it out at destinations.
    Revoked { by: Token, note: Note },
    /// An administrator froze one of its resources under the token `by`.
    Frozen { by: Token },
}

impl GrantEndCause {
    /// Whether the grant's lock delay begins: its holder may not know yet.
    pub const fn is_sudden(&self) -> bool {
        match self {
            Self::Released | Self::Session(EndCause::Closed) => false,
            Self::Session(EndCause::Expired)
            | Self::Unconfirmed
            | Self::Revoked { .. }
            | Self::Frozen { .. } => true,
        }
    }
}

/// Why a wait left the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "a variant's sentence speaks for its fields")]
pub enum LeaveCause {
    /// Cancelled by its request id.
    Cancelled,
    /// Its deadline passed.
    TimedOut,
    /// Its session ended.
    Session(EndCause),
    /// A resource of the set it waits for was frozen under the token `by`.
    Frozen { resource: ResourceName, by: Token },
}

impl LeaveCause {
    /// What the waiting call is told.
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Cancelled => Refusal::Cancelled,
            Self::TimedOut => Refusal::WaitTimeout,
            Self::Session(_) => Refusal::SessionExpired,
            Self::Frozen { resource, by } => {
                Refusal::Frozen { resource: resource.clone(), token: *by }
            }
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
    /// A timer began, on every node anew.
    TimerBegan { timer: Timer, after: Millis },
    /// It is over, whichever way.
    TimerEnded { timer: Timer },
}

/// What runs by time beside sessions. Only the leader's timers end anything, by an
/// entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// How long a wait may last.
    Wait(WaitId),
    /// How long this grant may stay unconfirmed.
    Barrier(Token),
    /// The lock delay after this grant.
    Closure(Token),
    /// Grants are left for the next entry: at once.
    Settle,
}
