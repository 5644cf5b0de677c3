//! The state as rows: what is written through behind the log, what a snapshot
//! consists of, and what the state hash is taken over.
//!
//! Resources have no row: who holds what and who waits is rebuilt from grants and
//! waits, so that a resource nobody holds or waits for costs nothing. What else is
//! known of one (a lock delay that runs, a freeze, another number of slots) has a row
//! for as long as it is so, under the token it was given.

use super::claim::{Mode, Note, Phase, Terms, Value};
use super::command::{Labels, Limits, WaitId};
use super::effect::Outcome;
use super::ids::{
    ClusterId, Millis, OwnerId, Position, RequestId, ResourceName, Revision, SessionId, Term, Token,
};

/// One row to write or to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The row has this content now.
    Put(Row),
    /// The row is gone.
    Delete(RowKey),
}

/// Names a row. The order is that of the rows in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    /// The one [`MetaRow`].
    Meta,
    /// A [`SessionRow`].
    Session(SessionId),
    /// A [`WindowRow`].
    Window(SessionId),
    /// An [`OutcomeRow`].
    Outcome(SessionId, RequestId),
    /// A [`GrantRow`].
    Grant(Token),
    /// A [`WaitRow`].
    Wait(WaitId),
    /// A [`ClosureRow`], by the token of the grant that ended.
    Closure(Token),
    /// A [`FrozenRow`], by its own token.
    Frozen(Token),
    /// A [`ResizedRow`], by its own token.
    Resized(Token),
}

/// One row with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// See [`MetaRow`].
    Meta(MetaRow),
    /// See [`SessionRow`].
    Session(SessionRow),
    /// See [`WindowRow`].
    Window(WindowRow),
    /// See [`OutcomeRow`].
    Outcome(OutcomeRow),
    /// See [`GrantRow`].
    Grant(GrantRow),
    /// See [`WaitRow`].
    Wait(WaitRow),
    /// See [`ClosureRow`].
    Closure(ClosureRow),
    /// See [`FrozenRow`].
    Frozen(FrozenRow),
    /// See [`ResizedRow`].
    Resized(ResizedRow),
}

impl Row {
    /// The row's name.
    pub const fn key(&self) -> RowKey {
        match self {
            Self::Meta(_) => RowKey::Meta,
            Self::Session(row) => RowKey::Session(row.session),
            Self::Window(row) => RowKey::Window(row.session),
            Self::Outcome(row) => RowKey::Outcome(row.session, row.request),
            Self::Grant(row) => RowKey::Grant(row.token),
            Self::Wait(row) => RowKey::Wait(row.wait),
            Self::Closure(row) => RowKey::Closure(row.token),
            Self::Frozen(row) => RowKey::Frozen(row.token),
            Self::Resized(row) => RowKey::Resized(row.token),
        }
    }
}

/// Where the table stands, and the one token counter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetaRow {
    /// The authority's identity, once bootstrapped.
    pub cluster: Option<ClusterId>,
    /// The last entry applied.
    pub position: Position,
    /// The highest token issued so far, 0 for none. Never falls. (I1)
    pub token: u64,
    /// The limits in force.
    pub limits: Limits,
}

/// A live session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// Its id.
    pub session: SessionId,
    /// Its owner's credential.
    pub owner: OwnerId,
    /// The ttl in force.
    pub ttl: Millis,
    /// Term and index of the last entry that saw it.
    pub seen: Position,
    /// Shown to operators.
    pub labels: Labels,
}

/// How far a session's requests are settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowRow {
    /// The session.
    pub session: SessionId,
    /// The highest `oldest_outstanding` received; ids below it are forgotten.
    pub floor: RequestId,
    /// Ranges (first, last) of finished ids at or above the floor whose outcome
    /// is no longer kept; ascending, apart from each other.
    pub finished: Vec<(RequestId, RequestId)>,
    /// The last change to the session's grants and waits.
    pub changed_at: Revision,
}

/// A finished request whose answer may still be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRow {
    /// The session.
    pub session: SessionId,
    /// The request.
    pub request: RequestId,
    /// Of the request's contents; `None` for a cancel that came before its
    /// acquire.
    pub fingerprint: Option<u64>,
    /// The answer.
    pub outcome: Outcome,
}

/// A live grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Its fencing token.
    pub token: Token,
    /// What a destination's mark is raised to.
    pub floor: Token,
    /// Who holds it, and the request that asked for it.
    pub wait: WaitId,
    /// The names, ascending.
    pub names: Vec<ResourceName>,
    /// How they are held.
    pub mode: Mode,
    /// When it was granted.
    pub granted_at: Revision,
    /// Its slot, of a slotted resource.
    pub slot: Option<u32>,
    /// Whether it is active or has yet to be confirmed. (I9)
    pub phase: Phase,
    /// How long its names (its slot) stay closed after its expiry or revoke.
    pub lock_delay: Millis,
    /// What its holder shows.
    pub value: Value,
    /// That its holder was asked to give it back.
    pub asked: Option<Asked>,
}

/// A holder was asked to give its grant back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// When.
    pub at: Revision,
    /// Within which time.
    pub within: Millis,
    /// By whom and why.
    pub note: Note,
}

/// A claim in its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitRow {
    /// Whose, and under which request id.
    pub wait: WaitId,
    /// Of the request's contents.
    pub fingerprint: u64,
    /// The names, ascending.
    pub names: Vec<ResourceName>,
    /// How they are asked for.
    pub mode: Mode,
    /// How long it may wait, from when each node applied it.
    pub deadline: Millis,
    /// When it was queued; its place in every queue it stands in.
    pub queued_at: Revision,
    /// What else is agreed.
    pub terms: Terms,
}

/// A lock delay that runs: for destinations that cannot check tokens, names (of slots:
/// the slot) stay closed for a while after a grant's expiry or revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosureRow {
    /// Of the grant that ended.
    pub token: Token,
    /// Its names.
    pub names: Vec<ResourceName>,
    /// Its mode: only what conflicts with it is kept out.
    pub mode: Mode,
    /// Its slot: only that is closed to other slot holders.
    pub slot: Option<u32>,
    /// How long, from when each node applied the end of the grant.
    pub delay: Millis,
    /// When the grant ended.
    pub since: Revision,
}

/// A resource that an administrator keeps closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrozenRow {
    /// Shuts out every earlier holder at destinations, and names the freeze.
    pub token: Token,
    /// The resource.
    pub name: ResourceName,
    /// By whom and why.
    pub note: Note,
    /// When.
    pub since: Revision,
}

/// A resource in use has another number of slots than its users named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizedRow {
    /// Issued by the change.
    pub token: Token,
    /// The resource.
    pub name: ResourceName,
    /// How many slots it has, until nobody holds or awaits one.
    pub slots: u32,
    /// By whom and why.
    pub note: Note,
    /// When.
    pub since: Revision,
}

/// The term of the last entry, for callers that only need that.
impl MetaRow {
    /// See [`Position::term`].
    pub const fn term(&self) -> Term {
        self.position.term
    }
}
