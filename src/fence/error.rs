//! The answers of a destination that did not apply a write.

use std::error::Error;
use std::fmt;

use super::rule::Refusal;
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// What a store's driver said.
type Source = Box<dyn Error + Send + Sync>;

/// Nothing was written, unless the transaction is committed in spite of this:
/// roll it back.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// A later owner has been here. The caller's authority is over: stop.
    Stale {
        /// The protected resource.
        resource: ResourceName,
        /// The token that came with the write.
        token: Token,
        /// The high-water mark that refused it.
        mark: Token,
        /// The slot whose mark that is; none for the resource's.
        slot: Option<u32>,
    },
    /// A malformed fence: no authority makes one.
    FloorAboveToken {
        /// The protected resource.
        resource: ResourceName,
        /// The token that came with the write.
        token: Token,
        /// The floor that came with it.
        floor: Token,
    },
    /// The fences of one write are none, or name a resource twice.
    Set,
    /// A guarded table was written in a transaction that has checked no fence of the row's
    /// resource, or with another epoch than the one that was checked.
    Unchecked {
        /// What the row belongs to.
        resource: ResourceName,
    },
    /// The mark belongs to another authority: see the adapter's `adopt`.
    ForeignCluster {
        /// The protected resource.
        resource: ResourceName,
        /// The authority that the mark belongs to.
        known: ClusterId,
        /// The authority that issued the token.
        offered: ClusterId,
    },
    /// A check outside a transaction protects nothing.
    NoTransaction,
    /// With this setting of the store the mark could fall in a power loss.
    NotDurable {
        /// The setting and what it would have to be.
        setting: String,
    },
    /// The store has no marks yet, or those of an older version: run `install`.
    SchemaMissing,
    /// The store was set up by a newer version, which this one does not know.
    SchemaNewer {
        /// The store's schema version.
        found: u32,
        /// The newest that this version knows.
        known: u32,
    },
    /// Another transaction has held the mark for too long. The fate of nobody's
    /// authority is decided by it: try again, or report the destination.
    Busy(Source),
    /// The store gave up this transaction for a concurrent one: run the whole of
    /// it again, from its beginning.
    Conflict(Source),
    /// The store failed. After a failed commit the write may or may not have
    /// been applied.
    Store(Source),
}

impl FenceError {
    /// Puts names to the rule's refusal of `fence`.
    pub(crate) fn refused(fence: &Fence, refusal: Refusal) -> Self {
        let Fence { cluster: offered, resource, slot: _, token, floor } = fence.clone();
        match refusal {
            Refusal::Stale { mark, slot } => Self::Stale { resource, token, mark, slot },
            Refusal::FloorAboveToken => Self::FloorAboveToken { resource, token, floor },
            Refusal::ForeignCluster { known } => Self::ForeignCluster { resource, known, offered },
        }
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { resource, token, mark, slot } => {
                write!(f, "stale fence: token {token} is below the mark {mark} of {resource}")?;
                slot.map_or(Ok(()), |slot| write!(f, " (slot {slot})"))
            }
            Self::FloorAboveToken { resource, token, floor } => {
                write!(f, "malformed fence for {resource}: floor {floor} is above token {token}")
            }
            Self::ForeignCluster { resource, known, offered } => write!(
                f,
                "fence of another authority: the mark of {resource} belongs to {known}, \
                 the token is from {offered}; an administrator must adopt it"
            ),
            Self::Set => {
                f.write_str("the fences of one write must be one or more, each of another resource")
            }
            Self::Unchecked { resource } => write!(
                f,
                "unguarded write: no fence of {resource} was checked in this transaction, \
                 or the epoch that is written is not the one that was checked"
            ),
            Self::NoTransaction => f.write_str(
                "a fence check outside a transaction protects nothing: begin one, \
                 check in it, write in it, commit it",
            ),
            Self::NotDurable { setting } => {
                write!(f, "the mark would not survive a power loss: {setting}")
            }
            Self::SchemaMissing => {
                f.write_str("the store holds no marks of this version: install the fence schema")
            }
            Self::SchemaNewer { found, known } => {
                write!(f, "the store's fence schema is version {found}, newer than {known}")
            }
            Self::Busy(source) => {
                write!(f, "the mark is held by another transaction: {}", said(&**source))
            }
            Self::Conflict(source) => {
                let said = said(&**source);
                write!(f, "a concurrent transaction won, run this one again: {said}")
            }
            Self::Store(source) => write!(f, "the store failed: {}", said(&**source)),
        }
    }
}

impl Error for FenceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Busy(source) | Self::Conflict(source) | Self::Store(source) => {
                Some(source.as_ref())
            }
            Self::Stale { .. }
            | Self::FloorAboveToken { .. }
            | Self::ForeignCluster { .. }
            | Self::NoTransaction
            | Self::Unchecked { .. }
            | Self::NotDurable { .. }
            | Self::SchemaMissing
            | Self::SchemaNewer { .. }
            | Self::Set => None,
        }
    }
}

/// What a driver says, and why where its first word is no more than that it failed.
fn said(error: &(dyn Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let why = error.to_string();
        if !said.contains(&why) {
            said = format!("{said}: {why}");
        }
        source = error.source();
    }
    said
}
