//! One entry of the log while it is applied: collects what it touches, what
//! happens and what the leases must know.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use super::command::{Bootstrap, Command};
use super::effect::{Done, Effects, Event, Fact, Happened, Outcome, Refusal};
use super::hash::RowHash;
use super::ids::{Position, ResourceName, Revision, Token};
use super::rows::{Change, RowKey};
use super::table::LockTable;

/// The application of one entry. Rows are touched before they change, so that
/// their old hash can be taken out.
pub(super) struct Entry<'t> {
    pub table: &'t mut LockTable,
    pub at: Position,
    /// Whether earlier entries left grants for this one.
    pub had_left_over: bool,
    /// Names at which another may be the first, or the first be granted, or no more.
    pub opened: BTreeSet<ResourceName>,
    /// Rows that may have changed, and whether they were there before.
    touched: BTreeMap<RowKey, bool>,
    events: Vec<Event>,
    facts: Vec<Fact>,
}

impl<'t> Entry<'t> {
    pub fn begin(table: &'t mut LockTable, at: Position) -> Self {
        let last = table.meta.position;
        assert!(at.index > last.index, "entries are applied in order: {at:?} after {last:?}");
        assert!(at.term >= last.term, "terms never fall along the log: {at:?} after {last:?}");
        let had_left_over = !table.unsettled.is_empty();
        let (opened, touched) = (BTreeSet::new(), BTreeMap::new());
        let (events, facts) = (Vec::new(), Vec::new());
        let mut entry = Self { table, at, had_left_over, opened, touched, events, facts };
        entry.touch(RowKey::Meta);
        entry.table.meta.position = at;
        if at.term != last.term {
            entry.fact(Fact::TermBegan { term: at.term, previous: last.term });
        }
        entry
    }

    /// Decides what the command does. Every command is decided here.
    pub fn command(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Bootstrap(bootstrap) => self.bootstrap(bootstrap),
            Command::OpenSession { owner, ttl, labels } => self.open_session(*owner, *ttl, labels),
            Command::CloseSession { owner, session } => self.close_session(*owner, *session),
            Command::SetTtl { header, ttl } => self.set_ttl(header, *ttl),
            Command::MarkSeen { sessions } => self.mark_seen(sessions),
            Command::Acquire { header, claim, wait } => self.acquire(header, claim, *wait),
            Command::Cancel { header, target } => self.cancel(header, *target),
            Command::Release { header, resource, token } => self.release(header, resource, *token),
            Command::ExpireSessions { sessions } => self.expire_sessions(sessions),
            Command::ExpireWaits { waits } => self.expire_waits(waits),
            Command::Confirm { header, resource, token } => self.confirm(header, resource, *token),
            Command::SetValue { header, resource, token, value } => {
                self.set_value(header, resource, *token, value)
            }
            Command::Revoke { resource, token, note } => self.revoke(resource, *token, note),
            Command::Freeze { resource, note } => self.freeze(resource, note),
            Command::Thaw { resource, token, note } => self.thaw(resource, *token, note),
            Command::Resize { resource, slots, note } => self.resize(resource, *slots, note),
            Command::AskRelease { resource, token, within, note } => {
                self.ask_release(resource, *token, *within, note)
            }
            Command::ExpireBarriers { tokens } => self.expire_barriers(tokens),
            Command::EndClosures { tokens } => self.end_closures(tokens),
            Command::Settle => Ok(Done::Nothing), // every entry does
        }
    }

    /// Takes the new rows and their hashes in, and hands everything over.
    pub fn finish(self, outcome: Outcome) -> Effects {
        let changes = self.touched.into_iter().filter_map(|(key, was_there)| {
            let Some(row) = self.table.row(key) else {
                return was_there.then_some(Change::Delete(key));
            };
            self.table.hash.add(RowHash::of(&row));
            Some(Change::Put(row))
        });
        let changes = changes.collect();
        Effects { outcome, events: self.events, facts: self.facts, changes }
    }

    /// Says that a row is about to change.
    pub fn touch(&mut self, key: RowKey) {
        if let btree_map::Entry::Vacant(first) = self.touched.entry(key) {
            let row = self.table.row(key);
            first.insert(row.is_some());
            if let Some(row) = row {
                self.table.hash.remove(RowHash::of(&row));
            }
        }
    }

    /// Records that something happened, and says when.
    pub fn happened(&mut self, what: Happened) -> Revision {
        let at = self.revision();
        self.events.push(Event { at, what });
        at
    }

    /// The revision of the next event of this entry.
    pub fn revision(&self) -> Revision {
        let ordinal = u32::try_from(self.events.len()).expect("an entry's events are bounded");
        Revision { index: self.at.index, ordinal }
    }

    pub fn fact(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    /// Names the authority. A second one is refused: the identity never changes.
    fn bootstrap(&mut self, bootstrap: &Bootstrap) -> Outcome {
        let meta = &mut self.table.meta;
        if meta.cluster.is_some() {
            return Err(Refusal::NotBootstrapped);
        }
        meta.cluster = Some(bootstrap.cluster);
        // A floor above the largest token leaves none, as one at it does.
        meta.token = meta.token.max(bootstrap.token_floor.min(Token::MAX));
        meta.limits = bootstrap.limits;
        Ok(Done::Nothing)
    }
}
