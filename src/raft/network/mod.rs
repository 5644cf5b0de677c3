//! The client side of the peer protocol: what openraft calls to reach another
//! node. openraft sets no limit of time on streams and snapshots, so every limit
//! is kept here; every failure is `Unreachable`, so that it backs off.

mod append;
pub(crate) mod convert;
pub mod envelope;
pub(crate) mod link;
mod snapshot;

use std::sync::Arc;

use futures::{Stream, StreamExt};
use openraft::RaftNetworkFactory;
use openraft::alias::SnapshotOf;
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::{RPCOption, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};

use self::link::{Lane, Link, Links};
use super::snapshot::SnapshotTransfer;
use crate::raft_types::{Member, TypeConfig, Vote};
use crate::wire::peer;

type RpcError = RPCError<TypeConfig>;
type Appended = Result<StreamAppendResult<TypeConfig>, RpcError>;

/// Makes the clients that openraft asks for.
pub(crate) struct Network<S> {
    links: Links,
    snapshots: Arc<S>,
}

impl<S: SnapshotTransfer> Network<S> {
    pub fn new(links: Links, snapshots: Arc<S>) -> Self {
        Self { links, snapshots }
    }

    fn client(&self, target: u64, node: &Member, lane: Lane) -> PeerLine<S> {
        let control = self.links.to(target, node, Lane::Control);
        let bulk = self.links.to(target, node, lane);
        PeerLine { bulk, control, snapshots: self.snapshots.clone() }
    }
}

impl<S: SnapshotTransfer> RaftNetworkFactory<TypeConfig> for Network<S> {
    type Network = PeerLine<S>;

    async fn new_client(&mut self, target: u64, node: &Member) -> PeerLine<S> {
        self.client(target, node, Lane::Append)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Member) -> PeerLine<S> {
        self.client(target, node, Lane::Control)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Member) -> PeerLine<S> {
        self.client(target, node, Lane::Snapshot)
    }
}

/// One of openraft's clients of one node. Votes and the like always go by the
/// control lane.
pub(crate) struct PeerLine<S> {
    bulk: Link,
    control: Link,
    snapshots: Arc<S>,
}

impl<S: SnapshotTransfer> PeerLine<S> {
    /// One request, one answer, over the control lane.
    async fn heartbeat(
        control: &Link,
        request: &AppendEntriesRequest<TypeConfig>,
        option: &RPCOption,
    ) -> Appended {
        let silent_ms = control.silent_ms();
        let message = peer::AppendRequest { silent_ms, ..convert::append_to_wire(request) };
        let call = control.call(message, option.hard_ttl(), {
            |mut client, request| async move { client.heartbeat(request).await }
        });
        convert::appended_from_wire(call.await?).map_err(|e| control.unreachable(e))
    }
}

impl<S: SnapshotTransfer> RaftNetworkV2<TypeConfig> for PeerLine<S> {
    type SnapshotData = S::Data;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        Ok(Self::heartbeat(&self.control, &request, &option).await?.into())
    }

    fn stream_append<'s, I>(
        &'s mut self,
        input: I,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Appended>, RpcError>>
    where
        I: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        match self.bulk.lane() {
            Lane::Append => {
                let link = self.bulk.clone();
                Box::pin(async move { Ok(append::open(link, input).await? as BoxStream<'s, _>) })
            }
            Lane::Control | Lane::Snapshot | Lane::Presence => {
                let control = &self.control;
                let answers = input.then(move |request| {
                    let option = option.clone();
                    async move { Self::heartbeat(control, &request, &option).await }
                });
                Box::pin(async move { Ok(Box::pin(answers) as BoxStream<'s, _>) })
            }
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let message = convert::vote_request_to_wire(&request);
        let call = self.control.call(message, option.hard_ttl(), {
            |mut client, request| async move { client.vote(request).await }
        });
        convert::vote_response_from_wire(call.await?).map_err(|e| self.control.unreachable(e))
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let message = convert::vote_request_to_wire(&request);
        let call = self.control.call(message, option.hard_ttl(), {
            |mut client, request| async move { client.pre_vote(request).await }
        });
        convert::vote_response_from_wire(call.await?).map_err(|e| self.control.unreachable(e))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, S::Data>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let pieces = self.snapshots.pieces(snapshot.snapshot);
        let to = self.bulk.node();
        tracing::info!("sending a snapshot to node {to}: {}", snapshot.meta);
        snapshot::send(&self.bulk, vote, &snapshot.meta, pieces, cancel).await
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let message = convert::transfer_to_wire(&request);
        let call = self.control.call(message, option.hard_ttl(), {
            |mut client, request| async move { client.transfer_leader(request).await }
        });
        convert::transferred_from_wire(&request, call.await?)
            .map_err(|e| self.control.unreachable(e))
    }
}
