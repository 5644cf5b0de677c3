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
            let distinct: BTreeSet<_> = slots.iter().collect();
            if distinct.len() != slots.len() {
                wrong.push(format!("[I3] two holders of one slot of {name}"));
            }
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

    /// (I4) Nobody waits for what could be granted, but those whom the next entry grants.
    fn check_queues(&self, wrong: &mut Vec<String>) {
        for name in self.grantable() {
            if !self.unsettled.contains(&name) {
                wrong.push(format!("[I4] the first waiter of {name} could be granted"));
            }
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
