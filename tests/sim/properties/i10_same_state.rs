//! [I10] Every replica has the same state at the same index: after applying, after a
//! restart from rows, and after a snapshot.

use ringfence::locks::{LockTable, Outcome, StateHash};

use crate::log::CommittedLog;

#[derive(Default)]
pub struct SameState;

impl SameState {
    pub fn applied(
        &self,
        node: usize,
        table: &LockTable,
        hash: StateHash,
        outcome: &Outcome,
        committed: &Outcome,
    ) -> Result<(), String> {
        let at = table.position().index;
        if table.state_hash() != hash {
            return Err(format!("n{node} has another state at {at}"));
        }
        if outcome != committed {
            return Err(format!("n{node} says {outcome:?} at {at}, not {committed:?}"));
        }
        Ok(())
    }

    pub fn loaded(&self, node: usize, table: &LockTable, log: &CommittedLog) -> Result<(), String> {
        let at = table.position().index;
        if table.state_hash() != log.hash_at(at) {
            return Err(format!("n{node} has loaded another state at {at}"));
        }
        Ok(())
    }
}
