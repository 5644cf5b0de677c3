//! Between openraft's messages and the peer protocol's. Nothing here panics on
//! what came from outside: what cannot be read is `Malformed`.

use openraft::alias::{CommittedLeaderIdOf, SnapshotMetaOf};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use tonic::Status;

use crate::raft_types::{LogId, StoredMembership, TypeConfig, Vote};
use crate::storage::format::{
    FormatError, decode_entry, decode_membership, encode_entry, encode_membership,
};
use crate::wire::peer;

/// A message from a peer that cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("malformed peer message: {0}")]
pub struct Malformed(pub String);

impl Malformed {
    pub(crate) fn of(what: &str) -> Self {
        Self(what.to_owned())
    }
}

impl From<FormatError> for Malformed {
    fn from(error: FormatError) -> Self {
        Self(error.to_string())
    }
}

impl From<Malformed> for Status {
    fn from(malformed: Malformed) -> Self {
        Self::invalid_argument(malformed.to_string())
    }
}

pub(crate) fn log_id_to_wire(id: &LogId) -> peer::LogId {
    peer::LogId { term: id.leader_id.term, index: id.index }
}

pub(crate) fn log_id_from_wire(id: peer::LogId) -> LogId {
    LogId { leader_id: CommittedLeaderIdOf::<TypeConfig>::new(id.term), index: id.index }
}

pub(crate) fn vote_to_wire(vote: &Vote) -> peer::Vote {
    peer::Vote {
        term: vote.leader_id.term,
        node_id: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(crate) fn vote_from_wire(vote: Option<peer::Vote>) -> Result<Vote, Malformed> {
    let vote = vote.ok_or(Malformed::of("vote is missing"))?;
    Ok(match vote.committed {
        true => Vote::new_committed(vote.term, vote.node_id),
        false => Vote::new(vote.term, vote.node_id),
    })
}

pub(crate) fn append_to_wire(request: &AppendEntriesRequest<TypeConfig>) -> peer::AppendRequest {
    peer::AppendRequest {
        vote: Some(vote_to_wire(&request.vote)),
        prev_log_id: request.prev_log_id.as_ref().map(log_id_to_wire),
        entries: request.entries.iter().map(encode_entry).collect(),
        leader_commit: request.leader_commit.as_ref().map(log_id_to_wire),
        silent_ms: 0,
    }
}

/// Also checks that the entries follow `prev_log_id` without a gap: openraft takes
/// that for granted.
pub(crate) fn append_from_wire(
    request: peer::AppendRequest,
) -> Result<AppendEntriesRequest<TypeConfig>, Malformed> {
    let entries: Vec<_> =
        request.entries.into_iter().map(decode_entry).collect::<Result<_, _>>()?;
    let mut next = request.prev_log_id.map_or(0, |id| id.index.saturating_add(1));
    for entry in &entries {
        if entry.log_id.index != next {
            return Err(Malformed::of("entries do not follow each other"));
        }
        next = next.saturating_add(1);
    }
    Ok(AppendEntriesRequest {
        vote: vote_from_wire(request.vote)?,
        prev_log_id: request.prev_log_id.map(log_id_from_wire),
        entries,
        leader_commit: request.leader_commit.map(log_id_from_wire),
    })
}

pub(crate) fn appended_to_wire(result: &StreamAppendResult<TypeConfig>) -> peer::AppendResponse {
    use peer::append_response::Result as Wire;
    let result = match result {
        Ok(matched) => {
            Wire::Matched(peer::Matched { log_id: matched.as_ref().map(log_id_to_wire) })
        }
        Err(StreamAppendError::Conflict(at)) => Wire::Conflict(log_id_to_wire(at)),
        Err(StreamAppendError::HigherVote(vote)) => Wire::HigherVote(vote_to_wire(vote)),
    };
    peer::AppendResponse { result: Some(result) }
}

pub(crate) fn appended_from_wire(
    response: peer::AppendResponse,
) -> Result<StreamAppendResult<TypeConfig>, Malformed> {
    use peer::append_response::Result as Wire;
    Ok(match response.result.ok_or(Malformed::of("an answer without a result"))? {
        Wire::Matched(matched) => Ok(matched.log_id.map(log_id_from_wire)),
        Wire::Conflict(at) => Err(StreamAppendError::Conflict(log_id_from_wire(at))),
        Wire::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote_from_wire(Some(vote))?)),
    })
}

