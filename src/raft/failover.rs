//! Fast failover. When the leader's process dies, its connections break at once;
//! waiting out the election timeout would be waiting for news that is already
//! here. Every follower keeps a presence stream to the leader. When it breaks, and
//! the leader's process cannot be reached again, the follower gives up its lease on
//! that leader and stands for a pre-vote.
//!
//! A mere silence never counts: it is left to the election timeout. If the leader
//! lives after all, the pre-vote fails at the voters that still hear it, and
//! nothing is disturbed. No read relies on these leases; only elections do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use openraft::Raft;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use openraft::storage::RaftStateMachine;
use tokio::sync::watch;
use tonic::Streaming;

use super::network::link::{Lane, Links};
use super::status::Leadership;
use crate::clock;
use crate::raft_types::{Member, TypeConfig, Vote};
use crate::wire::peer::{PresenceRequest, PresenceResponse};

/// How long the other followers are given to see the break too.
const NOTICE: Duration = Duration::from_millis(3);
/// By how much each follower lets those with a lower number go first, so that they
/// do not split the vote.
const STAGGER: Duration = Duration::from_millis(20);
/// Between one follower's attempts, per voter.
const AGAIN: Duration = Duration::from_millis(30);
/// How long after a break the process is asked for again.
const PROBE: Duration = Duration::from_millis(200);

/// Watches whoever leads; runs until the replica ends.
pub(super) async fn run<SM>(
    raft: Raft<TypeConfig, SM>,
    links: Links,
    mut leadership: watch::Receiver<Leadership>,
    presence: Arc<AtomicBool>,
) where
    SM: RaftStateMachine<TypeConfig>,
{
    let node = *raft.node_id();
    loop {
        let leader = leadership.borrow_and_update().clone();
        let other = leader.leader.as_ref().is_some_and(|(id, _)| *id != node);
        let attended = async {
            if other {
                attend(&raft, &links, &leader, &presence).await
            } else {
                std::future::pending().await
            }
        };
        let lost = tokio::select! {
            changed = leadership.changed() => match changed {
                Ok(()) => None,
                Err(_) => return,
            },
            lost = attended => Some(lost),
        };
        presence.store(false, Ordering::Relaxed);
        // Not to be interrupted by a vote that this node or another asks for: only
        // by a new leader.
        if let Some((vote, id)) = lost {
            stand(&raft, vote, id).await;
        }
    }
}

/// Stays with one leader until its process seems gone. Answers its vote and number.
async fn attend<SM>(
    raft: &Raft<TypeConfig, SM>,
    links: &Links,
    leader: &Leadership,
    presence: &AtomicBool,
) -> (Vote, u64)
where
    SM: RaftStateMachine<TypeConfig>,
{
    let (vote, id, member) = loop {
        match leader_of(raft) {
            Some(found) => break found,
            None => tokio::time::sleep(links.timing().heartbeat).await,
        }
    };
    let mut known: Option<Bytes> = None;
    loop {
        match open(links, id, &member).await {
            Some((process, mut stream)) => {
                if known.as_ref().is_some_and(|known| *known != process) {
                    // Another process answers there: a restarted leader never
                    // leads on in its old term.
                    return (vote, id);
                }
                known = Some(process);
                presence.store(true, Ordering::Relaxed);
                while let Ok(Some(_)) = stream.message().await {}
                presence.store(false, Ordering::Relaxed);
            }
            None if known.is_some() => {
                tracing::info!("the process of leader {id} (term {}) is gone", leader.term);
                return (vote, id);
            }
            // Never reached in this term: the election timeout decides.
            None => tokio::time::sleep(links.timing().heartbeat).await,
        }
    }
}

/// The committed vote, the leader it names, and its entry in the membership.
fn leader_of<SM>(raft: &Raft<TypeConfig, SM>) -> Option<(Vote, u64, Member)>
where
    SM: RaftStateMachine<TypeConfig>,
{
    let metrics = raft.server_metrics();
    let metrics = metrics.borrow_watched();
    let id = metrics.current_leader?;
    let member = metrics.membership_config.get_node(&id)?.clone();
    (metrics.vote.committed && metrics.vote.leader_id.voted_for == id).then_some((
        metrics.vote,
        id,
        member,
    ))
}

/// Asks the process at the leader's address for its name; none if it cannot be
/// reached soon.
async fn open(
    links: &Links,
    id: u64,
    member: &Member,
) -> Option<(Bytes, Streaming<PresenceResponse>)> {
    let link = links.to(id, member, Lane::Presence);
    let opened = link.call(PresenceRequest {}, PROBE, {
        |mut client, request| async move { client.presence(request).await }
    });
    let mut stream = opened.await.ok()?;
    let first = tokio::time::timeout(PROBE, stream.message()).await.ok()?.ok()??;
    Some((first.process, stream))
}

/// Gives up the lease on the lost leader and asks for pre-votes until there is
/// another leader, or long enough for the election timeout to take over.
async fn stand<SM>(raft: &Raft<TypeConfig, SM>, lost: Vote, leader: u64)
where
    SM: RaftStateMachine<TypeConfig>,
{
    let node = *raft.node_id();
    let metrics = raft.server_metrics();
    let voters: Vec<u64> =
        metrics.borrow_watched().membership_config.voter_ids().filter(|v| *v != leader).collect();
    let Some(rank) = voters.iter().position(|v| *v == node) else { return };
    // The only way that openraft offers to end a follower's lease: a leader's word
    // that another (not this node) shall follow it.
    let release = TransferLeaderRequest::new(lost, leader, None);
    if !matches!(raft.handle_transfer_leader(release).await, Ok(Ok(()))) {
        return;
    }
    let rank = u32::try_from(rank).unwrap_or(u32::MAX);
    let rounds = u32::try_from(voters.len()).unwrap_or(u32::MAX);
    tokio::time::sleep(NOTICE + STAGGER.saturating_mul(rank) + jitter(2)).await;
    let until = clock::timer() + Duration::from_millis(raft.config().election_timeout_max);
    let mut again = AGAIN.saturating_mul(rounds);
    while clock::timer() < until && !replaced(raft, lost) {
        if raft.trigger().elect(true).await.is_err() {
            return;
        }
        // Votes may have been split, or a disk may be slow: try again, ever later.
        tokio::time::sleep(again + jitter(30)).await;
        again = again.saturating_mul(2);
    }
}

/// Whether another leader than the lost one is known.
fn replaced<SM>(raft: &Raft<TypeConfig, SM>, lost: Vote) -> bool
where
    SM: RaftStateMachine<TypeConfig>,
{
    let vote = raft.server_metrics().borrow_watched().vote;
    vote != lost && vote.committed
}

fn jitter(ms: u64) -> Duration {
    Duration::from_micros(rand::random_range(0..ms * 1_000))
}
