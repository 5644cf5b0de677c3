//! The table: everything the authority knows, and the one door through which it
//! changes.

use std::collections::{BTreeMap, BTreeSet};

use super::command::{Command, WaitId};
use super::effect::{Effects, Outcome};
use super::entry::Entry;
use super::hash::{RowHash, StateHash};
use super::ids::{OwnerId, Position, ResourceName, SessionId, Token};
use super::rows::{GrantRow, MetaRow, Row, RowKey, WaitRow};
use super::session::Session;
use super::switches::{Rule, Switches};

/// The replicated state machine: sessions, grants, waits and the one token
/// counter.
///
/// A pure function of the log: every replica that applied the same entries has
/// the same table and the same [`StateHash`]. (I10)
///
/// The caller applies every entry of the log once, in order, commands with
/// [`LockTable::apply`] and all others with [`LockTable::pass`].
#[derive(Debug, Clone)]
pub struct LockTable {
    pub(super) meta: MetaRow,
    /// Live sessions.
    pub(super) sessions: BTreeMap<SessionId, Session>,
    /// The one live session of each owner.
    pub(super) owners: BTreeMap<OwnerId, SessionId>,
    /// Live grants. Tokens ascend in the order of the log. (I1)
    pub(super) grants: BTreeMap<Token, GrantRow>,
    /// Claims in their queues.
    pub(super) waits: BTreeMap<WaitId, WaitRow>,
    /// Resources that are held or waited for; no others. Rebuilt from grants and
    /// waits, never stored.
    pub(super) resources: BTreeMap<ResourceName, Resource>,
    /// Over all rows, kept as they change.
    pub(super) hash: StateHash,
    pub(super) switches: Switches,
}

/// Who holds a resource and who waits for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resource {
    /// Never two that conflict. (I3)
    pub holders: BTreeSet<Token>,
    /// In the order of the log, by the index at which each was queued. (I4)
    pub queue: BTreeMap<u64, WaitId>,
}

impl Default for LockTable {
    fn default() -> Self {
        Self::new()
    }
}

impl LockTable {
    /// An empty table: what stands before the first entry of a log.
    pub fn new() -> Self {
        let mut table = Self::without_rows();
        table.hash.add(RowHash::of(&Row::Meta(table.meta.clone())));
        table
    }

    /// Not even the meta row is in the hash yet.
    pub(super) fn without_rows() -> Self {
        Self {
            meta: MetaRow::default(),
            sessions: BTreeMap::new(),
            owners: BTreeMap::new(),
            grants: BTreeMap::new(),
            waits: BTreeMap::new(),
            resources: BTreeMap::new(),
            hash: StateHash::default(),
            switches: Switches::default(),
        }
    }

    /// Applies a command. Entries are applied in order of their index, each once.
    ///
    /// # Panics
    /// If `at` is not after the last entry: the log is not what Raft promises.
    pub fn apply(&mut self, at: Position, command: &Command) -> Effects {
        let mut entry = Entry::begin(self, at);
        let outcome = entry.command(command);
        entry.finish(outcome)
    }

    /// Passes an entry that carries no command: blank or membership. It counts all
    /// the same: it may be the first of a term.
    ///
    /// # Panics
    /// As [`LockTable::apply`].
    pub fn pass(&mut self, at: Position) -> Effects {
        Entry::begin(self, at).finish(Ok(super::Done::Nothing))
    }

    /// The table with some rules switched off, for tests that show that they would
    /// be missed.
    #[cfg(feature = "switches")]
    #[must_use]
    pub fn with_switches(mut self, switches: Switches) -> Self {
        self.switches = switches;
        self
    }

    pub(super) const fn holds(&self, rule: Rule) -> bool {
        self.switches.hold(rule)
    }

    /// The row of this name as it is now.
    pub(super) fn row(&self, key: RowKey) -> Option<Row> {
        match key {
            RowKey::Meta => Some(Row::Meta(self.meta.clone())),
            RowKey::Session(id) => self.sessions.get(&id).map(|s| Row::Session(s.row.clone())),
            RowKey::Window(id) => self.sessions.get(&id).map(|s| Row::Window(s.window_row())),
            RowKey::Outcome(id, request) => {
                let finished = self.sessions.get(&id)?.window.outcomes.get(&request)?;
                Some(Row::Outcome(finished.row(id, request)))
            }
            RowKey::Grant(token) => self.grants.get(&token).cloned().map(Row::Grant),
            RowKey::Wait(wait) => self.waits.get(&wait).cloned().map(Row::Wait),
        }
    }

    /// The answer as it stands now: a grant is told only while it is live.
    pub(super) fn current(&self, outcome: &Outcome) -> Outcome {
        match outcome {
            Ok(super::Done::Granted { token })
                if !self.grants.contains_key(token) && self.holds(Rule::GrantRecheckedOnRetry) =>
            {
                Err(super::Refusal::GrantEnded { token: *token })
            }
            told => told.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_table_is_an_empty_one() {
        assert_eq!(LockTable::default().check(), Vec::<String>::new());
        assert_eq!(LockTable::default().state_hash(), LockTable::new().state_hash());
    }
}
