//! Every invariant of the table, checked whole. For tests and the simulation: it
//! costs as much as the table is large.

use std::collections::{BTreeMap, BTreeSet};

use super::claim::Mode;
use super::command::WINDOW_MAX;
use super::hash::{RowHash, StateHash};
use super::ids::ResourceName;
use super::session::Place;
use super::table::{LockTable, Resource};

impl LockTable {
    /// Says what does not hold, naming the invariant; empty if all is well.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        self.check_tokens(&mut wrong);
        self.check_resources(&mut wrong);
        self.check_sessions(&mut wrong);
        self.check_queues(&mut wrong);
        self.check_hash(&mut wrong);
        wrong
    }

    fn check_tokens(&self, wrong: &mut Vec<String>) {
        let mut last = (0, super::Revision::default());
        for (token, grant) in &self.grants {
            if token.get() > self.meta.token {
                wrong.push(format!("[I1] token {token} is above the counter"));
            }
            if last.0 != 0 && grant.granted_at <= last.1 {
                wrong.push(format!("[I1] token {token} is out of log order"));
            }
            if grant.floor > grant.token {
                wrong.push(format!("[I8] floor above token {token}"));
            }
            last = (token.get(), grant.granted_at);
        }
    }

    /// The records of resources are exactly what grants, waits, closures, freezes and
    /// changes of slots say.
    fn check_resources(&self, wrong: &mut Vec<String>) {
        if self.expected_resources() != self.resources {
            wrong.push("the resources are not what their rows say".into());
        }
        for (name, resource) in &self.resources {
            let modes: Vec<_> = resource.holders.iter().map(|t| self.grants[t].mode).collect();
            for (i, mode) in modes.iter().enumerate() {
                if modes[i + 1..].iter().any(|other| mode.conflicts_with(*other)) {
                    wrong.push(format!("[I3] two holders of {name} that conflict"));
                }
            }
            let slots = resource.holders.iter().filter_map(|token| self.grants[token].slot);
            let slots: Vec<_> = slots.collect();
            let closed = resource.closures.iter().filter_map(|token| self.closures[token].slot);
            let taken: Vec<_> = closed.chain(slots.iter().copied()).collect();
            if taken.iter().collect::<BTreeSet<_>>().len() != taken.len() {
                wrong.push(format!("[I3] a slot of {name} is held twice, or held and closed"));
            }
            self.check_closed(name, resource, wrong);
            self.check_floors(name, resource, wrong);
            // After a change to fewer, those who hold more leave one by one.
            if let Some(capacity) = resource.capacity
                && resource.resized.is_none()
                && (slots.len() > capacity.slots as usize
                    || slots.iter().any(|slot| *slot >= capacity.slots))
            {
                wrong
                    .push(format!("[I3] more holders of {name} than its {} slots", capacity.slots));
            }
        }
        for grant in self.grants.values() {
            if grant.names.len() > 1 && grant.mode != Mode::Exclusive {
                wrong.push(format!("[I3] a set that is not exclusive: {}", grant.token));
            }
            if grant.slot.is_some() != grant.mode.slots().is_some() {
                wrong.push(format!("[I3] a slot without slots, or none: {}", grant.token));
            }
        }
    }

    /// Nobody holds what is frozen, nor what a lock delay keeps from its mode.
    fn check_closed(&self, name: &ResourceName, resource: &Resource, wrong: &mut Vec<String>) {
        if resource.frozen.is_some() && !resource.holders.is_empty() {
            wrong.push(format!("a holder of {name}, which is frozen"));
        }
        let held = resource.holders.iter().map(|token| self.grants[token].mode);
        let closed: Vec<_> = resource.closures.iter().map(|t| self.closures[t].mode).collect();
        if held.into_iter().any(|mode| closed.iter().any(|other| mode.conflicts_with(*other))) {
            wrong.push(format!("a holder of {name}, which a lock delay closes to its mode"));
        }
    }

    /// (I8) No holder's floor fences out another one, whatever its phase.
    fn check_floors(&self, name: &ResourceName, resource: &Resource, wrong: &mut Vec<String>) {
        let Some(lowest) = resource.holders.first() else { return };
        for token in &resource.holders {
            if self.grants[token].floor > *lowest {
                wrong.push(format!("[I8] the floor of {token} fences {lowest} out of {name}"));
            }
        }
    }

    fn expected_resources(&self) -> BTreeMap<ResourceName, Resource> {
        let mut expected: BTreeMap<ResourceName, Resource> = BTreeMap::new();
        for (token, grant) in &self.grants {
            for name in &grant.names {
                let resource = expected.entry(name.clone()).or_default();
                resource.holders.insert(*token);
                resource.use_slots(grant.mode);
                grant.slot.into_iter().for_each(|slot| resource.slots.take(slot));
            }
        }
        for (wait, queued) in &self.waits {
            for name in &queued.names {
                let resource = expected.entry(name.clone()).or_default();
                resource.queue.insert(queued.queued_at.index, *wait);
                resource.use_slots(queued.mode);
            }
        }
        for (token, closure) in &self.closures {
            for name in &closure.names {
                let resource = expected.entry(name.clone()).or_default();
                resource.closures.insert(*token);
                closure.slot.into_iter().for_each(|slot| resource.slots.take(slot));
            }
        }
        for (token, frozen) in &self.frozen {
            expected.entry(frozen.name.clone()).or_default().frozen = Some(*token);
        }
        for (token, resized) in &self.resized {
            let resource = expected.entry(resized.name.clone()).or_default();
            resource.resized = Some(*token);
            if let Some(capacity) = &mut resource.capacity {
                capacity.slots = resized.slots;
            }
        }
        expected
    }

    fn check_sessions(&self, wrong: &mut Vec<String>) {
        for (id, session) in &self.sessions {
            if self.owners.get(&session.row.owner) != Some(id) {
                wrong.push(format!("{id} is not its owner's session"));
            }
            let held = session.grants.iter().flat_map(|token| {
                self.grants[token].names.iter().map(|name| (name.clone(), Place::Held(*token)))
            });
            let waiting = session.waits.iter().flat_map(|&request| {
                let names = &self.waits[&super::WaitId { session: *id, request }].names;
                names.iter().map(move |name| (name.clone(), Place::Waiting(request)))
            });
            if held.chain(waiting).collect::<BTreeMap<_, _>>() != session.places {
                wrong.push(format!("the places of {id} are not what its grants and waits say"));
            }
            let window = &session.window;
            let kept = window.outcomes.len() + window.finished.len() + session.waits.len();
            if kept > WINDOW_MAX {
                wrong.push(format!("[I6] {id} keeps {kept} outcomes, waits and ranges"));
            }
            if window.outcomes.keys().any(|request| window.is_forgotten(*request)) {
                wrong.push(format!("[I6] {id} keeps an outcome that it has forgotten"));
            }
        }
        let of_sessions: usize = self.sessions.values().map(|s| s.grants.len()).sum();
        if of_sessions != self.grants.len() {
            wrong.push("a grant of a session that has ended".into());
        }
        let of_sessions: usize = self.sessions.values().map(|s| s.waits.len()).sum();
        if of_sessions != self.waits.len() {
            wrong.push("a wait of a session that has ended".into());
        }
        if self.owners.len() != self.sessions.len() {
            wrong.push("an owner without its session".into());
        }
    }

    /// (I4) Nobody waits for what could be granted, but those whom the next entry grants; and
    /// that is known of no others.
    fn check_queues(&self, wrong: &mut Vec<String>) {
        let left = self.grantable();
        for name in left.difference(&self.unsettled) {
            wrong.push(format!("[I4] the first waiter of {name} could be granted"));
        }
        for name in self.unsettled.difference(&left) {
            wrong.push(format!("[I10] {name} is left over, and nobody could be granted it"));
        }
    }

    /// (I10) The incremental hash is that of all rows.
    fn check_hash(&self, wrong: &mut Vec<String>) {
        let mut hash = StateHash::default();
        for row in self.rows() {
            hash.add(RowHash::of(&row));
        }
        if hash != self.hash {
            wrong.push("[I10] the state hash is not that of the rows".into());
        }
    }
}
