//! A log entry's stored bytes: the same go to disk and to peers.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::alias::{CommittedLeaderIdOf, PayloadOf};
use openraft::{EntryPayload, Membership};
use prost::Message;

use super::convert::Malformed;
use crate::raft_types::{EncodedCommand, Entry, LogId, Member, TypeConfig};
use crate::wire::storage as wire;

type Payload = PayloadOf<TypeConfig>;

pub(crate) fn encode(entry: &Entry) -> Bytes {
    use wire::log_entry::Payload as Wire;
    let payload = match &entry.payload {
        EntryPayload::Blank => Wire::Blank(wire::Blank {}),
        EntryPayload::Normal(command) => Wire::Command(command.0.clone()),
        EntryPayload::Membership(membership) => Wire::Membership(membership_to_wire(membership)),
    };
    let entry = wire::LogEntry {
        term: entry.log_id.leader_id.term,
        index: entry.log_id.index,
        payload: Some(payload),
    };
    entry.encode_to_vec().into()
}

pub(crate) fn decode(bytes: Bytes) -> Result<Entry, Malformed> {
    use wire::log_entry::Payload as Wire;
    let entry = wire::LogEntry::decode(bytes).map_err(|_| Malformed("a log entry"))?;
    let payload = match entry.payload.ok_or(Malformed("a log entry without a payload"))? {
        Wire::Blank(wire::Blank {}) => Payload::Blank,
        Wire::Command(command) => Payload::Normal(EncodedCommand(command)),
        Wire::Membership(membership) => Payload::Membership(membership_from_wire(membership)?),
    };
    let leader_id = CommittedLeaderIdOf::<TypeConfig>::new(entry.term);
    Ok(Entry { log_id: LogId { leader_id, index: entry.index }, payload })
}

pub(crate) fn encode_membership(membership: &Membership<u64, Member>) -> Vec<u8> {
    membership_to_wire(membership).encode_to_vec()
}

pub(crate) fn decode_membership(bytes: Bytes) -> Result<Membership<u64, Member>, Malformed> {
    let wire = wire::Membership::decode(bytes).map_err(|_| Malformed("a membership"))?;
    membership_from_wire(wire)
}

fn membership_to_wire(membership: &Membership<u64, Member>) -> wire::Membership {
    let configs = membership.get_joint_config().iter();
    let nodes = membership.nodes();
    wire::Membership {
        configs: configs.map(|c| wire::Voters { node_ids: c.iter().copied().collect() }).collect(),
        nodes: nodes
            .map(|(id, member)| wire::Node {
                node_id: *id,
                address: member.address.clone(),
                incarnation: Bytes::copy_from_slice(&member.incarnation),
            })
            .collect(),
    }
}

fn membership_from_wire(wire: wire::Membership) -> Result<Membership<u64, Member>, Malformed> {
    let configs: Vec<BTreeSet<u64>> =
        wire.configs.into_iter().map(|c| c.node_ids.into_iter().collect()).collect();
    let mut nodes = BTreeMap::new();
    for node in wire.nodes {
        let incarnation =
            node.incarnation[..].try_into().map_err(|_| Malformed("an incarnation"))?;
        nodes.insert(node.node_id, Member { address: node.address, incarnation });
    }
    if configs.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|_| Malformed("a membership"))
}
