//! How entries and rounds travel from a leader to the others: Raft, with votes left
//! to the world.

use std::rc::Rc;

use crate::counts::Count;
use crate::network::{Ack, Append, Message, Snapshot};
use crate::node::Node;
use crate::tell;
use crate::time::MS;
use crate::world::World;

/// How many entries one message carries.
const ENTRIES_MAX: usize = 64;

impl Node {
    /// A node that must miss its leader this long before it stands for election.
    pub fn heard(&mut self, world: &mut World) {
        self.election_at = world.now + world.rng.range(150, 400) * MS;
    }

    /// Asks a quorum whether this node still leads, for all that have arrived.
    pub fn begin_round(&mut self, world: &mut World) {
        let Some(leading) = self.leading.as_mut().filter(|_| self.shell.has_term()) else {
            return self.broadcast(world);
        };
        leading.round += 1;
        let number = leading.round;
        self.shell.begin_round(number, self.clock.at(world.now), self.committed as u64);
        self.broadcast(world);
        self.check_round(world);
    }

    fn check_round(&mut self, world: &mut World) {
        let Some(leading) = &self.leading else { return };
        let Some(number) = self.shell.round() else { return };
        let others = leading.confirmed.iter().filter(|round| **round >= number).count();
        if 1 + others >= world.quorum() {
            self.shell.round_confirmed();
            self.serve(world);
        }
    }

    /// Sends everybody what they are not known to have.
    pub fn broadcast(&mut self, world: &mut World) {
        for to in (0..world.profile.nodes).filter(|to| *to != self.id) {
            let Some(leading) = &self.leading else { return };
            let after = leading.next[to];
            let (term, round) = (leading.term, leading.round);
            let behind = after < self.applied().min(self.log.len());
            if behind && world.rng.permille(60) {
                let rows = self.table.rows().collect();
                let log = self.log[..self.applied()].to_vec();
                let snapshot = Snapshot { from: self.id, term, rows, log, round };
                world.send(self.id, to, Message::Snapshot(Rc::new(snapshot)));
                continue;
            }
            let upto = self.log.len().min(after + ENTRIES_MAX);
            let append = Append {
                from: self.id,
                term,
                after,
                after_term: self.term_at(after),
                entries: self.log[after..upto].to_vec(),
                committed: self.committed,
                round,
            };
            world.send(self.id, to, Message::Append(append));
        }
    }

    /// Finds out what a quorum has by now. Only entries of its own term are counted;
    /// those before them are committed with them. (Raft, 5.4.2)
    pub fn advance(&mut self, world: &mut World) {
        let Some(leading) = &self.leading else { return };
        let term = leading.term;
        let mut have = leading.matched.clone();
        have[self.id] = self.log.len();
        have.sort_unstable();
        let upto = have[world.profile.nodes - world.quorum()];
        if upto <= self.committed.min(world.log.last()) || self.term_at(upto) != term {
            return;
        }
        let known = self.committed.min(world.log.last());
        self.committed = self.committed.max(upto);
        for index in known + 1..=upto {
            let entry = Rc::clone(&self.log[index - 1]);
            world.committed(index, &entry, term);
        }
        self.schedule_apply(world);
    }

    /// Takes in that somebody leads `term`. False if it has promised a later one.
    fn follows(&mut self, world: &mut World, from: usize, term: u64) -> bool {
        if term < self.promised {
            return false;
        }
        if term > self.promised {
            self.promised = term;
            self.step_down(world);
        }
        self.hint = Some(from);
        self.heard(world);
        true
    }

    pub fn on_append(&mut self, world: &mut World, append: Append) {
        let Append { from, term, after, after_term, entries, committed, round } = append;
        if !self.follows(world, from, term) {
            let ack = Ack { from: self.id, term: self.promised, matched: None, hint: 0, round: 0 };
            world.send(self.id, from, Message::Ack(ack));
            return;
        }
        let fits = after <= self.log.len() && self.term_at(after) == after_term;
        let matched = fits.then(|| after + entries.len());
        if let Some(matched) = matched {
            self.take_in(world, after, &entries);
            self.committed = self.committed.max(committed.min(matched));
            self.schedule_apply(world);
        }
        let hint = self.committed;
        let ack = Ack { from: self.id, term, matched, hint, round };
        world.send(self.id, from, Message::Ack(ack));
    }

    fn take_in(&mut self, world: &mut World, after: usize, entries: &[Rc<crate::log::LogEntry>]) {
        for (i, entry) in entries.iter().enumerate() {
            let index = after + i + 1;
            if index <= self.log.len() {
                if Rc::ptr_eq(&self.log[index - 1], entry) {
                    continue;
                }
                let lost = self.log.len() - (index - 1);
                world.counts.many(Count::LostProposals, lost as u64);
                let kept = if index > self.committed { Ok(()) } else { Err(String::new()) };
                world.check("I7", kept.map_err(|_| format!("n{} drops {index}", self.id)));
                self.log.truncate(index - 1);
            }
            self.log.push(Rc::clone(entry));
        }
    }

    pub fn on_ack(&mut self, world: &mut World, ack: &Ack) {
        if ack.term > self.promised {
            self.promised = ack.term;
            self.step_down(world);
            return;
        }
        let Some(leading) = self.leading.as_mut().filter(|leading| leading.term == ack.term) else {
            return;
        };
        leading.confirmed[ack.from] = leading.confirmed[ack.from].max(ack.round);
        match ack.matched {
            Some(matched) => {
                leading.matched[ack.from] = leading.matched[ack.from].max(matched);
                leading.next[ack.from] = leading.matched[ack.from];
            }
            None => leading.next[ack.from] = ack.hint.max(leading.matched[ack.from]),
        }
        self.advance(world);
        self.check_round(world);
    }

    pub fn on_snapshot(&mut self, world: &mut World, snapshot: &Snapshot) {
        if !self.follows(world, snapshot.from, snapshot.term) {
            return;
        }
        tell!(world, "n{} is sent a snapshot at {}", self.id, snapshot.log.len());
        self.install(world, snapshot);
        let matched = Some(snapshot.log.len());
        let (term, round) = (snapshot.term, snapshot.round);
        let ack = Ack { from: self.id, term, matched, hint: 0, round };
        world.send(self.id, snapshot.from, Message::Ack(ack));
        self.schedule_apply(world);
    }
}
