//! [I4] Waiters stand in one order per resource, nobody overtakes, nobody starves, and
//! a waiter whose session ends leaves in that entry.
//!
//! Kept from the events alone: the table is not asked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence::locks::{Happened, LockTable, ResourceName, SessionId, WaitId};

use crate::log::Committed;
use crate::time::{MS, Micros};

/// How long after its deadline a wait may stand in a quiet time.
const LATE_MAX: Micros = 3000 * MS;

#[derive(Default)]
pub struct Queues {
    queues: BTreeMap<ResourceName, VecDeque<WaitId>>,
    held: BTreeSet<ResourceName>,
    since: BTreeMap<WaitId, Micros>,
}

impl Queues {
    pub fn committed(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        for event in &seen.effects.events {
            match &event.what {
                Happened::Queued { wait, names, .. } => {
                    self.since.insert(*wait, seen.now);
                    for name in names {
                        self.queues.entry(name.clone()).or_default().push_back(*wait);
                    }
                }
                Happened::Granted { wait, names, .. } => {
                    self.held.extend(names.iter().cloned());
                    self.granted(*wait, names)?;
                }
                Happened::LeftQueue { wait, names, .. } => {
                    self.since.remove(wait);
                    for name in names {
                        self.queues.entry(name.clone()).or_default().retain(|w| w != wait);
                    }
                }
                Happened::GrantEnded { names, .. } => {
                    for name in names {
                        self.held.remove(name);
                    }
                }
                Happened::Ended { session, .. } => self.nobody_left(*session)?,
                Happened::Opened { .. }
                | Happened::Activated { .. }
                | Happened::ValueChanged { .. }
                | Happened::Asked { .. }
                | Happened::Reopened { .. }
                | Happened::Frozen { .. }
                | Happened::Thawed { .. }
                | Happened::Resized { .. } => {}
            }
        }
        self.nobody_could_go()
    }

    /// Whoever waits is granted when it is first; whoever does not wait, when nobody
    /// does.
    fn granted(&mut self, wait: WaitId, names: &[ResourceName]) -> Result<(), String> {
        let waited = self.since.remove(&wait).is_some();
        for name in names {
            let queue = self.queues.entry(name.clone()).or_default();
            let first = if waited { queue.pop_front() } else { queue.front().copied() };
            if first != waited.then_some(wait) {
                return Err(format!("{wait:?} is granted {name} before {first:?}"));
            }
        }
        Ok(())
    }

    fn nobody_left(&self, session: SessionId) -> Result<(), String> {
        match self.since.keys().find(|wait| wait.session == session) {
            Some(wait) => Err(format!("{wait:?} waits though its session has ended")),
            None => Ok(()),
        }
    }

    fn nobody_could_go(&self) -> Result<(), String> {
        let free = |name: &&ResourceName| !self.held.contains(*name);
        let waited_for = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        match waited_for.map(|(name, _)| name).find(free) {
            Some(name) => Err(format!("{name} is free and somebody waits for it")),
            None => Ok(()),
        }
    }

    /// At the end of a quiet time nobody waits long beyond its deadline.
    pub fn finish(&self, now: Micros, table: &LockTable) -> Result<(), String> {
        for (wait, since) in &self.since {
            let row = table.wait(*wait).ok_or(format!("{wait:?} waits in no table"))?;
            let latest = since + row.deadline.0 * MS + LATE_MAX;
            if latest < now && *since > crate::faults::QUIET {
                return Err(format!("{wait:?} has waited since {since} us"));
            }
        }
        Ok(())
    }
}
