//! What this node knows of the cluster. Answers without a quorum, so that it answers
//! when nothing else does.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::node::Node;
use crate::raft::{MemberStatus, Role};
use crate::wire::v1;
use crate::wire::v1::cluster_server::Cluster;

/// `ringfence.v1.Cluster`.
#[derive(Clone)]
pub struct ClusterService(pub Arc<Node>);

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn status(
        &self,
        _request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusResponse>, Status> {
        Ok(Response::new(status(&self.0)))
    }
}

fn status(node: &Node) -> v1::StatusResponse {
    let (raft, written) = (node.replica.status(), (node.written)());
    let state = node.authority.lock();
    let (sessions, grants, waits) = state.table.counts();
    let leader = raft.leadership.leader.clone().unwrap_or_default();
    let cluster = state.table.cluster();
    v1::StatusResponse {
        cluster_id: cluster.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(id.as_bytes())),
        node_id: raft.node,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role: role(raft.role).to_owned(),
        term: raft.term.0,
        leader_id: leader.0,
        leader: leader.1,
        committed: raft.committed.map_or(0, |at| at.index),
        applied: state.table.position().index,
        last_log: raft.last_log.unwrap_or(0),
        purged: raft.purged.map_or(0, |at| at.index),
        state_hash: Bytes::copy_from_slice(&state.table.state_hash().0.to_be_bytes()),
        state_hash_index: state.table.position().index,
        members: raft.members.iter().map(member).collect(),
        sessions: sessions as u64,
        grants: grants as u64,
        waits: waits as u64,
        token: state.table.token(),
        quorum_ack_age_ms: raft.quorum_ack_age.map_or(0, whole_ms),
        synced_writes: written.synced_writes,
        written_entries: written.entries,
        written_rows: written.rows,
        written_bytes: written.bytes,
        confirm_rounds: raft.confirm_rounds,
        postponed_ms: whole_ms(state.leases.stalled()),
        watchers: node.authority.watchers().len() as u64,
        events_kept: state.feed.len() as u64,
        events_since: state.feed.since().index,
    }
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Candidate => "candidate",
        Role::Follower => "follower",
        Role::Learner => "learner",
        Role::Stopped => "stopped",
    }
}

fn member(member: &MemberStatus) -> v1::Member {
    v1::Member {
        node_id: member.node,
        address: member.address.clone(),
        voter: member.voter,
        matched: member.matched.unwrap_or(0),
        last_ack_ms: member.last_ack_age.map_or(0, whole_ms),
    }
}

fn whole_ms(age: std::time::Duration) -> u64 {
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}
