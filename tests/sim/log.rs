//! The idealised replicated log: what is committed, once and for good, and the table
//! that it makes. Nodes are compared with it.

use std::rc::Rc;

use ringfence::locks::{Command, Effects, LockTable, Outcome, Position, StateHash, Switches, Term};

use crate::time::Micros;

/// One entry. Blank ones carry no command.
pub struct LogEntry {
    pub term: u64,
    pub command: Option<Command>,
}

impl LogEntry {
    pub fn apply(&self, table: &mut LockTable, index: u64) -> Effects {
        let at = Position { term: Term(self.term), index };
        match &self.command {
            Some(command) => table.apply(at, command),
            None => table.pass(at),
        }
    }
}

/// Everything committed so far, and what came of it.
pub struct CommittedLog {
    pub entries: Vec<Rc<LogEntry>>,
    pub table: LockTable,
    pub hashes: Vec<StateHash>,
    pub outcomes: Vec<Outcome>,
}

/// An entry that has just been committed.
pub struct Committed<'a> {
    pub now: Micros,
    pub at: Position,
    pub command: Option<&'a Command>,
    pub effects: &'a Effects,
    /// After it.
    pub table: &'a LockTable,
}

impl CommittedLog {
    pub fn new(switches: Switches) -> Self {
        let table = LockTable::new().with_switches(switches);
        Self { entries: Vec::new(), table, hashes: Vec::new(), outcomes: Vec::new() }
    }

    pub fn last(&self) -> usize {
        self.entries.len()
    }

    pub fn commit(&mut self, entry: &Rc<LogEntry>) -> Effects {
        self.entries.push(Rc::clone(entry));
        let effects = entry.apply(&mut self.table, self.entries.len() as u64);
        self.hashes.push(self.table.state_hash());
        self.outcomes.push(effects.outcome.clone());
        effects
    }

    /// The state hash after the entry at an index; before the first one, of an empty
    /// table.
    pub fn hash_at(&self, index: u64) -> StateHash {
        match index {
            0 => LockTable::new().state_hash(),
            at => self.hashes[at as usize - 1],
        }
    }
}
