//! What the services of one node share: the replica, the authority, the leader task,
//! admission, and the ways to the other nodes.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::Status;

use super::refusals::{not_confirmed, not_proposed, outcome_unknown, overloaded, refused};
use super::route::Leaders;
use crate::authority::{Authority, State};
use crate::leader::Renewals;
use crate::locks::{Command, Done, GrantRow, Refusal, Term, WaitId};
use crate::raft::Replica;
use crate::raft_types::EncodedCommand;
use crate::wire::log::encode_command;

/// How many proposals of one node may be under way if nothing else is set. Beyond,
/// callers are told to come back. Waits in the queue and renewals are not counted.
pub const ADMITTED_MAX: usize = 8_192;
const RETRY_AFTER_MS: u64 = 50;

/// One node, as its services see it.
pub struct Node {
    /// The way into the log.
    pub replica: Replica,
    /// The table, as applied here.
    pub authority: Arc<Authority>,
    /// The way to the leader task.
    pub renewals: Renewals,
    pub(super) written: WrittenNow,
    pub(super) leaders: Leaders,
    admission: Semaphore,
}

/// What the node has written to its disk since it was started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written {
    /// Writes, each synced once.
    pub synced_writes: u64,
    /// Log entries in them.
    pub entries: u64,
    /// Rows of the table in them.
    pub rows: u64,
    /// Bytes of them all.
    pub bytes: u64,
}

/// Reads the counts: the services do not see the disk itself.
pub type WrittenNow = Box<dyn Fn() -> Written + Send + Sync>;

impl Node {
    /// Puts the parts together; so many proposals may be under way at once.
    pub fn new(
        replica: Replica,
        authority: Arc<Authority>,
        renewals: Renewals,
        written: WrittenNow,
        admitted_max: usize,
    ) -> Self {
        let (leaders, admission) = (Leaders::default(), Semaphore::new(admitted_max));
        Self { replica, authority, renewals, written, leaders, admission }
    }

    /// Proposes a command and waits until it is applied here, or until this node has
    /// lost the lead or its majority: then the outcome is unknown.
    pub(super) async fn propose(&self, command: &Command) -> Result<Done, Status> {
        let _admitted = self.admit()?;
        let mut doubts = self.authority.doubts();
        let told = tokio::select! {
            biased;
            told = self.replica.propose(EncodedCommand(encode_command(command))) => told,
            _ = doubts.changed() => return Err(outcome_unknown()),
        };
        let (_, outcome) = told.map_err(|error| not_proposed(&error))?;
        outcome.map_err(|refusal| refused(&refusal))
    }

    /// Locks the state for a linearizable read: a round that began after the call
    /// confirmed this leader, and what was committed by then is applied. (Raft thesis,
    /// 6.4)
    pub(super) async fn confirm(&self) -> Result<Term, Status> {
        let confirmed = self.replica.confirm_leadership().await;
        confirmed.map(|c| c.term).map_err(|error| not_confirmed(&error))
    }

    /// Waits for the end of a queued claim. The caller's going away does not cancel the
    /// claim: it keeps its place until its deadline or its session's end.
    pub(super) async fn wait(&self, wait: WaitId) -> Result<GrantRow, Status> {
        // Dropped after the receiver, which must be gone when it looks.
        let _place = Place { authority: &self.authority, wait };
        let told = {
            let mut state = self.authority.lock();
            match state.await_wait(wait) {
                Some(told) => told,
                None => return already_settled(&state, wait),
            }
        };
        if !self.replica.leadership().borrow().here {
            return Err(outcome_unknown()); // whoever leads now tells the caller
        }
        match told.await {
            Ok(settled) => settled.map_err(|refusal| refused(&refusal)),
            Err(_term_over) => Err(outcome_unknown()),
        }
    }

    fn admit(&self) -> Result<SemaphorePermit<'_>, Status> {
        self.admission.try_acquire().map_err(|_| overloaded(RETRY_AFTER_MS))
    }
}

/// Settled between its entry and the question.
fn already_settled(state: &State, wait: WaitId) -> Result<GrantRow, Status> {
    match state.table.outcome_of(wait) {
        Some(Ok(Done::Granted { token })) => {
            let ended = Refusal::GrantEnded { token };
            state.table.grant(token).cloned().ok_or_else(|| refused(&ended))
        }
        Some(Err(refusal)) => Err(refused(&refusal)),
        Some(Ok(_)) => Err(outcome_unknown()),
        None if state.table.session(wait.session).is_none() => {
            Err(refused(&Refusal::SessionExpired))
        }
        None => Err(outcome_unknown()),
    }
}

/// A call's place among those that wait here; given up when the call ends.
struct Place<'n> {
    authority: &'n Authority,
    wait: WaitId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.authority.lock().forget_closed(self.wait);
    }
}
