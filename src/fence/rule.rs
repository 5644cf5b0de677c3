//! The rule, as a pure function. Every adapter comes to the same verdicts: SQL
//! ones say it again in SQL, the others call [`decide`].

use std::collections::BTreeSet;

use super::error::FenceError;
use crate::locks::{ClusterId, Fence, Token};

/// What a destination remembers of the resource, and of the slot, that a fence
/// names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// The authority whose tokens these are.
    pub cluster: ClusterId,
    /// The resource's high-water mark: no write below it is applied. Never falls.
    pub resource: Token,
    /// The slot's; none before its first write, and for a fence without a slot.
    pub slot: Option<Token>,
}

/// What the destination does with a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Apply it, and keep these marks from the same atomic step on.
    Accept(Marks),
    /// Apply nothing and leave the marks as they are.
    Refuse(Refusal),
}

/// Why a write is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The token is below a mark: a later owner has been here.
    Stale {
        /// The mark.
        mark: Token,
        /// The slot whose mark it is; none for the resource's, which is asked
        /// first.
        slot: Option<u32>,
    },
    /// No authority makes a fence whose floor is above its token.
    FloorAboveToken,
    /// Tokens of two authorities cannot be compared. An administrator adopts
    /// the new one.
    ForeignCluster {
        /// The authority that the mark belongs to.
        known: ClusterId,
    },
}

/// Judges one fence by what is known of its resource: nothing before the first
/// write. An accepted fence never lowers a mark. (I8)
pub fn decide(known: Option<Marks>, fence: &Fence) -> Verdict {
    let Fence { cluster, resource: _, slot, token, floor } = fence;
    if floor > token {
        return Verdict::Refuse(Refusal::FloorAboveToken);
    }
    let raised = slot.map(|_| *token);
    let Some(marks) = known else {
        return Verdict::Accept(Marks { cluster: *cluster, resource: *floor, slot: raised });
    };
    if marks.cluster != *cluster {
        return Verdict::Refuse(Refusal::ForeignCluster { known: marks.cluster });
    }
    if *token < marks.resource {
        return Verdict::Refuse(Refusal::Stale { mark: marks.resource, slot: None });
    }
    // A slot's mark speaks for that slot alone: a fence without one ignores it.
    if let Some(mark) = marks.slot.filter(|mark| slot.is_some() && token < mark) {
        return Verdict::Refuse(Refusal::Stale { mark, slot: *slot });
    }
    Verdict::Accept(Marks {
        cluster: marks.cluster,
        resource: marks.resource.max(*floor),
        slot: marks.slot.max(raised),
    })
}

/// Checks what one write comes with: every fence is judged by the marks as they were
/// before it, so a resource is named once; and a write without a fence is unguarded.
///
/// # Errors
/// [`FenceError::Set`].
pub(super) fn check_set(fences: &[Fence]) -> Result<(), FenceError> {
    let names: BTreeSet<_> = fences.iter().map(|fence| &fence.resource).collect();
    if names.is_empty() || names.len() < fences.len() { Err(FenceError::Set) } else { Ok(()) }
}
