//! What runs by time beside sessions: waits, unconfirmed grants, lock delays. They run
//! on every node from applying the entry that began them, anew after restart or
//! snapshot, and are not re-based at a new term. Section 3 of the contract.

use std::collections::{BTreeMap, BTreeSet};

use super::Moment;
use crate::locks::Timer;

/// Timers by name and by time.
#[derive(Debug, Clone, Default)]
pub(super) struct Timers {
    ends: BTreeMap<Timer, Moment>,
    order: BTreeSet<(Moment, Timer)>,
}

impl Timers {
    pub fn begin(&mut self, timer: Timer, at: Moment) {
        self.end(timer);
        self.ends.insert(timer, at);
        self.order.insert((at, timer));
    }

    pub fn end(&mut self, timer: Timer) {
        if let Some(at) = self.ends.remove(&timer) {
            self.order.remove(&(at, timer));
        }
    }

    /// Those that have run out, the earliest first.
    pub fn due(&self, now: Moment) -> impl Iterator<Item = Timer> {
        self.order.iter().take_while(move |(at, _)| *at <= now).map(|(_, timer)| *timer)
    }

    /// When the first of those that are asked for runs out.
    pub fn next(&self, asked: impl Fn(&Timer) -> bool) -> Option<Moment> {
        self.order.iter().find(|(_, timer)| asked(timer)).map(|(at, _)| *at)
    }

    /// When it runs out.
    pub fn at(&self, timer: Timer) -> Option<Moment> {
        self.ends.get(&timer).copied()
    }
}
