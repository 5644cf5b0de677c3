//! The table: everything the authority knows, and the one door through which it
//! changes.

use std::collections::{BTreeMap, BTreeSet};

use super::command::{Command, WaitId};
use super::effect::{Effects, Outcome};
use super::entry::Entry;
use super::hash::{RowHash, StateHash};
use super::ids::{OwnerId, Position, ResourceName, SessionId, Token};
use super::rows::{ClosureRow, FrozenRow, GrantRow, MetaRow, ResizedRow, Row, RowKey, WaitRow};
use super::session::Session;
use super::slots::Slots;
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
    /// Lock delays that run, by the token of the grant that ended.
    pub(super) closures: BTreeMap<Token, ClosureRow>,
    /// What administrators keep closed.
    pub(super) frozen: BTreeMap<Token, FrozenRow>,
    /// Resources in use with another number of slots than their users named.
    pub(super) resized: BTreeMap<Token, ResizedRow>,
    /// Resources of which anything of the above is known; no others. Rebuilt from it,
    /// never stored.
    pub(super) resources: BTreeMap<ResourceName, Resource>,
    /// Resources whose first waiters may be granted: left over for the next entry.
    pub(super) unsettled: BTreeSet<ResourceName>,
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
    /// Slots that are held, or closed by a lock delay.
    pub slots: Slots,
    /// How many slots there are, while anybody holds or awaits one.
    pub capacity: Option<Capacity>,
    /// Lock delays that run. They never conflict with each other nor with holders.
    pub closures: BTreeSet<Token>,
    /// The freeze that keeps it closed.
    pub frozen: Option<Token>,
    /// The change of its number of slots that is in force.
    pub resized: Option<Token>,
}

impl Resource {
    /// Whether nothing is known of it any more.
    pub fn is_idle(&self) -> bool {
        self.holders.is_empty()
            && self.queue.is_empty()
            && self.closures.is_empty()
            && self.frozen.is_none()
            && self.capacity.is_none()
    }
}

/// The number of slots that all users of a resource name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    /// How many slots.
    pub slots: u32,
    /// How many hold or await one: with the last of them the number is forgotten.
    pub users: u64,
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
            closures: BTreeMap::new(),
            frozen: BTreeMap::new(),
            resized: BTreeMap::new(),
            resources: BTreeMap::new(),
            unsettled: BTreeSet::new(),
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
        entry.settle();
        entry.finish(outcome)
    }

    /// Passes an entry that carries no command: blank or membership. It counts all
    /// the same: it may be the first of a term.
    ///
    /// # Panics
    /// As [`LockTable::apply`].
    pub fn pass(&mut self, at: Position) -> Effects {
        let mut entry = Entry::begin(self, at);
        entry.settle();
        entry.finish(Ok(super::Done::Nothing))
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
            RowKey::Closure(token) => self.closures.get(&token).cloned().map(Row::Closure),
            RowKey::Frozen(token) => self.frozen.get(&token).cloned().map(Row::Frozen),
            RowKey::Resized(token) => self.resized.get(&token).cloned().map(Row::Resized),
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
