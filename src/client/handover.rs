//! A holder is asked to give its grant back. Section 8 of the contract.

use std::time::Duration;

use super::operations::revision;
use crate::locks::Revision;
use crate::wire::v1;

/// Somebody wants what is held. Nothing ends by itself when the time is over: whoever
/// asked may revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// When it was asked, in the authority's history.
    pub at: Revision,
    /// Within which time the grant should be given back, from then.
    pub within: Duration,
    /// Who asked, as they name themselves.
    pub actor: String,
    /// Why.
    pub reason: String,
}

impl From<v1::Asked> for Asked {
    fn from(wire: v1::Asked) -> Self {
        let note = wire.note.unwrap_or_default();
        Self {
            at: wire.at.map(revision).unwrap_or_default(),
            within: Duration::from_millis(wire.within_ms),
            actor: note.actor,
            reason: note.reason,
        }
    }
}
