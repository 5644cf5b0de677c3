//! What administrators do: revoke, freeze, thaw, resize, ask for a grant back. Section
//! 8 of the contract. Each issues its token before any waiter is granted.

use super::claim::Note;
use super::effect::{
    Administered, Done, GrantEndCause, Happened, LeaveCause, Limit, Outcome, Refusal,
};
use super::entry::Entry;
use super::ids::{Millis, ResourceName, Token};
use super::rows::{Asked, FrozenRow, ResizedRow, RowKey};
use super::switches::Rule;

/// How many resources may be frozen.
pub const FROZEN_MAX: usize = 100_000;

impl Entry<'_> {
    /// Ends exactly the grant that is named, never a newer one.
    pub(super) fn revoke(&mut self, resource: &ResourceName, token: Token, note: &Note) -> Outcome {
        let token = self.revoked(resource, token);
        let grant = self.table.live_grant_on(resource, token).ok_or(Refusal::NotHeld)?;
        let (names, slot) = (grant.names.clone(), grant.slot);
        let by = self.issue_token()?;
        self.end_grant(token, GrantEndCause::Revoked { by, note: note.clone() });
        // Who remains is not shut out with the one that was revoked.
        let remains = self.lowest_holder(resource);
        let remains = remains.filter(|_| self.table.holds(Rule::RevokeFloorSpares));
        let floor = remains.unwrap_or(by);
        Ok(administered(Administered::Revoked { names, slot, token: by, floor }))
    }

    /// Ends all grants on a resource and keeps it closed. Single waiters keep their
    /// places; sets are answered.
    pub(super) fn freeze(&mut self, resource: &ResourceName, note: &Note) -> Outcome {
        if self.table.meta.cluster.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        let known = self.table.resources.get(resource);
        if let Some(token) = known.and_then(|known| known.frozen) {
            return Err(Refusal::Frozen { resource: resource.clone(), token });
        }
        if self.table.frozen.len() >= FROZEN_MAX {
            return Err(Refusal::LimitReached { limit: Limit::Frozen, max: FROZEN_MAX as u64 });
        }
        let holders: Vec<_> = known.iter().flat_map(|r| r.holders.iter().copied()).collect();
        let waits: Vec<_> = known.iter().flat_map(|r| r.queue.values().copied()).collect();
        let by = self.issue_token()?;
        for token in holders {
            self.end_grant(token, GrantEndCause::Frozen { by });
        }
        for wait in waits {
            let queued = &self.table.waits[&wait];
            if queued.names.len() > 1 {
                let fingerprint = Some(queued.fingerprint);
                let cause = LeaveCause::Frozen { resource: resource.clone(), by };
                let refused = Err(cause.refusal());
                self.leave_queue(wait, cause);
                self.record(wait.session, wait.request, fingerprint, refused);
            }
        }
        self.touch(RowKey::Frozen(by));
        let since = self.happened(Happened::Frozen {
            name: resource.clone(),
            token: by,
            note: note.clone(),
        });
        let row = FrozenRow { token: by, name: resource.clone(), note: note.clone(), since };
        self.table.frozen.insert(by, row);
        self.table.change_resource(resource, |r| r.frozen = Some(by));
        self.opened(std::slice::from_ref(resource)); // for what was left over there
        Ok(administered(Administered::Frozen { token: by }))
    }

    /// Opens what exactly this freeze keeps closed.
    pub(super) fn thaw(&mut self, resource: &ResourceName, token: Token, note: &Note) -> Outcome {
        if self.table.frozen.get(&token).is_none_or(|frozen| frozen.name != *resource) {
            return Err(Refusal::NotHeld);
        }
        self.touch(RowKey::Frozen(token));
        self.table.frozen.remove(&token);
        self.table.change_resource(resource, |r| r.frozen = None);
        self.opened(std::slice::from_ref(resource));
        let (name, note) = (resource.clone(), note.clone());
        let at = self.happened(Happened::Thawed { name, token, note });
        Ok(administered(Administered::Thawed { at }))
    }

    /// Changes the number of slots of a resource in use. Fewer take effect as holders
    /// leave.
    pub(super) fn resize(&mut self, resource: &ResourceName, slots: u32, note: &Note) -> Outcome {
        let known = self.table.resources.get(resource).ok_or(Refusal::NotHeld)?;
        let before = known.capacity.ok_or(Refusal::NotHeld)?.slots;
        let last = known.resized;
        let token = self.issue_token()?;
        let floor = self.lowest_holder(resource).unwrap_or(token);
        if let Some(last) = last {
            self.touch(RowKey::Resized(last));
            self.table.resized.remove(&last);
        }
        self.touch(RowKey::Resized(token));
        let (name, note) = (resource.clone(), note.clone());
        let since = self.happened(Happened::Resized { name, slots, token, note: note.clone() });
        let row = ResizedRow { token, name: resource.clone(), slots, note, since };
        self.table.resized.insert(token, row);
        self.table.change_resource(resource, |r| {
            r.resized = Some(token);
            if let Some(capacity) = &mut r.capacity {
                capacity.slots = slots;
            }
        });
        self.opened(std::slice::from_ref(resource));
        let removed = slots..before.max(slots);
        Ok(administered(Administered::Resized { slots, token, floor, removed }))
    }

    /// Tells the holder of exactly this grant that somebody wants it. Nothing ends by
    /// itself when the time is over.
    pub(super) fn ask_release(
        &mut self,
        resource: &ResourceName,
        token: Token,
        within: Millis,
        note: &Note,
    ) -> Outcome {
        let grant = self.table.live_grant_on(resource, token).ok_or(Refusal::NotHeld)?;
        let (wait, names) = (grant.wait, grant.names.clone());
        self.touch(RowKey::Grant(token));
        let asked = note.clone();
        let at = self.happened(Happened::Asked { wait, names, token, within, note: asked });
        self.live_grant(token).asked = Some(Asked { at, within, note: note.clone() });
        self.session_changed(wait, at);
        Ok(administered(Administered::Asked { at }))
    }

    /// The grant that a revoke means: the one that it names.
    fn revoked(&self, resource: &ResourceName, named: Token) -> Token {
        let exact = self.table.holds(Rule::RevokeNamesToken);
        if exact { named } else { self.lowest_holder(resource).unwrap_or(named) }
    }

    fn lowest_holder(&self, resource: &ResourceName) -> Option<Token> {
        self.table.resources.get(resource)?.holders.first().copied()
    }
}

const fn administered(done: Administered) -> Done {
    Done::Administered(done)
}

#[cfg(test)]
mod tests {
    use super::super::{ClusterId, Command, LockTable, Position, Revision, Term};
    use super::*;

    #[test]
    fn so_many_resources_are_frozen_and_no_more() {
        let mut table = LockTable::new();
        table.meta.cluster = Some(ClusterId::new([1; 16]));
        let name = |n| ResourceName::new(&format!("db/{n}")).expect("a good name");
        for n in 1..FROZEN_MAX as u64 {
            let (token, note) = (Token::new(n).expect("small"), Note::default());
            let row = FrozenRow { token, name: name(n), note, since: Revision::default() };
            table.frozen.insert(token, row);
        }
        table.meta.token = FROZEN_MAX as u64;
        let mut freeze = |index, n| {
            let command = Command::Freeze { resource: name(n), note: Note::default() };
            table.apply(Position { term: Term(1), index }, &command).outcome
        };
        assert!(freeze(1, 200_000).is_ok());
        let refused = Refusal::LimitReached { limit: Limit::Frozen, max: 100_000 };
        assert_eq!(freeze(2, 200_001), Err(refused));
    }
}
