//! Which numbered slots of a resource are taken.

use std::collections::BTreeSet;

/// Taken slots, and the free ones below the highest of them: so the lowest free one is
/// found at once, however many are taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slots {
    taken: BTreeSet<u32>,
    gaps: BTreeSet<u32>,
}

impl Slots {
    /// The lowest slot that is free.
    pub fn lowest_free(&self) -> u32 {
        self.gaps.first().copied().unwrap_or_else(|| self.end())
    }

    pub fn take(&mut self, slot: u32) {
        if self.taken.contains(&slot) {
            return;
        }
        if !self.gaps.remove(&slot) {
            self.gaps.extend(self.end()..slot);
        }
        self.taken.insert(slot);
    }

    pub fn free(&mut self, slot: u32) {
        if self.taken.remove(&slot) {
            self.gaps.insert(slot);
            let end = self.end();
            self.gaps.split_off(&end);
        }
    }

    /// One above the highest that is taken.
    pub fn end(&self) -> u32 {
        self.taken.last().map_or(0, |last| last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_slot_is_found_whatever_was_taken_and_freed() {
        let mut slots = Slots::default();
        let mut naive = BTreeSet::new();
        let mut seed: u32 = 7;
        for _ in 0..10_000 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let slot = (seed >> 8) % 40;
            if seed & 0x80 == 0 {
                slots.take(slot);
                naive.insert(slot);
            } else {
                slots.free(slot);
                naive.remove(&slot);
            }
            let free = (0..).find(|slot| !naive.contains(slot));
            assert_eq!(Some(slots.lowest_free()), free);
            assert_eq!(slots.end(), naive.last().map_or(0, |last| last + 1));
        }
        for slot in 0..40 {
            slots.free(slot);
        }
        assert_eq!(slots, Slots::default());
    }
}
