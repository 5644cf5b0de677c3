//! Stored forms of what Raft knows: log entries, votes, log ids, memberships, how
//! far the rows are. The bytes are frozen by `tests/formats.rs`; the network uses
//! the same form for entries and memberships.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};
use prost::Message;

use crate::raft_types::{
    CommittedLeaderId, EncodedCommand, Entry, EntryPayload, LeaderId, LogId, Member, Membership,
    StoredMembership, Vote,
};
use crate::wire::storage as pb;
use pb::log_entry::Payload;

/// The version a data folder carries. A release reads this and all earlier ones.
pub const FORMAT_VERSION: u32 = 1;

/// Stored bytes are not a record of their kind.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Not protobuf, or not of this message.
    #[error("undecodable ({0})")]
    Undecodable(#[from] prost::DecodeError),
    /// A field that this release needs is missing or out of bounds, as in records
    /// of a newer release.
    #[error("{0}")]
    Field(&'static str),
}

/// How far the rows are: what they are the result of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppliedState {
    /// The last entry whose changes they hold.
    pub last_applied: Option<LogId>,
    /// The last membership among the entries applied.
    pub membership: StoredMembership,
}

/// `storage.v1.LogEntry`. One allocation; the command's bytes are copied once.
pub fn encode_entry(entry: &Entry) -> Bytes {
    entry_message(entry).encode_to_vec().into()
}

/// As [`encode_entry`], appended to `out`, so that a writer of many allocates
/// nothing.
pub fn encode_entry_into(entry: &Entry, out: &mut Vec<u8>) {
    entry_message(entry).encode(out).expect("a Vec has room for any message");
}

/// Reads `storage.v1.LogEntry`. From [`Bytes`] the command is a slice of the
/// input, not a copy.
///
/// # Errors
/// Not such a message, or one without a payload that this release knows.
pub fn decode_entry(bytes: impl Buf) -> Result<Entry, FormatError> {
    let entry = pb::LogEntry::decode(bytes)?;
    let payload = match entry.payload.ok_or(FormatError::Field("log entry of an unknown kind"))? {
        Payload::Blank(pb::Blank {}) => EntryPayload::Blank,
        Payload::Command(command) => EntryPayload::Normal(EncodedCommand(command)),
        Payload::Membership(membership) => {
            EntryPayload::Membership(membership_from_message(membership)?)
        }
    };
    Ok(Entry { log_id: log_id(entry.term, entry.index), payload })
}

fn entry_message(entry: &Entry) -> pb::LogEntry {
    let payload = match &entry.payload {
        EntryPayload::Blank => Payload::Blank(pb::Blank {}),
        EntryPayload::Normal(EncodedCommand(command)) => Payload::Command(command.clone()),
        EntryPayload::Membership(membership) => Payload::Membership(membership_message(membership)),
    };
    pb::LogEntry {
        term: entry.log_id.leader_id.term,
        index: entry.log_id.index,
        payload: Some(payload),
    }
}

/// The log id of an entry that the leader of `term` wrote at `index`.
pub fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId { term }, index)
}

/// `storage.v1.LogId`.
pub fn encode_log_id(id: &LogId) -> Bytes {
    log_id_message(id).encode_to_vec().into()
}

/// Reads `storage.v1.LogId`.
///
/// # Errors
/// Not such a message.
pub fn decode_log_id(bytes: impl Buf) -> Result<LogId, FormatError> {
    Ok(log_id_from_message(&pb::LogId::decode(bytes)?))
}

fn log_id_message(id: &LogId) -> pb::LogId {
    pb::LogId { term: id.leader_id.term, index: id.index }
}

fn log_id_from_message(id: &pb::LogId) -> LogId {
    log_id(id.term, id.index)
}

/// `storage.v1.Vote`.
pub fn encode_vote(vote: &Vote) -> Bytes {
    let vote = pb::Vote {
        term: vote.leader_id.term,
        node_id: vote.leader_id.voted_for,
        committed: vote.committed,
    };
    vote.encode_to_vec().into()
}

/// Reads `storage.v1.Vote`.
///
/// # Errors
/// Not such a message.
pub fn decode_vote(bytes: impl Buf) -> Result<Vote, FormatError> {
    let vote = pb::Vote::decode(bytes)?;
    let leader_id = LeaderId { term: vote.term, voted_for: vote.node_id };
    Ok(Vote { leader_id, committed: vote.committed })
}

/// `storage.v1.Membership`.
pub fn encode_membership(membership: &Membership) -> Bytes {
    membership_message(membership).encode_to_vec().into()
}

/// Reads `storage.v1.Membership`.
///
/// # Errors
/// Not such a message, an incarnation that is not 16 bytes, or a voter that is no
/// node of it.
pub fn decode_membership(bytes: impl Buf) -> Result<Membership, FormatError> {
    membership_from_message(pb::Membership::decode(bytes)?)
}

fn membership_message(membership: &Membership) -> pb::Membership {
    let voters = |ids: &BTreeSet<u64>| pb::Voters { node_ids: ids.iter().copied().collect() };
    let node = |(id, member): (&u64, &Member)| pb::Node {
        node_id: *id,
        address: member.address.clone(),
        incarnation: Bytes::copy_from_slice(&member.incarnation),
    };
    pb::Membership {
        configs: membership.get_joint_config().iter().map(voters).collect(),
        nodes: membership.nodes().map(node).collect(),
    }
}

fn membership_from_message(membership: pb::Membership) -> Result<Membership, FormatError> {
    let configs = membership.configs.into_iter().map(|c| c.node_ids.into_iter().collect());
    let mut nodes = BTreeMap::new();
    for node in membership.nodes {
        let incarnation = <[u8; 16]>::try_from(&node.incarnation[..])
            .map_err(|_| FormatError::Field("a node's incarnation is not 16 bytes"))?;
        nodes.insert(node.node_id, Member { address: node.address, incarnation });
    }
    Membership::new(configs.collect(), nodes)
        .map_err(|_| FormatError::Field("a membership with an empty set or an unknown voter"))
}

/// `storage.v1.Applied`.
pub fn encode_applied(applied: &AppliedState) -> Bytes {
    let applied = pb::Applied {
        last_applied: applied.last_applied.as_ref().map(log_id_message),
        membership_log_id: applied.membership.log_id().as_ref().map(log_id_message),
        membership: Some(membership_message(applied.membership.membership())),
    };
    applied.encode_to_vec().into()
}

/// Reads `storage.v1.Applied`.
///
/// # Errors
/// Not such a message, or as [`decode_membership`].
pub fn decode_applied(bytes: impl Buf) -> Result<AppliedState, FormatError> {
    let applied = pb::Applied::decode(bytes)?;
    let membership = membership_from_message(applied.membership.unwrap_or_default())?;
    let set_by = applied.membership_log_id.as_ref().map(log_id_from_message);
    Ok(AppliedState {
        last_applied: applied.last_applied.as_ref().map(log_id_from_message),
        membership: StoredMembership::new(set_by, membership),
    })
}
