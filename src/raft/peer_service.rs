//! The server side of the peer protocol. Nothing is read, voted or stored before
//! the envelope is checked; what cannot be read ends the call with a status.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use openraft::Raft;
use openraft::alias::{SnapshotOf, WatchReceiverOf};
use openraft::async_runtime::WatchReceiver;
use openraft::errors::Fatal;
use openraft::metrics::RaftServerMetrics;
use openraft::raft::AppendEntriesResponse;
use openraft::storage::RaftStateMachine;
use parking_lot::Mutex;
use tonic::{Request, Response, Status, Streaming};
use xxhash_rust::xxh3::Xxh3;

use super::config::Timing;
use super::contact::Contact;
use super::identity::{Home, Identity};
use super::network::convert::{self, Malformed};
use super::network::envelope::{Envelope, identity};
use super::network::link::MESSAGE_BYTES_MAX;
use super::snapshot::{IncomingSnapshot, SnapshotTransfer};
use crate::locks::ClusterId;
use crate::raft_types::{TypeConfig, Vote};
use crate::wire::peer::peer_server::{Peer, PeerServer};
use crate::wire::peer::snapshot_chunk::Part;
use crate::wire::peer::{self, AppendRequest, AppendResponse, SnapshotChunk};

type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// Answers the other nodes.
pub struct PeerService<SM: RaftStateMachine<TypeConfig>, S> {
    raft: Raft<TypeConfig, SM>,
    door: Door,
    snapshots: Arc<S>,
    timing: Timing,
    contact: Arc<Contact>,
    /// One snapshot is taken in at a time.
    receiving: tokio::sync::Mutex<()>,
    /// This process, so that a restarted one is told apart.
    process: Bytes,
}

