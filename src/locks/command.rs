//! What goes in: the commands of the log. Every one was checked at the edge, so
//! that names, tokens and bounds are known to be good; whether it may take
//! effect is for the rules to say, in the order of the log.

use std::collections::BTreeMap;

use super::claim::{Claim, Note, Value};
use super::ids::{ClusterId, Millis, OwnerId, RequestId, ResourceName, SessionId, Token};

/// Labels of a session, shown to operators: host, pid, purpose.
pub type Labels = BTreeMap<String, String>;

/// One step of the replicated state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "a variant's sentence speaks for its fields")]
pub enum Command {
    /// Names the authority and sets its limits; takes effect once.
    Bootstrap(Bootstrap),
    /// Opens the owner's session, or sees the live one again.
    OpenSession { owner: OwnerId, ttl: Millis, labels: Labels },
    /// Ends a session with all its grants and waits.
    CloseSession { owner: OwnerId, session: SessionId },
    /// Changes a session's ttl, and sees it.
    SetTtl { header: Header, ttl: Millis },
    /// The leader has seen these sessions renew for the first time in its term.
    MarkSeen { sessions: Vec<SessionId> },
    /// Asks for a grant.
    Acquire { header: Header, claim: Claim, wait: Wait },
    /// Settles an acquire of the same session by its request id.
    Cancel { header: Header, target: RequestId },
    /// The owner has raised the fence at every destination: the grant is active. (I9)
    Confirm { header: Header, resource: ResourceName, token: Token },
    /// The holder changes the value of its grant.
    SetValue { header: Header, resource: ResourceName, token: Token, value: Value },
    /// Gives a grant back.
    Release { header: Header, resource: ResourceName, token: Token },
    /// An administrator ends exactly this grant.
    Revoke { resource: ResourceName, token: Token, note: Note },
    /// An administrator ends all grants on a resource and keeps it closed.
    Freeze { resource: ResourceName, note: Note },
    /// Opens what exactly this freeze keeps closed.
    Thaw { resource: ResourceName, token: Token, note: Note },
    /// An administrator changes the number of slots of a resource in use.
    Resize { resource: ResourceName, slots: u32, note: Note },
    /// Asks the holder to give exactly this grant back within a time.
    AskRelease { resource: ResourceName, token: Token, within: Millis, note: Note },
    /// The leader's deadlines for these sessions have passed. (I2)
    ExpireSessions { sessions: Vec<Overdue> },
    /// The leader's deadlines for these waits have passed.
    ExpireWaits { waits: Vec<WaitId> },
    /// The leader's deadlines for confirming these grants have passed.
    ExpireBarriers { tokens: Vec<Token> },
    /// The leader's timers for the lock delays after these grants have run out.
    EndClosures { tokens: Vec<Token> },
    /// Makes grants that an entry left for the next ones.
    Settle,
}

/// The first command of an authority's life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// Drawn at random by the node that bootstraps.
    pub cluster: ClusterId,
    /// No token at or below it is ever issued; 0 for none.
    pub token_floor: u64,
    /// What may grow how far.
    pub limits: Limits,
}

/// Named bounds of everything that grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Shortest ttl.
    pub ttl_min: Millis,
    /// Longest ttl.
    pub ttl_max: Millis,
    /// Live sessions.
    pub sessions_max: u64,
    /// Grants and waits of one session together.
    pub places_per_session_max: u64,
    /// Waiters on one resource.
    pub waiters_per_resource_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ttl_min: Millis(500),
            ttl_max: Millis(24 * 60 * 60 * 1000),
            sessions_max: 1_000_000,
            places_per_session_max: 10_000,
            waiters_per_resource_max: 10_000,
        }
    }
}

/// Who asks, and under which idempotency key. Section 5 of the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The credential.
    pub owner: OwnerId,
    /// The session that the request belongs to.
    pub session: SessionId,
    /// The idempotency key.
    pub id: RequestId,
    /// The lowest id whose answer the client still awaits; at most `id`.
    pub oldest_outstanding: RequestId,
    /// Up to [`ANSWERED_MAX`] ids above it whose answers the client has.
    pub answered: Vec<RequestId>,
}

/// How many answered ids one request may name.
pub const ANSWERED_MAX: usize = 64;
/// How many outcomes, waits and ranges of finished ids a session keeps.
pub const WINDOW_MAX: usize = 1_024;
/// How long a wait may last.
pub const WAIT_MAX: Millis = Millis(24 * 60 * 60 * 1000);
/// How many labels a session may carry.
pub const LABELS_MAX: usize = 16;

/// What to do when the grant cannot be made at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Refuse with `BUSY`.
    Try,
    /// Stand in the queue for at most this long, counted by every node from when
    /// it applied the entry.
    UpTo(Millis),
}

/// A session whose deadline has passed, and the revision at which the leader
/// last knew it seen: if it was seen later, it is spared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// The session.
    pub session: SessionId,
    /// Log index of the last entry that saw it.
    pub seen: u64,
}

/// Names one wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId {
    /// Whose.
    pub session: SessionId,
    /// Under which request id.
    pub request: RequestId,
}