pub(crate) fn vote_request_to_wire(request: &VoteRequest<TypeConfig>) -> peer::VoteRequest {
    peer::VoteRequest {
        vote: Some(vote_to_wire(&request.vote)),
        last_log_id: request.last_log_id.as_ref().map(log_id_to_wire),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_from_wire(
    request: peer::VoteRequest,
) -> Result<VoteRequest<TypeConfig>, Malformed> {
    Ok(VoteRequest {
        vote: vote_from_wire(request.vote)?,
        last_log_id: request.last_log_id.map(log_id_from_wire),
        leadership_transfer: request.leadership_transfer,
    })
}

pub(crate) fn vote_response_to_wire(response: &VoteResponse<TypeConfig>) -> peer::VoteResponse {
    peer::VoteResponse {
        vote: Some(vote_to_wire(&response.vote)),
        granted: response.vote_granted,
        last_log_id: response.last_log_id.as_ref().map(log_id_to_wire),
    }
}

pub(crate) fn vote_response_from_wire(
    response: peer::VoteResponse,
) -> Result<VoteResponse<TypeConfig>, Malformed> {
    let vote = vote_from_wire(response.vote)?;
    Ok(VoteResponse::new(vote, response.last_log_id.map(log_id_from_wire), response.granted))
}

pub(crate) fn transfer_to_wire(
    request: &TransferLeaderRequest<TypeConfig>,
) -> peer::TransferLeaderRequest {
    peer::TransferLeaderRequest {
        from_leader: Some(vote_to_wire(request.from_leader())),
        to_node: *request.to_node_id(),
        last_log_id: request.last_log_id().map(log_id_to_wire),
    }
}

pub(crate) fn transfer_from_wire(
    request: peer::TransferLeaderRequest,
) -> Result<TransferLeaderRequest<TypeConfig>, Malformed> {
    let from = vote_from_wire(request.from_leader)?;
    let last = request.last_log_id.map(log_id_from_wire);
    Ok(TransferLeaderRequest::new(from, request.to_node, last))
}

pub(crate) fn transferred_to_wire(
    response: &TransferLeaderResponse<TypeConfig>,
) -> peer::TransferLeaderResponse {
    use peer::transfer_leader_response::Refused;
    let refused = match response {
        Ok(()) => None,
        Err(TransferLeaderError::VoteChanged { actual, .. }) => {
            Some(Refused::VoteChanged(vote_to_wire(actual)))
        }
        Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
            Some(Refused::LogBehind(peer::Matched { log_id: actual.as_ref().map(log_id_to_wire) }))
        }
    };
    peer::TransferLeaderResponse { refused }
}

pub(crate) fn transferred_from_wire(
    request: &TransferLeaderRequest<TypeConfig>,
    response: peer::TransferLeaderResponse,
) -> Result<TransferLeaderResponse<TypeConfig>, Malformed> {
    use peer::transfer_leader_response::Refused;
    Ok(match response.refused {
        None => Ok(()),
        Some(Refused::VoteChanged(actual)) => Err(TransferLeaderError::VoteChanged {
            expected: *request.from_leader(),
            actual: vote_from_wire(Some(actual))?,
        }),
        Some(Refused::LogBehind(matched)) => Err(TransferLeaderError::LogNotFlushed {
            expected: request.last_log_id().copied(),
            actual: matched.log_id.map(log_id_from_wire),
        }),
    })
}

/// The version of the snapshot's rows on the wire.
pub(crate) const SNAPSHOT_FORMAT: u32 = 1;

pub(crate) fn snapshot_header(
    vote: &Vote,
    meta: &SnapshotMetaOf<TypeConfig>,
) -> peer::SnapshotHeader {
    let membership = &meta.last_membership;
    peer::SnapshotHeader {
        vote: Some(vote_to_wire(vote)),
        last_log_id: meta.last_log_id.as_ref().map(log_id_to_wire),
        membership_log_id: membership.log_id().as_ref().map(log_id_to_wire),
        membership: encode_membership(membership.membership()),
        format_version: SNAPSHOT_FORMAT,
    }
}

pub(crate) fn snapshot_meta(
    header: peer::SnapshotHeader,
) -> Result<(Vote, SnapshotMetaOf<TypeConfig>), Malformed> {
    if header.format_version != SNAPSHOT_FORMAT {
        return Err(Malformed::of("a snapshot in a format that this version does not know"));
    }
    let membership = decode_membership(header.membership)?;
    let membership_at = header.membership_log_id.map(log_id_from_wire);
    let meta = SnapshotMetaOf::<TypeConfig> {
        last_log_id: header.last_log_id.map(log_id_from_wire),
        last_membership: StoredMembership::new(membership_at, membership),
    };
    Ok((vote_from_wire(header.vote)?, meta))
}
