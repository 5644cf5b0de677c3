//! Leadership confirmed by a quorum (Raft's ReadIndex). One round serves all who
//! arrived before it began; who comes later takes the next. Never by a clock: a
//! voter that restarts forgets what it promised.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::Raft;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::raft::linearizable_read::{Linearizer, LinearizerOption};
use openraft::storage::RaftStateMachine;
use tokio::sync::{mpsc, oneshot};

use super::contact::Contact;
use super::propose::hint;
use crate::locks::Term;
use crate::raft_types::TypeConfig;

/// Callers that may wait for a round; more wait for room.
pub(crate) const QUEUE_MAX: usize = 65_536;

/// A quorum has confirmed this node as leader after the call began, and all that
/// was committed by then is applied here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// The term that was confirmed.
    pub term: Term,
    /// The read index: everything committed before the call is at or below it, and
    /// applied here.
    pub index: u64,
}

/// Why leadership was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmError {
    /// This node does not lead.
    #[error("not the leader")]
    NotLeader {
        /// Who leads, with address, as far as known.
        leader: Option<(u64, String)>,
    },
    /// No quorum answered in time, or what it had committed was not applied here
    /// in time.
    #[error("no quorum")]
    NoQuorum,
}

pub(crate) type Waiter = oneshot::Sender<Result<Confirmed, ConfirmError>>;

/// Where rounds are told of.
pub(crate) struct Told {
    /// How many were begun.
    pub rounds: Arc<AtomicU64>,
    pub contact: Arc<Contact>,
}

/// Runs until the last sender is gone.
pub(crate) async fn run<SM>(
    raft: Raft<TypeConfig, SM>,
    mut queue: mpsc::Receiver<Waiter>,
    within: Duration,
    told: Told,
) where
    SM: RaftStateMachine<TypeConfig>,
{
    loop {
        let mut waiters = Vec::new();
        if queue.recv_many(&mut waiters, QUEUE_MAX).await == 0 {
            return;
        }
        told.rounds.fetch_add(1, Ordering::Relaxed);
        let option = LinearizerOption::new(Some(Duration::ZERO), true).with_wait_timeout(within);
        let round = raft.get_read_linearizer(option).await;
        if round.is_ok() {
            told.contact.heard(0);
        }
        let raft = raft.clone();
        // Applying is waited for aside, so that the next round can begin.
        tokio::spawn(async move {
            let confirmed = match round {
                Ok(linearizer) => applied(&raft, linearizer, within).await,
                Err(error) => Err(refusal(error)),
            };
            for waiter in waiters {
                waiter.send(confirmed.clone()).ok();
            }
        });
    }
}

async fn applied<SM>(
    raft: &Raft<TypeConfig, SM>,
    linearizer: Linearizer<TypeConfig>,
    within: Duration,
) -> Result<Confirmed, ConfirmError>
where
    SM: RaftStateMachine<TypeConfig>,
{
    let at = *linearizer.read_log_id().log_id();
    match linearizer.try_await_ready(raft, Some(within)).await {
        Ok(Ok(_)) => Ok(Confirmed { term: Term(at.leader_id.term), index: at.index }),
        Ok(Err(_)) => Err(ConfirmError::NoQuorum),
        Err(_) => Err(ConfirmError::NotLeader { leader: None }),
    }
}

fn refusal(error: RaftError<TypeConfig, LinearizableReadError<TypeConfig>>) -> ConfirmError {
    match error {
        RaftError::APIError(LinearizableReadError::ForwardToLeader(forward)) => {
            ConfirmError::NotLeader { leader: hint(forward) }
        }
        RaftError::APIError(LinearizableReadError::QuorumNotEnough(_)) => ConfirmError::NoQuorum,
        // The process is about to end.
        RaftError::Fatal(_) => ConfirmError::NotLeader { leader: None },
    }
}
