//! What can be read from the table. Everything speaks of [`LockTable::position`].

use std::ops::Bound;

use super::claim::Phase;
use super::command::{Labels, Limits, WaitId};
use super::effect::{Outcome, Timer};
use super::hash::StateHash;
use super::ids::{
    ClusterId, Fence, Millis, OwnerId, Position, ResourceName, Revision, SessionId, Token,
};
use super::rows::{ClosureRow, FrozenRow, GrantRow, ResizedRow, SessionRow, WaitRow};
use super::table::{LockTable, Resource};

/// A resource as it is held and waited for.
#[derive(Debug, Clone, Copy)]
pub struct ResourceView<'t> {
    /// Its name.
    pub name: &'t ResourceName,
    table: &'t LockTable,
    resource: &'t Resource,
}

impl<'t> ResourceView<'t> {
    /// Its live grants, by token.
    pub fn holders(&self) -> impl Iterator<Item = &'t GrantRow> + use<'t> {
        let table = self.table;
        self.resource.holders.iter().map(|token| &table.grants[token])
    }

    /// Its live grants with tokens above `after` and up to `to`, by token.
    pub fn holders_between(
        &self,
        after: u64,
        to: u64,
    ) -> impl Iterator<Item = &'t GrantRow> + use<'t> {
        let table = self.table;
        let above = Token::new(after.saturating_add(1)).ok();
        let above = above.into_iter().flat_map(|from| self.resource.holders.range(from..));
        above.take_while(move |token| token.get() <= to).map(|token| &table.grants[token])
    }

    /// How many hold it.
    pub fn holding(&self) -> usize {
        self.resource.holders.len()
    }

    /// Its waiters, in order. (I4)
    pub fn waiters(&self) -> impl Iterator<Item = &'t WaitRow> + use<'t> {
        let table = self.table;
        self.resource.queue.values().map(|wait| &table.waits[wait])
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.resource.queue.len()
    }

    /// How many stand before a wait in this queue.
    pub fn ahead(&self, wait: &WaitRow) -> usize {
        self.resource.queue.range(..wait.queued_at.index).count()
    }

    /// Lock delays that run on it.
    pub fn closures(&self) -> impl Iterator<Item = &'t ClosureRow> + use<'t> {
        let table = self.table;
        self.resource.closures.iter().map(|token| &table.closures[token])
    }

    /// The freeze that keeps it closed.
    pub fn frozen(&self) -> Option<&'t FrozenRow> {
        self.resource.frozen.map(|token| &self.table.frozen[&token])
    }

    /// How many slots it has, while anybody holds or awaits one.
    pub fn slots(&self) -> Option<u32> {
        self.resource.capacity.map(|capacity| capacity.slots)
    }

    /// The change of its number of slots that is in force.
    pub fn resized(&self) -> Option<&'t ResizedRow> {
        self.resource.resized.map(|token| &self.table.resized[&token])
    }
}

/// A session as operators and its owner see it.
#[derive(Debug, Clone, Copy)]
pub struct SessionView<'t> {
    /// Identity, ttl, when last seen in the log, labels.
    pub row: &'t SessionRow,
    /// The last change to its grants and waits.
    pub changed_at: Revision,
    table: &'t LockTable,
}

impl<'t> SessionView<'t> {
    /// Its live grants, by token.
    pub fn grants(&self) -> impl ExactSizeIterator<Item = &'t GrantRow> + use<'t> {
        let table = self.table;
        table.sessions[&self.row.session].grants.iter().map(|token| &table.grants[token])
    }

    /// How much ends with it: resources that it holds or waits for, and outcomes that it
    /// keeps.
    pub fn weight(&self) -> usize {
        let live = &self.table.sessions[&self.row.session];
        live.places.len() + live.window.outcomes.len()
    }

    /// Its waits, by request id.
    pub fn waits(&self) -> impl ExactSizeIterator<Item = &'t WaitRow> + use<'t> {
        let table = self.table;
        let session = self.row.session;
        table.sessions[&session]
            .waits
            .iter()
            .map(move |&request| &table.waits[&WaitId { session, request }])
    }
}

impl LockTable {
    /// The last entry applied.
    pub const fn position(&self) -> Position {
        self.meta.position
    }

    /// The authority's identity, once bootstrapped.
    pub const fn cluster(&self) -> Option<ClusterId> {
        self.meta.cluster
    }

