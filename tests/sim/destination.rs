//! The protected destination: section 6 of the contract, and a record of all that
//! came.

use std::collections::BTreeMap;

use ringfence::locks::{Fence, ResourceName};

/// High-water marks, as a destination keeps them beside what it protects.
#[derive(Default)]
pub struct Destination {
    marks: BTreeMap<ResourceName, u64>,
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub accepted: bool,
    pub mark_before: u64,
    pub mark_after: u64,
}

impl Destination {
    /// Checks and writes, in one atomic step.
    pub fn write(&mut self, fence: &Fence, refuses: bool) -> Verdict {
        let mark = self.marks.entry(fence.resource.clone()).or_default();
        let mark_before = *mark;
        let accepted = fence.token.get() >= *mark || !refuses;
        if accepted {
            *mark = (*mark).max(fence.floor.get());
        }
        Verdict { accepted, mark_before, mark_after: *mark }
    }
}
