//! A table that is checked whole after every entry: its invariants, the rows
//! written through, a restart from them, and a replay of its log.

use std::collections::BTreeMap;

use ringfence::locks::{
    Change, Command, Effects, Event, LockTable, Position, Revision, Row, RowKey, StateHash,
    Switches, Term,
};

/// A table, its store, and the log that made it.
pub struct Checked {
    table: LockTable,
    /// What the store holds: only what `changes` told it.
    rows: BTreeMap<RowKey, Row>,
    log: Vec<(Position, Option<Command>)>,
    term: Term,
    switches: Switches,
}

impl Checked {
    /// Before the first entry, in term 1.
    pub fn new(switches: Switches) -> Self {
        let table = switched(LockTable::new(), switches);
        Self { table, rows: BTreeMap::new(), log: Vec::new(), term: Term(1), switches }
    }

    /// The table, to look at.
    pub const fn table(&self) -> &LockTable {
        &self.table
    }

    /// The rows that the store holds.
    pub const fn rows(&self) -> &BTreeMap<RowKey, Row> {
        &self.rows
    }

    /// The term of the entries that follow.
    pub const fn set_term(&mut self, term: Term) {
        self.term = term;
    }

    /// Applies the next entry of the log; `None` is a blank one. To be followed by
    /// [`Checked::check`].
    pub fn apply(&mut self, command: Option<Command>) -> Effects {
        let at = Position { term: self.term, index: self.table.position().index + 1 };
        let effects = match &command {
            Some(command) => self.table.apply(at, command),
            None => self.table.pass(at),
        };
        self.log.push((at, command));
        ordinals_count_up(at, &effects.events);
        for change in &effects.changes {
            match change {
                Change::Put(row) => drop(self.rows.insert(row.key(), row.clone())),
                Change::Delete(key) => {
                    assert!(self.rows.remove(key).is_some(), "deletes {key:?}, which is not there");
                }
            }
        }
        effects
    }

    /// Goes on with a table made of the stored rows, as a restart does.
    ///
    /// # Errors
    /// The rows do not make a table.
    pub fn restart(&mut self) -> Result<(), String> {
        let rows = self.rows.values().cloned();
        let loaded = LockTable::from_rows(rows).map_err(|e| e.to_string())?;
        self.table = switched(loaded, self.switches);
        Ok(())
    }

    /// The hash of a second table that applies the whole log from its beginning. [I10]
    pub fn replayed(&self) -> StateHash {
        let mut other = switched(LockTable::new(), self.switches);
        for (at, command) in &self.log {
            match command {
                Some(command) => other.apply(*at, command),
                None => other.pass(*at),
            };
        }
        other.state_hash()
    }

    /// Says what does not hold.
    ///
    /// # Errors
    /// A broken invariant; rows that were not written through; rows that make another
    /// table.
    pub fn check(&self) -> Result<(), String> {
        let wrong = self.table.check();
        if !wrong.is_empty() {
            return Err(wrong.join("; "));
        }
        let expected: Vec<Row> = self.table.rows().collect();
        if !self.log.is_empty() && !self.rows.values().eq(&expected) {
            return Err("the rows written through are not those of the table".into());
        }
        let loaded = LockTable::from_rows(expected.iter().cloned()).map_err(|e| e.to_string())?;
        if !loaded.rows().eq(expected) {
            return Err("a table made of the rows has other rows".into());
        }
        if loaded.state_hash() != self.table.state_hash() {
            return Err("[I10] a table made of the rows has another hash".into());
        }
        Ok(())
    }
}

#[cfg(feature = "switches")]
fn switched(table: LockTable, switches: Switches) -> LockTable {
    table.with_switches(switches)
}

/// Without the feature there is nothing to switch.
#[cfg(not(feature = "switches"))]
const fn switched(table: LockTable, _: Switches) -> LockTable {
    table
}

/// Events of one entry stand in order, without gaps.
fn ordinals_count_up(at: Position, events: &[Event]) {
    for (ordinal, event) in (0..).zip(events) {
        assert_eq!(event.at, Revision { index: at.index, ordinal });
    }
}