    /// The limits in force.
    pub const fn limits(&self) -> &Limits {
        &self.meta.limits
    }

    /// The highest token issued so far, 0 for none. (I1)
    pub const fn token(&self) -> u64 {
        self.meta.token
    }

    /// Over all rows. Equal on replicas at the same position. (I10)
    pub const fn state_hash(&self) -> StateHash {
        self.hash
    }

    /// How many sessions, grants and waits are live.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.sessions.len(), self.grants.len(), self.waits.len())
    }

    /// A live session.
    pub fn session(&self, session: SessionId) -> Option<SessionView<'_>> {
        let live = self.sessions.get(&session)?;
        Some(SessionView { row: &live.row, changed_at: live.window.changed_at, table: self })
    }

    /// A live session, if it is this owner's.
    pub fn owned_session(&self, owner: OwnerId, session: SessionId) -> Option<SessionView<'_>> {
        self.session(session).filter(|view| view.row.owner == owner)
    }

    /// The live sessions above an id, in order.
    pub fn sessions_after(&self, after: SessionId) -> impl Iterator<Item = SessionView<'_>> {
        let above = (Bound::Excluded(after), Bound::Unbounded);
        let ids = self.sessions.range(above).map(|(id, _)| *id);
        ids.filter_map(|id| self.session(id))
    }

    /// A live grant.
    pub fn grant(&self, token: Token) -> Option<&GrantRow> {
        self.grants.get(&token)
    }

    /// The grant, if it is live on this resource; active or not.
    pub fn live_grant_on(&self, name: &ResourceName, token: Token) -> Option<&GrantRow> {
        self.grant(token).filter(|grant| grant.names.contains(name))
    }

    /// A claim in its queues.
    pub fn wait(&self, wait: WaitId) -> Option<&WaitRow> {
        self.waits.get(&wait)
    }

    /// All that runs by time beside sessions, with its whole length.
    pub fn timers(&self) -> impl Iterator<Item = (Timer, Millis)> {
        let waits = self.waits.values().map(|w| (Timer::Wait(w.wait), w.deadline));
        let barriers = self.grants.values().filter_map(|grant| match grant.phase {
            Phase::Active => None,
            Phase::Barrier { deadline } => Some((Timer::Barrier(grant.token), deadline)),
        });
        let closures = self.closures.values().map(|c| (Timer::Closure(c.token), c.delay));
        let left = (!self.unsettled.is_empty()).then_some((Timer::Settle, Millis(0)));
        waits.chain(barriers).chain(closures).chain(left)
    }

    /// A resource, if it is held or waited for.
    pub fn resource(&self, name: &ResourceName) -> Option<ResourceView<'_>> {
        let (name, resource) = self.resources.get_key_value(name)?;
        Some(ResourceView { name, table: self, resource })
    }

    /// Resources whose names begin with `prefix`, after `after`, in order. Costs as
    /// much as it finds.
    pub fn resources_with_prefix<'t>(
        &'t self,
        prefix: &'t str,
        after: Option<&ResourceName>,
    ) -> impl Iterator<Item = ResourceView<'t>> {
        let start = ResourceName::new(prefix).ok();
        let from = match (after, &start) {
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(start)) => Bound::Included(start),
            (None, None) => Bound::Unbounded,
        };
        let found = self.resources.range::<ResourceName, _>((from, Bound::Unbounded));
        found
            .map(|(name, resource)| ResourceView { name, table: self, resource })
            .take_while(move |view| view.name.as_str().starts_with(prefix))
    }

    /// The kept outcome of a finished request, as it stands now.
    pub fn outcome_of(&self, request: WaitId) -> Option<Outcome> {
        let window = &self.sessions.get(&request.session)?.window;
        let finished = window.outcomes.get(&request.request)?;
        Some(self.current(&finished.outcome))
    }

    /// The labels of a session that holds or waits.
    pub fn labels(&self, session: SessionId) -> Option<&Labels> {
        self.sessions.get(&session).map(|s| &s.row.labels)
    }

    /// The fence that travels with writes under a grant.
    pub fn fence(&self, grant: &GrantRow, resource: &ResourceName) -> Option<Fence> {
        let (token, floor) = (grant.token, grant.floor);
        let (resource, slot) = (resource.clone(), grant.slot);
        Some(Fence { cluster: self.meta.cluster?, resource, slot, token, floor })
    }
}
