//! Who may be granted next: the order of queues, and what is free.
//!
//! What a decision costs, with h holders and w waiters on a resource, k names in a claim
//! and r resources in the table; nothing here walks a queue to grant:
//!
//! | | |
//! | --- | --- |
//! | is a claim free; who is next; grant; floor | O(k (log r + log h + log w)) |
//! | lowest free slot | O(log h) |
//! | a waiter enters or leaves its queues | O(k (log r + log w)) |
//! | how many stand before a waiter that asks again | O(k w) |
//! | could a wait ever be granted (`deadlock`), if its session has anything | bounded by steps |
//!
//! So a grant to the next waiter costs the same with 10 or 10,000 behind it.

use std::collections::BTreeSet;

use super::claim::{Claim, Mode, Phase};
use super::command::WaitId;
use super::ids::{ResourceName, Token};
use super::rows::{GrantRow, WaitRow};
use super::switches::Rule;
use super::table::{Capacity, LockTable, Resource};

impl LockTable {
    /// Whether a claim on these names could be granted now without overtaking
    /// anybody: no holder conflicts, and nobody stands before it. (I3) (I4)
    pub(super) fn is_free(&self, names: &[ResourceName], mode: Mode, who: Option<WaitId>) -> bool {
        names.iter().all(|name| {
            self.resources.get(name).is_none_or(|resource| {
                let first = resource.queue.first_key_value().map(|(_, wait)| *wait);
                let next = first.is_none() || first == who || !self.holds(Rule::QueueIsFifo);
                next && self.admits(resource, mode)
            })
        })
    }

    /// The first waiter of a resource, if it can be granted now. Without a token left
    /// nobody can, and all keep their places until their deadlines.
    pub(super) fn grantable_head(&self, name: &ResourceName) -> Option<WaitId> {
        if self.meta.token >= Token::MAX {
            return None;
        }
        let (_, wait) = self.resources.get(name)?.queue.first_key_value()?;
        let queued = &self.waits[wait];
        self.is_free(&queued.names, queued.mode, Some(*wait)).then_some(*wait)
    }

    /// Resources whose first waiters could be granted now: after a restart, those that the
    /// last entry left.
    pub(super) fn grantable(&self) -> BTreeSet<ResourceName> {
        let names = self.resources.iter().filter(|(_, r)| !r.queue.is_empty());
        let names = names.map(|(name, _)| name);
        names.filter(|name| self.grantable_head(name).is_some()).cloned().collect()
    }

    /// How many wait for a resource.
    pub(super) fn queue_length(&self, name: &ResourceName) -> u64 {
        self.resources.get(name).map_or(0, |r| r.queue.len() as u64)
    }

    /// How many stand before a wait, in the longest of its queues.
    pub(super) fn ahead_of(&self, wait: &WaitRow) -> u64 {
        let before = |name| {
            let queue = self.resources.get(name).map(|r| &r.queue);
            queue.map_or(0, |q| q.range(..wait.queued_at.index).count() as u64)
        };
        wait.names.iter().map(before).max().unwrap_or(0)
    }

    /// Changes a resource's record, which exists exactly while it is held or waited
    /// for.
    pub(super) fn change_resource(
        &mut self,
        name: &ResourceName,
        change: impl FnOnce(&mut Resource),
    ) {
        let resource = self.resources.entry(name.clone()).or_default();
        change(resource);
        if resource.is_idle() {
            self.resources.remove(name);
        }
    }

    /// The slot of the next grant, if the claim asks for one.
    pub(super) fn next_slot(&self, claim: &Claim) -> Option<u32> {
        claim.mode.slots()?;
        let known = claim.names.first().and_then(|name| self.resources.get(name));
        Some(known.map_or(0, |r| r.slots.lowest_free()))
    }

    /// What destinations raise their marks to under a new grant: the lowest token among
    /// the holders, itself included. So holders that share do not fence each other out,
    /// and whoever held before all of them is. (I8, section 6)
    pub(super) fn floor(&self, claim: &Claim, token: Token) -> Token {
        if !self.holds(Rule::FloorIsLowestHolder) {
            return token;
        }
        if claim.mode.slots().is_some() && !self.holds(Rule::FloorOfModeChange) {
            return Token::new(1).expect("the first token");
        }
        let lowest = |name| self.resources.get(name)?.holders.first().copied();
        claim.names.iter().filter_map(lowest).min().unwrap_or(token)
    }

    /// Whether one more may hold the resource in this mode beside those who do. All
    /// holders and closures of a resource share one mode, or they would conflict: the
    /// first of them speaks for all.
    fn admits(&self, resource: &Resource, mode: Mode) -> bool {
        let blocks =
            |grant: &&GrantRow| grant.phase == Phase::Active || self.holds(Rule::BarrierBlocks);
        let held = resource.holders.first().map(|token| &self.grants[token]).filter(blocks);
        let held = held.map(|grant| grant.mode);
        let closed = resource.closures.first().filter(|_| self.holds(Rule::DelayCloses));
        let closed = closed.map(|token| self.closures[token].mode);
        let conflict = [held, closed].into_iter().flatten().any(|other| mode.conflicts_with(other));
        if conflict || (resource.frozen.is_some() && self.holds(Rule::FreezeCloses)) {
            return false;
        }
        match (mode, resource.capacity) {
            // While there are more holders than slots, nobody else gets one. (I3)
            (Mode::Slots { of }, in_force) => {
                resource.slots.len() < in_force.map_or(of, |capacity| capacity.slots)
                    || !self.holds(Rule::SlotsAreCounted)
            }
            (Mode::Exclusive | Mode::Shared, _) => true,
        }
    }
}

impl Resource {
    /// Somebody holds or awaits a slot, if the mode is of slots: the first one says how
    /// many there are.
    pub(super) fn use_slots(&mut self, mode: Mode) {
        if let Some(slots) = mode.slots() {
            self.capacity.get_or_insert(Capacity { slots, users: 0 }).users += 1;
        }
    }

    /// Somebody does no more; says whether that was the last one.
    pub(super) fn give_up_slots(&mut self) -> bool {
        let capacity = self.capacity.as_mut().expect("a user of slots was counted");
        capacity.users -= 1;
        if capacity.users == 0 {
            self.capacity = None;
        }
        self.capacity.is_none()
    }
}
