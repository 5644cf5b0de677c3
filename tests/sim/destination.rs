//! Protected destinations: section 6 of the contract, by the rule that every adapter
//! follows.

use std::collections::BTreeMap;

use ringfence::fence::{Marks, Verdict as Decided, decide};
use ringfence::locks::{ClusterId, Fence, Token};

use crate::properties::books::{PLACES, place};
use crate::time::Micros;

/// How many there are: an owner writes to one, a handoff names one or both.
pub const DESTINATIONS: usize = 2;

/// High-water marks, as a destination keeps them beside what it protects.
#[derive(Default)]
pub struct Destination {
    marks: [Option<Kept>; PLACES],
    /// Until when the transaction that holds each mark has it.
    locked: [Micros; PLACES],
}

struct Kept {
    cluster: ClusterId,
    mark: Token,
    slots: BTreeMap<u32, Token>,
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub accepted: bool,
    /// The marks of the resource and of the slot, 0 for none.
    pub before: (u64, u64),
    pub after: (u64, u64),
}

impl Destination {
    /// Until when another transaction holds the mark.
    pub fn locked_until(&self, fence: &Fence) -> Micros {
        self.locked[place(&fence.resource)]
    }

    /// A transaction that has checked commits only then.
    pub fn lock(&mut self, fence: &Fence, until: Micros) {
        self.locked[place(&fence.resource)] = until;
    }

    /// Whether the rule lets it pass as things are.
    pub fn check(&self, fence: &Fence) -> bool {
        matches!(decide(self.known(fence), fence), Decided::Accept(_))
    }

    /// Checks, raises and writes, in one atomic step; a raise writes nothing.
    pub fn write(&mut self, fence: &Fence, refuses: bool) -> Verdict {
        let at = place(&fence.resource);
        let before = self.marks_of(fence);
        match decide(self.known(fence), fence) {
            Decided::Accept(marks) => {
                let (cluster, mark) = (marks.cluster, marks.resource);
                let kept =
                    self.marks[at].get_or_insert(Kept { cluster, mark, slots: BTreeMap::new() });
                kept.mark = mark;
                kept.slots.extend(fence.slot.zip(marks.slot));
                Verdict { accepted: true, before, after: self.marks_of(fence) }
            }
            Decided::Refuse(_) => Verdict { accepted: !refuses, before, after: before },
        }
    }

    /// Whether nobody from before the fence gets through.
    pub fn is_raised(&self, fence: &Fence) -> bool {
        let (mark, slot) = self.marks_of(fence);
        mark >= fence.floor.get() && (fence.slot.is_none() || slot >= fence.token.get())
    }

    fn known(&self, fence: &Fence) -> Option<Marks> {
        self.marks[place(&fence.resource)].as_ref().map(|kept| Marks {
            cluster: kept.cluster,
            resource: kept.mark,
            slot: fence.slot.and_then(|slot| kept.slots.get(&slot).copied()),
        })
    }

    fn marks_of(&self, fence: &Fence) -> (u64, u64) {
        let Some(kept) = &self.marks[place(&fence.resource)] else { return (0, 0) };
        let slot = fence.slot.and_then(|slot| kept.slots.get(&slot));
        (kept.mark.get(), slot.map_or(0, |mark| mark.get()))
    }
}
