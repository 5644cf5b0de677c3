//! What openraft is told of our types. It appears here, in `storage/log` and in
//! `raft/`, and nowhere else.

use std::fmt;

use bytes::Bytes;

use crate::locks::Outcome;

/// One command in its stored form (`storage.v1.Command`): encoded once where it
/// is proposed; the same bytes go to every disk and every peer.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedCommand(pub Bytes);

impl fmt::Debug for EncodedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedCommand({} bytes)", self.0.len())
    }
}

impl fmt::Display for EncodedCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "command of {} bytes", self.0.len())
    }
}

/// A member as the membership log entry records it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// Where peers and clients reach it, `host:port`.
    pub address: String,
    /// The random identity of its data folder: a wiped folder has another one and
    /// is refused.
    pub incarnation: [u8; 16],
}

openraft::declare_raft_types!(
    /// Leader ids are those of the Raft paper: one leader per term, so that a
    /// committed leader id is its term.
    pub TypeConfig:
        D = EncodedCommand,
        R = Outcome,
        NodeId = u64,
        Node = Member,
        LeaderId = openraft::impls::leader_id_std::LeaderId<Self::Term, Self::NodeId>,
);

/// A log id: term and index.
pub type LogId = openraft::alias::LogIdOf<TypeConfig>;
/// A log entry.
pub type Entry = openraft::alias::EntryOf<TypeConfig>;
/// A vote.
pub type Vote = openraft::alias::VoteOf<TypeConfig>;
/// A membership with the id of the entry that set it.
pub type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
/// What an entry carries.
pub type EntryPayload = openraft::alias::EntryPayloadOf<TypeConfig>;
/// Who is in the cluster.
pub type Membership = openraft::Membership<u64, Member>;
/// Who leads a term.
pub type LeaderId = openraft::alias::LeaderIdOf<TypeConfig>;
/// The leader of a log entry: under [`LeaderId`]'s rule, its term.
pub type CommittedLeaderId = openraft::alias::CommittedLeaderIdOf<TypeConfig>;
/// Called once, when what it was handed over with is on disk or has failed.
pub type Flushed = openraft::storage::IOFlushed<TypeConfig>;
/// What a snapshot covers.
pub type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;
