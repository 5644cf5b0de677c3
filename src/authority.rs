//! What one node knows of the authority: the table, the leases and who waits here
//! for an answer, behind one lock, so that what is read together belongs together.
//!
//! The lock is held for as long as one batch of entries or one answer takes, and
//! never across an await.

use std::collections::BTreeMap;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};

use crate::leases::{Leases, Moment};
use crate::locks::{
    Change, Command, Event, GrantRow, Happened, LockTable, Outcome, Position, Refusal, WaitId,
};

/// Shared by the state machine, which alone changes the table, and by all who read.
#[derive(Debug, Default)]
pub struct Authority {
    state: Mutex<State>,
    doubts: watch::Sender<()>,
}

/// What is behind the lock.
#[derive(Debug, Default)]
pub struct State {
    /// As of the last applied entry.
    pub table: LockTable,
    /// Deadlines; observed every entry of the table.
    pub leases: Leases,
    /// Calls of this node that wait for a grant.
    waiters: BTreeMap<WaitId, Vec<oneshot::Sender<Settled>>>,
}

/// How a wait ended.
pub type Settled = Result<GrantRow, Refusal>;

impl Authority {
    /// Starts from a table loaded from disk; every deadline begins anew.
    pub fn new(table: LockTable, now: Moment) -> Self {
        let leases = Leases::restore(&table, now);
        let state = Mutex::new(State { table, leases, waiters: BTreeMap::new() });
        Self { state, doubts: watch::Sender::default() }
    }

    /// Takes the lock. Not to be held across an await.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Ends all calls that are under way here without an answer: what they asked for
    /// may take effect yet, but not with this leader's knowledge. Waits keep their
    /// places in the queues.
    pub fn doubt(&self) {
        self.lock().waiters.clear();
        self.doubts.send_replace(());
    }

    /// Changes at the next [`Authority::doubt`].
    pub fn doubts(&self) -> watch::Receiver<()> {
        self.doubts.subscribe()
    }
}

impl State {
    /// Applies one entry of the log and tells those who wait for it. `None` for an
    /// entry without a command.
    pub fn apply(
        &mut self,
        at: Position,
        command: Option<&Command>,
        now: Moment,
    ) -> (Outcome, Vec<Change>) {
        let effects = match command {
            Some(command) => self.table.apply(at, command),
            None => self.table.pass(at),
        };
        self.leases.observe(&effects.facts, now);
        for event in &effects.events {
            self.tell(event);
        }
        (effects.outcome, effects.changes)
    }

    /// Puts the table of a snapshot in place of this one. Whoever waited here asks
    /// again.
    pub fn install(&mut self, table: LockTable, now: Moment) {
        self.leases = self.leases.installed(&table, now);
        self.table = table;
        self.waiters.clear();
    }

    /// A receiver for the end of a queued wait; `None` if it is not queued (any more).
    pub fn await_wait(&mut self, wait: WaitId) -> Option<oneshot::Receiver<Settled>> {
        self.table.wait(wait)?;
        let (tell, told) = oneshot::channel();
        let waiting = self.waiters.entry(wait).or_default();
        waiting.retain(|other| !other.is_closed());
        waiting.push(tell);
        Some(told)
    }

    /// Forgets a call that no longer waits.
    pub fn forget_closed(&mut self, wait: WaitId) {
        if let Some(waiting) = self.waiters.get_mut(&wait) {
            waiting.retain(|other| !other.is_closed());
            if waiting.is_empty() {
                self.waiters.remove(&wait);
            }
        }
    }

    fn tell(&mut self, event: &Event) {
        let (wait, settled) = match &event.what {
            Happened::Granted { wait, grant, .. } => {
                let Some(grant) = self.table.grant(grant.token) else { return };
                (wait, Ok(grant.clone()))
            }
            Happened::LeftQueue { wait, cause, .. } => (wait, Err(cause.refusal())),
            Happened::Opened { .. }
            | Happened::Ended { .. }
            | Happened::Queued { .. }
            | Happened::Activated { .. }
            | Happened::ValueChanged { .. }
            | Happened::Asked { .. }
            | Happened::GrantEnded { .. }
            | Happened::Reopened { .. }
            | Happened::Frozen { .. }
            | Happened::Thawed { .. }
            | Happened::Resized { .. } => return,
        };
        for waiter in self.waiters.remove(wait).unwrap_or_default() {
            // A caller that has gone asks again under the same request id.
            let _gone = waiter.send(settled.clone());
        }
    }
}
