//! [`Replica`]: all that the rest of the server sees of the consensus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use openraft::Raft;
use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{Fatal, InitializeError, RaftError};
use openraft::metrics::RaftMetrics;
use openraft::storage::RaftStateMachine;
use tokio::sync::{mpsc, oneshot, watch};

use super::config::Timing;
use super::confirm::{self, ConfirmError, Confirmed};
use super::contact::Contact;
use super::propose::{self, Proposal, ProposeError};
use super::status::{self, Leadership, MemberStatus, Role, Status};
use crate::clock;
use crate::locks::{Outcome, Position, Term};
use crate::raft_types::{EncodedCommand, Member, TypeConfig};

/// How soon a proposal is tried again that a new leader refused because no quorum
/// has answered it yet.
const RETRY: Duration = Duration::from_millis(2);

/// A handle of the local replica; cheap to clone.
///
/// Its tasks run on the runtime on which [`super::start`] was called; the handle
/// works on any.
#[derive(Clone)]
pub struct Replica {
    shared: Arc<Shared>,
}

struct Shared {
    node: u64,
    timing: Timing,
    proposals: mpsc::Sender<Proposal>,
    waiters: mpsc::Sender<confirm::Waiter>,
    rounds: Arc<AtomicU64>,
    contact: Arc<Contact>,
    presence: Arc<AtomicBool>,
    metrics: WatchReceiverOf<TypeConfig, RaftMetrics<TypeConfig>>,
    leadership: watch::Receiver<Leadership>,
    control: Arc<dyn Control>,
}

/// Why leadership was not handed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// There is nothing to hand over.
    #[error("this node does not lead")]
    NotLeader,
    /// No other voter has answered lately.
    #[error("no other voter is up to date and alive")]
    NoSuccessor,
    /// The successor did not take over in time.
    #[error("node {0} did not take over in time")]
    TimedOut(u64),
}

/// How a replica came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// By [`Replica::shutdown`].
    Shutdown,
    /// Its disk failed or an assertion did: the process must end, for nothing that
    /// it says from here on can be relied on.
    Broken(String),
}

