//! What this node knows of the cluster: hints for routing, and figures for people.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::WatchReceiver;
use openraft::metrics::{RaftMetrics, RaftServerMetrics};
use openraft::{Instant, ServerState};
use tokio::sync::watch;

use super::contact::Contact;
use crate::locks::{Position, Term};
use crate::raft_types::{LogId, Member, StoredMembership, TypeConfig};

/// Who leads, as far as this node has heard. A hint: it may lag, and a leader cut
/// off from the others still believes in itself. What must be safe goes by
/// [`super::Replica::confirm_leadership`] or the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leadership {
    /// The highest term seen.
    pub term: Term,
    /// The leader of that term and its address, once known.
    pub leader: Option<(u64, String)>,
    /// Whether it is this node.
    pub here: bool,
}

/// What a node is in the present term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Leads.
    Leader,
    /// Stands for election.
    Candidate,
    /// Follows, and votes.
    Follower,
    /// Receives the log without a vote, or knows no membership yet.
    Learner,
    /// Has stopped.
    Stopped,
}

/// A node's own view, for status and metrics.
#[derive(Debug, Clone)]
pub struct Status {
    /// This node.
    pub node: u64,
    /// Its role.
    pub role: Role,
    /// The present term.
    pub term: Term,
    /// Whom this node voted for in it, and whether that one won.
    pub vote: (u64, bool),
    /// Who leads.
    pub leadership: Leadership,
    /// Index of the last entry in the log.
    pub last_log: Option<u64>,
    /// The last entry known to be committed.
    pub committed: Option<Position>,
    /// The last entry applied here.
    pub applied: Option<Position>,
    /// The last entry covered by a snapshot.
    pub snapshot: Option<Position>,
    /// The last entry no longer in the log.
    pub purged: Option<Position>,
    /// The members, by number.
    pub members: Vec<MemberStatus>,
    /// On a leader: how long ago the request was sent that a quorum last answered.
    pub quorum_ack_age: Option<Duration>,
    /// On a follower: whether it holds a presence stream to the leader, and so would
    /// notice at once if the leader's process died.
    pub presence: bool,
    /// How many rounds of [`super::Replica::confirm_leadership`] were begun here.
    pub confirm_rounds: u64,
}

/// A member as the leader sees it; followers know only who the members are.
#[derive(Debug, Clone)]
pub struct MemberStatus {
    /// Its number.
    pub node: u64,
    /// Its address.
    pub address: String,
    /// The identity of its data folder.
    pub incarnation: [u8; 16],
    /// Whether it votes.
    pub voter: bool,
    /// On a leader: up to where its log is known to match.
    pub matched: Option<u64>,
    /// On a leader: how long ago the last request was sent that it answered.
    pub last_ack_age: Option<Duration>,
}

/// A log id in the words of the rules.
pub(crate) fn position(id: &LogId) -> Position {
    Position { term: Term(id.leader_id.term), index: id.index }
}

/// Where the membership says a node is.
pub(crate) fn address_of(membership: &StoredMembership, node: u64) -> Option<(u64, String)> {
    membership.get_node(&node).map(|member| (node, member.address.clone()))
}

pub(crate) fn leadership(metrics: &RaftServerMetrics<TypeConfig>) -> Leadership {
    let leader = metrics.current_leader;
    Leadership {
        term: Term(metrics.vote.leader_id.term),
        leader: leader.and_then(|node| address_of(&metrics.membership_config, node)),
        here: metrics.state == ServerState::Leader && leader == Some(metrics.id),
    }
}

/// The whole picture at one moment.
pub(crate) fn status(
    metrics: &RaftMetrics<TypeConfig>,
    presence: bool,
    confirm_rounds: u64,
) -> Status {
    let leader = metrics.current_leader;
    let membership = &metrics.membership_config;
    let term = Term(metrics.current_term);
    let at = |id: &Option<LogId>| id.as_ref().map(position);
    let acked = metrics.last_quorum_acked.map(|at| at.into_inner().elapsed());
    let alone = membership.voter_ids().all(|voter| voter == metrics.id);
    Status {
        node: metrics.id,
        role: role(metrics),
        term,
        vote: (metrics.vote.leader_id.voted_for, metrics.vote.committed),
        leadership: Leadership {
            term,
            leader: leader.and_then(|node| address_of(membership, node)),
            here: metrics.state == ServerState::Leader,
        },
        last_log: metrics.last_log_index,
        committed: at(&metrics.local_committed),
        applied: at(&metrics.last_applied),
        snapshot: at(&metrics.snapshot),
        purged: at(&metrics.purged),
        members: members(metrics),
        // A sole voter is its own majority at every moment.
        quorum_ack_age: acked.map(|age| if alone { Duration::ZERO } else { age }),
        presence,
        confirm_rounds,
    }
}

fn role(metrics: &RaftMetrics<TypeConfig>) -> Role {
    if metrics.running_state.is_err() {
        return Role::Stopped;
    }
    match metrics.state {
        ServerState::Leader => Role::Leader,
        ServerState::Candidate => Role::Candidate,
        ServerState::Follower => Role::Follower,
        ServerState::Learner => Role::Learner,
        ServerState::Shutdown => Role::Stopped,
    }
}

fn members(metrics: &RaftMetrics<TypeConfig>) -> Vec<MemberStatus> {
    let membership = &metrics.membership_config;
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let matched = |node: &u64| metrics.replication.as_ref()?.get(node)?.as_ref().map(|id| id.index);
    let acked = |node: &u64| *metrics.heartbeat.as_ref()?.get(node)?;
    let member = |(node, member): (&u64, &Member)| MemberStatus {
        node: *node,
        address: member.address.clone(),
        incarnation: member.incarnation,
        voter: voters.contains(node),
        matched: matched(node),
        last_ack_age: acked(node).map(|at| at.into_inner().elapsed()),
    };
    membership.nodes().map(member).collect()
}

/// Keeps `leadership` true to openraft's own watch, until that closes. An election that
/// is won here is contact with a majority.
pub(crate) async fn follow_leadership(
    mut metrics: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    seen: watch::Sender<Leadership>,
    contact: Arc<Contact>,
) {
    loop {
        let now = leadership(&metrics.borrow_watched());
        seen.send_if_modified(|known| {
            let changed = *known != now;
            if changed && now.here {
                contact.heard(0);
            }
            *known = now;
            changed
        });
        if metrics.changed().await.is_err() {
            return;
        }
    }
}