impl<SM, S> PeerService<SM, S>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = S::Data>,
    S: SnapshotTransfer,
{
    pub(super) fn new(
        raft: Raft<TypeConfig, SM>,
        here: Here,
        snapshots: Arc<S>,
        timing: Timing,
    ) -> Self {
        let Here { home, members, contact } = here;
        let door = Door { home, known: raft.server_metrics(), members };
        let process = Bytes::copy_from_slice(&rand::random::<[u8; 16]>());
        let receiving = tokio::sync::Mutex::new(());
        Self { raft, door, snapshots, timing, contact, receiving, process }
    }

    /// As a gRPC service. The server that carries it should send keep-alive pings
    /// and set `TCP_NODELAY`, as [`Timing`] says.
    pub fn into_server(self) -> PeerServer<Self> {
        PeerServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

/// What the others meet on this node.
pub(super) struct Here {
    pub home: Arc<dyn Home>,
    pub members: BTreeMap<u64, String>,
    pub contact: Arc<Contact>,
}

/// Who may come in.
struct Door {
    home: Arc<dyn Home>,
    known: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>,
    /// The members of a static bootstrap, id to address; empty without one.
    members: BTreeMap<u64, String>,
}

impl Door {
    fn admit<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        let envelope = Envelope::read(request.metadata())?;
        let recorded = self.recorded(envelope.from.node);
        envelope.check(self.home.identity(), self.home.cluster(), recorded)?;
        Ok(envelope.from)
    }

    /// The incarnation under which the membership has a node.
    fn recorded(&self, node: u64) -> Option<[u8; 16]> {
        let known = self.known.borrow_watched();
        known.membership_config.get_node(&node).map(|member| member.incarnation)
    }

    /// Whether a membership is known here.
    fn formed(&self) -> bool {
        self.known.borrow_watched().membership_config.nodes().next().is_some()
    }

    /// Joins the cluster to which the lowest node of the common list invites. A
    /// node of another cluster stays there; its answer says so.
    async fn invited(&self, from: u64, cluster: &[u8]) -> Result<(), Status> {
        let cluster = ClusterId::from_slice(cluster)
            .map_err(|invalid| Status::invalid_argument(invalid.to_string()))?;
        if self.members.keys().next() != Some(&from) {
            let text = format!("node {from} invites, but is not the first of the member list here");
            return Err(Status::failed_precondition(text));
        }
        if self.home.cluster().is_none() {
            let adopted = self.home.adopt_cluster(cluster).await;
            adopted.map_err(|e| Status::internal(format!("cannot store the cluster id: {e}")))?;
            tracing::info!("joined cluster {cluster} at the invitation of node {from}");
        }
        Ok(())
    }

    /// Whether a vote is as high as the highest that was seen here.
    fn is_of_present(&self, vote: &Vote) -> bool {
        let known = self.known.borrow_watched().vote;
        matches!(vote.partial_cmp(&known), Some(order) if order.is_ge())
    }

    fn same_list(&self, theirs: &BTreeMap<u64, String>) -> Result<(), Status> {
        let ours = &self.members;
        if self.formed() || ours == theirs {
            return Ok(());
        }
        let here = self.home.identity().node;
        let text = format!("the member lists differ: {theirs:?}, and at node {here} {ours:?}");
        Err(Status::failed_precondition(text))
    }
}

#[tonic::async_trait]
impl<SM, S> Peer for PeerService<SM, S>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = S::Data>,
    S: SnapshotTransfer,
{
    async fn hello(
        &self,
        request: Request<peer::HelloRequest>,
    ) -> Result<Response<peer::HelloResponse>, Status> {
        let hello = request.into_inner();
        let caller = identity(hello.from_node, &hello.from_incarnation)
            .ok_or_else(|| Status::invalid_argument("from_incarnation: not 16 bytes"))?;
        self.door.same_list(&hello.members)?;
        if !hello.cluster_id.is_empty() {
            self.door.invited(caller.node, &hello.cluster_id).await?;
        }
        let here = self.door.home.identity();
        let cluster = self.door.home.cluster();
        let recorded = self.door.recorded(caller.node);
        Ok(Response::new(peer::HelloResponse {
            node_id: here.node,
            incarnation: Bytes::copy_from_slice(&here.incarnation),
            cluster_id: cluster.map_or(Bytes::new(), |c| Bytes::copy_from_slice(c.as_bytes())),
            version: env!("CARGO_PKG_VERSION").into(),
            formed: self.door.formed(),
            recorded_incarnation: recorded.map_or(Bytes::new(), |r| Bytes::copy_from_slice(&r)),
        }))
    }

    type PresenceStream = Answers<peer::PresenceResponse>;

    async fn presence(
        &self,
        request: Request<peer::PresenceRequest>,
    ) -> Result<Response<Self::PresenceStream>, Status> {
        self.door.admit(&request)?;
        let metrics = self.raft.metrics();
        if metrics.borrow_watched().running_state.is_err() {
            return Err(Status::unavailable("this node stops"));
        }
        let here = peer::PresenceResponse { process: self.process.clone() };
        let alive = stream::iter([Ok(here)]).chain(stream::pending());
        Ok(Response::new(alive.take_until(ended(self.door.known.clone())).boxed()))
    }

    type AppendStream = Answers<AppendResponse>;

    async fn append(
        &self,
        request: Request<Streaming<AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let from = self.door.admit(&request)?;
        let fault = Arc::new(Mutex::new(None));
        let requests = readable(request.into_inner(), from.node, fault.clone());
        let answers = self.raft.stream_append(requests).map(|answer| match answer {
            Ok(answer) => Ok(convert::appended_to_wire(&answer)),
            Err(fatal) => Err(stopped(&fatal)),
        });
        let fault = stream::once(async move { fault.lock().take().map(Err) });
        let answers = answers.chain(fault.filter_map(futures::future::ready));
        Ok(Response::new(answers.take_until(ended(self.door.known.clone())).boxed()))
    }

    async fn heartbeat(
        &self,
        request: Request<AppendRequest>,
    ) -> Result<Response<AppendResponse>, Status> {
        let from = self.door.admit(&request)?;
        let message = request.into_inner();
        let silent_ms = message.silent_ms;
        let request = convert::append_from_wire(message)?;
        of_sender(&request.vote, from.node)?;
        if self.door.is_of_present(&request.vote) {
            self.contact.heard(silent_ms); // now: a slow disk may make the answer late
        }
        let (prev, last) = (request.prev_log_id, request.entries.last().map(|e| e.log_id));
        let answer = self.raft.append_entries(request).await.map_err(internal)?;
        let answer = match (answer, prev) {
            (AppendEntriesResponse::Conflict, None) => {
                return Err(Status::internal("a conflict before the first entry"));
            }
            (answer, prev) => answer.into_stream_result(prev, last.or(prev)),
        };
        Ok(Response::new(convert::appended_to_wire(&answer)))
    }

    async fn vote(
        &self,
        request: Request<peer::VoteRequest>,
    ) -> Result<Response<peer::VoteResponse>, Status> {
        let from = self.door.admit(&request)?;
        let request = convert::vote_request_from_wire(request.into_inner())?;
        of_sender(&request.vote, from.node)?;
        let answer = self.raft.vote(request).await.map_err(internal)?;
        Ok(Response::new(convert::vote_response_to_wire(&answer)))
    }

    async fn pre_vote(
        &self,
        request: Request<peer::VoteRequest>,
    ) -> Result<Response<peer::VoteResponse>, Status> {
        let from = self.door.admit(&request)?;
        let request = convert::vote_request_from_wire(request.into_inner())?;
        of_sender(&request.vote, from.node)?;
        let answer = self.raft.pre_vote(request).await.map_err(internal)?;
        Ok(Response::new(convert::vote_response_to_wire(&answer)))
    }

    async fn transfer_leader(
        &self,
        request: Request<peer::TransferLeaderRequest>,
    ) -> Result<Response<peer::TransferLeaderResponse>, Status> {
        let from = self.door.admit(&request)?;
        let request = convert::transfer_from_wire(request.into_inner())?;
        of_sender(request.from_leader(), from.node)?;
        let answer = self.raft.handle_transfer_leader(request).await;
        let answer = answer.map_err(|fatal| stopped(&fatal))?;
        Ok(Response::new(convert::transferred_to_wire(&answer)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<SnapshotChunk>>,
    ) -> Result<Response<peer::SnapshotResponse>, Status> {
        let from = self.door.admit(&request)?;
        let mut chunks = request.into_inner();
        let Some(Part::Header(header)) = self.next_part(&mut chunks).await? else {
            return Err(Malformed::of("a snapshot without a header").into());
        };
        let (vote, meta) = convert::snapshot_meta(header)?;
        of_sender(&vote, from.node)?;
        if !self.door.is_of_present(&vote) {
            let known = self.door.known.borrow_watched().vote;
            let vote = Some(convert::vote_to_wire(&known));
            return Ok(Response::new(peer::SnapshotResponse { vote }));
        }
        let _turn = self
            .receiving
            .try_lock()
            .map_err(|_| Status::resource_exhausted("another snapshot is being received"))?;
        let snapshot = self.receive(&mut chunks).await?;
        let snapshot = SnapshotOf::<TypeConfig, S::Data> { meta, snapshot };
        let installed = self.raft.install_full_snapshot(vote, snapshot).await;
        let installed = installed.map_err(|fatal| stopped(&fatal))?;
        let vote = Some(convert::vote_to_wire(&installed.vote));
        Ok(Response::new(peer::SnapshotResponse { vote }))
    }
}

impl<SM, S> PeerService<SM, S>
where
    SM: RaftStateMachine<TypeConfig, SnapshotData = S::Data>,
    S: SnapshotTransfer,
{
    /// Takes the bytes in and checks their sum.
    async fn receive(&self, chunks: &mut Streaming<SnapshotChunk>) -> Result<S::Data, Status> {
        let disk = |e: std::io::Error| Status::internal(format!("snapshot: {e}"));
        let mut incoming = self.snapshots.receive().map_err(disk)?;
        let mut sum = Xxh3::new();
        loop {
            match self.next_part(chunks).await? {
                Some(Part::Data(data)) => {
                    sum.update(&data);
                    incoming.push(data).await.map_err(disk)?;
                }
                Some(Part::Checksum(theirs)) => {
                    if theirs[..] != sum.digest128().to_be_bytes() {
                        return Err(Status::data_loss("the snapshot's checksum does not match"));
                    }
                    return incoming.finish().await.map_err(disk);
                }
                Some(Part::Header(_)) => return Err(Malformed::of("a second header").into()),
                None => return Err(Malformed::of("a snapshot without its end").into()),
            }
        }
    }

    async fn next_part(
        &self,
        chunks: &mut Streaming<SnapshotChunk>,
    ) -> Result<Option<Part>, Status> {
        let next = tokio::time::timeout(self.timing.snapshot_stall, chunks.message()).await;
        let next = next.map_err(|_| Status::deadline_exceeded("the snapshot is stuck"))??;
        Ok(next.and_then(|chunk| chunk.part))
    }
}

/// The readable requests of a stream; the first fault ends it and is kept.
fn readable(
    input: Streaming<AppendRequest>,
    from: u64,
    fault: Arc<Mutex<Option<Status>>>,
) -> impl futures::Stream<Item = openraft::raft::AppendEntriesRequest<TypeConfig>> + Send + 'static
{
    stream::unfold((input, fault), move |(mut input, fault)| async move {
        let read = match input.message().await {
            Ok(Some(message)) => convert::append_from_wire(message).map_err(Status::from),
            Ok(None) => return None,
            Err(status) => Err(status),
        };
        let checked = read.and_then(|request| {
            of_sender(&request.vote, from)?;
            Ok(request)
        });
        match checked {
            Ok(request) => Some((request, (input, fault))),
            Err(status) => {
                *fault.lock() = Some(status);
                None
            }
        }
    })
}

/// Nodes speak for themselves: a leader under its own vote, a candidate for itself.
fn of_sender(vote: &Vote, from: u64) -> Result<(), Malformed> {
    match vote.leader_id.voted_for == from {
        true => Ok(()),
        false => Err(Malformed::of("a vote that is not the sender's")),
    }
}

/// Resolves when the replica has ended, so that no stream outlives it.
async fn ended(mut known: WatchReceiverOf<TypeConfig, RaftServerMetrics<TypeConfig>>) {
    while known.changed().await.is_ok() {}
}

fn stopped(fatal: &Fatal<TypeConfig>) -> Status {
    Status::unavailable(format!("this node has stopped: {fatal}"))
}

fn internal(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this node has stopped: {error}"))
}
