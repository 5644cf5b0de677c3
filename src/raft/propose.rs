//! The way into the log. One task takes all that is queued and hands it to openraft
//! in one piece, without waiting for more; answers find their callers off its path.

use futures::StreamExt;
use openraft::Raft;
use openraft::alias::CommittedLeaderIdOf;
use openraft::errors::{ClientWriteError, ForwardReason, ForwardToLeader};
use openraft::impls::ProgressResponder;
use openraft::raft::ClientWriteResult;
use openraft::storage::RaftStateMachine;
use tokio::sync::{mpsc, oneshot};

use super::status::position;
use crate::locks::{Outcome, Position, Term};
use crate::raft_types::{EncodedCommand, TypeConfig};

/// Proposals that may wait for the proposer; callers beyond wait for room.
pub(crate) const QUEUE_MAX: usize = 16_384;
const BATCH_MAX: usize = 1_024;

/// Why a proposal has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Not appended, and never will be: this node does not lead, or not in the
    /// term asked for (the leader named may then be this very node).
    #[error("not the leader")]
    NotLeader {
        /// Who leads, with address, as far as known.
        leader: Option<(u64, String)>,
    },
    /// Not appended, and never will be: this node leads, but no quorum has answered
    /// it lately.
    #[error("no quorum")]
    NoQuorum,
    /// It may have been appended, and its fate was not seen.
    #[error("outcome unknown")]
    Unknown,
}

/// A command on its way; `term` bars it from the log of any other term.
pub(crate) struct Proposal {
    pub command: EncodedCommand,
    pub term: Option<Term>,
    pub answer: Answer,
}

type Answer = oneshot::Sender<Result<(Position, Outcome), ProposeError>>;

/// Runs until the last sender is gone. A proposal whose answer is dropped on the
/// way is *unknown* to its caller, never refused.
pub(crate) async fn run<SM>(raft: Raft<TypeConfig, SM>, mut queue: mpsc::Receiver<Proposal>)
where
    SM: RaftStateMachine<TypeConfig>,
{
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while queue.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let mut queued = batch.drain(..).peekable();
        while let Some(first) = queued.next() {
            let term = first.term;
            let mut run = vec![first];
            while let Some(next) = queued.next_if(|p| p.term == term) {
                run.push(next);
            }
            match term {
                None => write_many(&raft, run).await,
                Some(term) => write_in_term(&raft, term, run).await,
            }
        }
    }
}

/// Whichever term it is.
async fn write_many<SM>(raft: &Raft<TypeConfig, SM>, run: Vec<Proposal>)
where
    SM: RaftStateMachine<TypeConfig>,
{
    let (commands, answers): (Vec<_>, Vec<_>) =
        run.into_iter().map(|p| (p.command, p.answer)).unzip();
    // On a fatal error the answers are dropped: unknown.
    let Ok(mut results) = raft.client_write_many(commands).await else { return };
    tokio::spawn(async move {
        for answer in answers {
            let Some(Ok(result)) = results.next().await else { return };
            let applied = result.map(|done| (position(&done.log_id), done.response));
            answer.send(applied.map_err(refusal)).ok();
        }
    });
}

/// Only in `term`: if another has begun, none of these is appended.
async fn write_in_term<SM>(raft: &Raft<TypeConfig, SM>, term: Term, run: Vec<Proposal>)
where
    SM: RaftStateMachine<TypeConfig>,
{
    let leader = CommittedLeaderIdOf::<TypeConfig>::new(term.0);
    let mut waiting: Vec<(Answer, _)> = Vec::with_capacity(run.len());
    for proposal in run {
        let (responder, result) =
            ProgressResponder::<TypeConfig, ClientWriteResult<TypeConfig>>::complete_only();
        let write = raft.write(proposal.command).with_leader(leader).responder(responder);
        if write.await.is_ok() {
            waiting.push((proposal.answer, result));
        }
    }
    tokio::spawn(async move {
        for (answer, result) in waiting {
            let Ok(result) = result.await else { continue };
            let applied = result.map(|done| (position(&done.log_id), done.data));
            answer.send(applied.map_err(refusal)).ok();
        }
    });
}

/// Section 4 of the openraft notes: only `ForwardToLeader` says that nothing was
/// appended.
fn refusal(error: ClientWriteError<TypeConfig>) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(forward) => match forward.reason {
            ForwardReason::LeaseExpired => ProposeError::NoQuorum,
            ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => {
                ProposeError::NotLeader { leader: hint(forward) }
            }
        },
        ClientWriteError::LogEntryDiscarded(_)
        | ClientWriteError::ChangeMembershipError(_)
        | ClientWriteError::PreconditionFailed(_) => ProposeError::Unknown,
    }
}

/// The leader that openraft names, with its address.
pub(crate) fn hint(forward: ForwardToLeader<TypeConfig>) -> Option<(u64, String)> {
    Some((forward.leader_id?, forward.leader_node?.address))
}
