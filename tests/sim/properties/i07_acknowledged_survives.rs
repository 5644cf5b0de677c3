//! [I7] What was acknowledged survives the loss of any minority of nodes.
//!
//! Nothing is applied, and so nothing is answered, that is not committed (`node`);
//! no node drops a committed entry (`replication`); every later leader commits the
//! same ones (here); what comes back from rows or a snapshot is the state of the
//! log at that index (`i10_same_state`).

use crate::network::Ask;

/// A leader found an entry committed that was committed before.
pub fn same_entry(index: usize, same: bool) -> Result<(), String> {
    if same { Ok(()) } else { Err(format!("another entry was committed at {index}")) }
}

/// Clients name only sessions that were acknowledged: they are never unknown.
pub fn unknown(ask: &Ask) -> Result<(), String> {
    let session = match ask {
        Ask::Renew { session, .. } => session.to_string(),
        Ask::CheckToken { token, .. } => format!("of {token}"),
        Ask::Command(command) => format!("that of {command:?}"),
    };
    Err(format!("session {session} was acknowledged and is unknown"))
}
