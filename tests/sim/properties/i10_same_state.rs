//! [I10] Every replica has the same state at the same index: after applying, after a
//! restart from rows, and after a snapshot.

use ringfence::locks::{LockTable, Outcome};

use crate::log::CommittedLog;

/// A node has applied the entry at its table's position.
pub fn applied(
    node: usize,
    table: &LockTable,
    outcome: &Outcome,
    log: &CommittedLog,
) -> Result<(), String> {
    let at = table.position().index;
    if table.state_hash() != log.hash_at(at) {
        return Err(format!("n{node} has another state at {at}"));
    }
    let committed = &log.outcomes[at as usize - 1];
    if outcome != committed {
        return Err(format!("n{node} says {outcome:?} at {at}, not {committed:?}"));
    }
    Ok(())
}

/// A node has loaded a table from its rows or from a snapshot.
pub fn loaded(node: usize, table: &LockTable, log: &CommittedLog) -> Result<(), String> {
    let at = table.position().index;
    if table.state_hash() != log.hash_at(at) {
        return Err(format!("n{node} has loaded another state at {at}"));
    }
    Ok(())
}
