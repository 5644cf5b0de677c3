//! Every invariant of the table, checked whole. For tests and the simulation: it
//! costs as much as the table is large.

use std::collections::BTreeMap;

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

    /// The records of resources are exactly what grants and waits say.
    fn check_resources(&self, wrong: &mut Vec<String>) {
        let mut expected: BTreeMap<ResourceName, Resource> = BTreeMap::new();
        for (token, grant) in &self.grants {
            for name in &grant.names {
                expected.entry(name.clone()).or_default().holders.insert(*token);
            }
        }
        for (wait, queued) in &self.waits {
            for name in &queued.names {
                let queue = &mut expected.entry(name.clone()).or_default().queue;
                queue.insert(queued.queued_at.index, *wait);
            }
        }
        if expected != self.resources {
            wrong.push("the resources are not what grants and waits say".into());
        }
        for (name, resource) in &self.resources {
            let modes: Vec<_> = resource.holders.iter().map(|t| self.grants[t].mode).collect();
            for (i, mode) in modes.iter().enumerate() {
                if modes[i + 1..].iter().any(|other| mode.conflicts_with(*other)) {
                    wrong.push(format!("[I3] two holders of {name} that conflict"));
                }
            }
        }
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

    /// (I4) Nobody waits for what could be granted.
    fn check_queues(&self, wrong: &mut Vec<String>) {
        for name in self.resources.keys() {
            if let Some(wait) = self.grantable_head(name) {
                wrong.push(format!("[I4] {wait:?} heads {name}, which is free"));
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