impl Replica {
    pub(super) fn new<SM>(
        raft: &Raft<TypeConfig, SM>,
        node: u64,
        timing: &Timing,
        contact: Arc<Contact>,
    ) -> Self
    where
        SM: RaftStateMachine<TypeConfig>,
    {
        let (proposals, queue) = mpsc::channel(propose::QUEUE_MAX);
        tokio::spawn(propose::run(raft.clone(), queue));
        let (waiters, queue) = mpsc::channel(confirm::QUEUE_MAX);
        let rounds = Arc::new(AtomicU64::new(0));
        let told = confirm::Told { rounds: rounds.clone(), contact: contact.clone() };
        tokio::spawn(confirm::run(raft.clone(), queue, timing.confirm, told));
        let (seen, leadership) = watch::channel(Leadership::default());
        tokio::spawn(status::follow_leadership(raft.server_metrics(), seen, contact.clone()));
        let shared = Shared {
            node,
            timing: timing.clone(),
            proposals,
            waiters,
            rounds,
            contact,
            presence: Arc::default(),
            metrics: raft.metrics(),
            leadership,
            control: Arc::new(raft.clone()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// This node.
    pub fn node(&self) -> u64 {
        self.shared.node
    }

    /// Appends a command and awaits its outcome, applied here.
    ///
    /// It may wait as long as a partition lasts: whoever gives up earlier must take
    /// the outcome for unknown.
    ///
    /// # Errors
    /// See [`ProposeError`]; only `Unknown` leaves open whether it takes effect.
    pub async fn propose(
        &self,
        command: EncodedCommand,
    ) -> Result<(Position, Outcome), ProposeError> {
        self.propose_when(command, None).await
    }

    /// As [`Replica::propose`], but appended only in `term`: for what a leader
    /// decided by its own clock in its own term.
    ///
    /// # Errors
    /// As [`Replica::propose`]; `NotLeader` if another term has begun.
    pub async fn propose_in(
        &self,
        term: Term,
        command: EncodedCommand,
    ) -> Result<(Position, Outcome), ProposeError> {
        self.propose_when(command, Some(term)).await
    }

    async fn propose_when(
        &self,
        command: EncodedCommand,
        term: Option<Term>,
    ) -> Result<(Position, Outcome), ProposeError> {
        // A leader fresh from its election refuses for a moment, until a quorum has
        // answered it. That refusal is definite, so trying again is safe.
        let until = clock::timer() + self.shared.timing.election_max;
        loop {
            let (answer, outcome) = oneshot::channel();
            let proposal = Proposal { command: command.clone(), term, answer };
            if self.shared.proposals.send(proposal).await.is_err() {
                return Err(ProposeError::Unknown);
            }
            match outcome.await {
                Ok(Err(ProposeError::NoQuorum)) if clock::timer() < until => {
                    tokio::time::sleep(RETRY).await;
                }
                Ok(result) => return result,
                Err(_) => return Err(ProposeError::Unknown),
            }
        }
    }

    /// Has a quorum confirm, in a round that begins after this call, that this node
    /// leads, and waits until what was committed by then is applied here. Bounded
    /// by [`Timing::confirm`], once for the round and once for the applying.
    ///
    /// # Errors
    /// See [`ConfirmError`].
    pub async fn confirm_leadership(&self) -> Result<Confirmed, ConfirmError> {
        let (waiter, confirmed) = oneshot::channel();
        let gone = ConfirmError::NotLeader { leader: None };
        self.shared.waiters.send(waiter).await.map_err(|_| gone.clone())?;
        confirmed.await.map_err(|_| gone)?
    }

    /// Who leads: hints for routing, and the beginnings and ends of terms; never a
    /// proof.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.shared.leadership.clone()
    }

    /// Whether this node has heard of a majority lately, as its leader or from one, and
    /// each change of that. Without, nothing new is learned here, and nobody who asks
    /// here would know. (A follower still takes the leader that it lost for the leader.)
    pub fn contact(&self) -> watch::Receiver<bool> {
        self.shared.contact.kept()
    }

    /// All that this node knows, at one moment.
    pub fn status(&self) -> Status {
        let metrics = self.shared.metrics.borrow_watched().clone();
        let presence = self.shared.presence.load(Ordering::Relaxed);
        status::status(&metrics, presence, self.shared.rounds.load(Ordering::Relaxed))
    }

    /// Hands leadership to the live voter with the longest log, and waits until it
    /// leads. Answers who that is.
    ///
    /// # Errors
    /// See [`TransferError`]. After `TimedOut` this node takes no proposals until
    /// some node is elected.
    pub async fn transfer_leadership(&self) -> Result<u64, TransferError> {
        let status = self.status();
        if status.role != Role::Leader {
            return Err(TransferError::NotLeader);
        }
        let fresh = self.shared.timing.heartbeat * 3;
        let alive = |m: &&MemberStatus| {
            m.voter && m.node != self.shared.node && m.last_ack_age.is_some_and(|age| age <= fresh)
        };
        let successor = status.members.iter().filter(alive).max_by_key(|m| m.matched);
        let successor = successor.ok_or(TransferError::NoSuccessor)?.node;
        self.shared.control.transfer_to(successor).await;
        let mut leadership = self.leadership();
        let moved = leadership.wait_for(|l| l.term > status.term && l.leader.is_some() && !l.here);
        let within = self.shared.timing.election_max * 2;
        match tokio::time::timeout(within, moved).await {
            Ok(Ok(seen)) => Ok(seen.leader.as_ref().map_or(successor, |(node, _)| *node)),
            Ok(Err(_)) | Err(_) => Err(TransferError::TimedOut(successor)),
        }
    }

    /// Hands leadership over if it is here, then stops.
    pub async fn shutdown(&self) {
        match self.transfer_leadership().await {
            Ok(successor) => tracing::info!("leadership went to node {successor}"),
            Err(TransferError::NotLeader) => {}
            Err(e) => tracing::warn!("stopping without handing leadership over: {e}"),
        }
        self.shared.control.shutdown().await;
    }

    /// Resolves when the replica has come to an end.
    pub async fn ended(&self) -> Ended {
        let mut metrics = self.shared.metrics.clone();
        loop {
            let state = metrics.borrow_watched().running_state.clone();
            match state {
                Err(Fatal::Stopped) => return Ended::Shutdown,
                Err(Fatal::Panicked) => return Ended::Broken("the raft core panicked".into()),
                Err(Fatal::StorageError(error)) => return Ended::Broken(error.to_string()),
                Ok(()) => {}
            }
            if metrics.changed().await.is_err() {
                return Ended::Shutdown;
            }
        }
    }

    /// Ends the process with one line if the replica breaks. To be spawned by the
    /// server; an orderly shutdown lets it return.
    pub async fn stop_process_when_broken(&self) {
        if let Ended::Broken(why) = self.ended().await {
            let node = self.shared.node;
            tracing::error!("node {node} stops: {why}");
            eprintln!("ringfence: node {node} stops: {why}");
            std::process::exit(EXIT_BROKEN);
        }
    }

    /// Set while a presence stream to the leader is held.
    pub(super) fn presence(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.presence)
    }

    pub(super) fn control(&self) -> &dyn Control {
        &*self.shared.control
    }
}

/// The process's exit code when its replica breaks (`EX_SOFTWARE`).
pub const EXIT_BROKEN: i32 = 70;

/// openraft's handle without the type of its state machine.
pub(super) trait Control: Send + Sync {
    fn transfer_to(&self, node: u64) -> BoxFuture<'_, ()>;
    fn shutdown(&self) -> BoxFuture<'_, ()>;
    /// Whether the log has a membership.
    fn is_initialized(&self) -> BoxFuture<'_, Result<bool, String>>;
    /// Writes the first membership; true also if there is one already.
    fn initialize(&self, members: BTreeMap<u64, Member>) -> BoxFuture<'_, Result<(), String>>;
}

impl<SM: RaftStateMachine<TypeConfig>> Control for Raft<TypeConfig, SM> {
    fn transfer_to(&self, node: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.trigger().transfer_leader(node).await.ok();
        })
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Err(error) = Self::shutdown(self).await {
                tracing::error!("the raft core did not end well: {error}");
            }
        })
    }

    fn is_initialized(&self) -> BoxFuture<'_, Result<bool, String>> {
        Box::pin(async move { Self::is_initialized(self).await.map_err(|e| e.to_string()) })
    }

    fn initialize(&self, members: BTreeMap<u64, Member>) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            match Self::initialize(self, members).await {
                Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}
