//! What one node knows of the authority: the table, the leases, the last events and who
//! waits here for an answer, behind one lock, so that what is read together belongs
//! together.
//!
//! The lock is held for as long as one batch of entries or one answer takes, and
//! never across an await.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{oneshot, watch};

use crate::feed::{Feed, Watchers};
use crate::leases::{Leases, Moment};
use crate::locks::{
    Change, Command, Event, GrantRow, Happened, LockTable, Outcome, Position, Refusal, WaitId,
};

/// How many events are taken under one lock to see whom they concern.
const LOOKED_THROUGH_MAX: usize = 1_024;
/// How often it is looked whether a watcher has fallen too far behind.
const CUT_EVERY: Duration = Duration::from_secs(1);

/// Shared by the state machine, which alone changes the table, and by all who read.
#[derive(Debug, Default)]
pub struct Authority {
    state: Mutex<State>,
    doubts: watch::Sender<()>,
    watchers: Arc<Watchers>,
}

/// What is behind the lock.
#[derive(Debug, Default)]
pub struct State {
    /// As of the last applied entry.
    pub table: LockTable,
    /// Deadlines; observed every entry of the table.
    pub leases: Leases,
    /// What happened last.
    pub feed: Feed,
    /// Calls of this node that wait for a grant.
    waiters: BTreeMap<WaitId, Vec<oneshot::Sender<Settled>>>,
}

/// How a wait ended.
pub type Settled = Result<GrantRow, Refusal>;

impl Authority {
    /// Starts from a table loaded from disk; every deadline begins anew.
    pub fn new(table: LockTable, now: Moment) -> Self {
        let leases = Leases::restore(&table, now);
        let feed = Feed::new(table.position().index);
        let state = Mutex::new(State { table, leases, feed, waiters: BTreeMap::new() });
        Self { state, doubts: watch::Sender::default(), watchers: Arc::default() }
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

    /// Who watches here.
    pub const fn watchers(&self) -> &Arc<Watchers> {
        &self.watchers
    }

    /// Wakes those who watch when something of theirs has happened, and cuts those who do
    /// not take it. To be spawned; it does not end.
    pub async fn serve_watchers(self: Arc<Self>) {
        let mut look = tokio::time::interval(CUT_EVERY);
        loop {
            tokio::select! {
                () = self.watchers.news() => self.look_through().await,
                _ = look.tick() => {
                    let since = self.lock().feed.since();
                    self.watchers.cut_before(since);
                }
            }
        }
    }

    async fn look_through(&self) {
        loop {
            let from = self.watchers.position();
            let read = self.lock().feed.after(from, LOOKED_THROUGH_MAX);
            self.watchers.look_through(&read);
            if read.is_ok_and(|read| read.all) {
                return;
            }
            tokio::task::yield_now().await;
        }
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
        self.feed.append(at.index, effects.events);
        (effects.outcome, effects.changes)
    }

    /// Puts the table of a snapshot in place of this one. Whoever waited here asks
    /// again; what happened in between is not known.
    pub fn install(&mut self, table: LockTable, now: Moment) {
        self.feed.reset(table.position().index);
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

    /// Tells those who wait here, if anybody does: on most nodes nobody.
    fn tell(&mut self, event: &Event) {
        let (waiting, settled) = match &event.what {
            Happened::Granted { wait, grant, .. } => {
                let Some(waiting) = self.waiters.remove(wait) else { return };
                let Some(grant) = self.table.grant(grant.token) else { return };
                (waiting, Ok(grant.clone()))
            }
            Happened::LeftQueue { wait, cause, .. } => {
                let Some(waiting) = self.waiters.remove(wait) else { return };
                (waiting, Err(cause.refusal()))
            }
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
        for waiter in waiting {
            // A caller that has gone asks again under the same request id.
            let _gone = waiter.send(settled.clone());
        }
    }
}
