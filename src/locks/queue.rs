//! Who may be granted next: the order of queues, and what is free.

use super::command::{Mode, WaitId};
use super::ids::{ResourceName, Token};
use super::rows::WaitRow;
use super::table::{LockTable, Resource};

impl LockTable {
    /// Whether a claim on these names could be granted now without overtaking
    /// anybody: no holder conflicts, and nobody stands before it. (I3) (I4)
    pub(super) fn is_free(&self, names: &[ResourceName], mode: Mode, who: Option<WaitId>) -> bool {
        names.iter().all(|name| {
            self.resources.get(name).is_none_or(|resource| {
                let first = resource.queue.first_key_value().map(|(_, wait)| *wait);
                (first.is_none() || first == who) && self.admits(resource, mode)
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
        if resource.holders.is_empty() && resource.queue.is_empty() {
            self.resources.remove(name);
        }
    }

    fn admits(&self, resource: &Resource, mode: Mode) -> bool {
        let held = |token: &Token| self.grants[token].mode;
        !resource.holders.iter().any(|token| mode.conflicts_with(held(token)))
    }
}
