//! Connections to the other nodes: made when first needed, shared by all calls of
//! one lane, and made anew when they break.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use openraft::errors::{RPCError, Unreachable};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::metadata::BinaryMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::envelope::Envelope;
use crate::clock;
use crate::raft::config::Timing;
use crate::raft::contact::Contact;
use crate::raft::identity::{Home, Identity};
use crate::raft_types::{Member, TypeConfig};
use crate::wire::peer::peer_client::PeerClient;

/// The largest message that is read: a batch of entries is capped at about 1 MiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
const WINDOW_BYTES: u32 = 8 << 20;
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// What a connection is for. Each has its own, so that a batch of entries or a
/// snapshot never delays a heartbeat or a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    Append,
    Control,
    Snapshot,
    Presence,
}

/// All connections of this node.
#[derive(Clone)]
pub(crate) struct Links {
    shared: Arc<Shared>,
}

struct Shared {
    home: Arc<dyn Home>,
    timing: Timing,
    bind: Option<IpAddr>,
    contact: Arc<Contact>,
    open: Mutex<BTreeMap<(Lane, String), Channel>>,
    complaints: Mutex<BTreeMap<u64, (String, Instant)>>,
}

impl Links {
    pub fn new(
        home: Arc<dyn Home>,
        timing: Timing,
        bind: Option<IpAddr>,
        contact: Arc<Contact>,
    ) -> Self {
        let (open, complaints) = (Mutex::default(), Mutex::default());
        Self { shared: Arc::new(Shared { home, timing, bind, contact, open, complaints }) }
    }

    pub fn timing(&self) -> &Timing {
        &self.shared.timing
    }

    /// A way to a node; no connection is made yet.
    pub fn to(&self, node: u64, member: &Member, lane: Lane) -> Link {
        Link {
            links: self.clone(),
            to: Identity { node, incarnation: member.incarnation },
            address: member.address.clone(),
            lane,
            envelope: Arc::default(),
        }
    }

    fn channel(&self, lane: Lane, address: &str) -> Result<Channel, Status> {
        let mut open = self.shared.open.lock();
        if let Some(channel) = open.get(&(lane, address.to_owned())) {
            return Ok(channel.clone());
        }
        let channel =
            endpoint(address, self.timing(), lane)?.local_address(self.shared.bind).connect_lazy();
        open.insert((lane, address.to_owned()), channel.clone());
        Ok(channel)
    }

    /// Whether this complaint about a node is new or the last one is old.
    fn is_news(&self, node: u64, complaint: &str) -> bool {
        let mut complaints = self.shared.complaints.lock();
        let known = complaints.get(&node);
        let news =
            known.is_none_or(|(said, at)| said != complaint || at.elapsed() >= COMPLAIN_EVERY);
        if news {
            complaints.insert(node, (complaint.to_owned(), clock::timer()));
        }
        news
    }
}

/// An endpoint with this project's habits: no delay, short connect, probes while
/// idle. The presence lane is not probed: there only a break counts, never a mere
/// silence.
pub(crate) fn endpoint(address: &str, timing: &Timing, lane: Lane) -> Result<Endpoint, Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|e| Status::invalid_argument(format!("address {address:?}: {e}")))?
        .connect_timeout(timing.connect)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    Ok(match lane {
        Lane::Presence => endpoint,
        Lane::Append | Lane::Control | Lane::Snapshot => endpoint
            .http2_keep_alive_interval(timing.keepalive)
            .keep_alive_timeout(timing.keepalive_timeout)
            .keep_alive_while_idle(true),
    })
}

/// A way to one node over one lane.
#[derive(Clone)]
pub(crate) struct Link {
    links: Links,
    to: Identity,
    address: String,
    lane: Lane,
    envelope: Arc<OnceLock<BinaryMetadataValue>>,
}

impl Link {
    pub fn timing(&self) -> &Timing {
        self.links.timing()
    }

    pub fn node(&self) -> u64 {
        self.to.node
    }

    /// For how long this node has heard of no majority, in milliseconds.
    pub fn silent_ms(&self) -> u64 {
        self.links.shared.contact.silent_ms()
    }

    pub fn lane(&self) -> Lane {
        self.lane
    }

    pub fn client(&self) -> Result<PeerClient<Channel>, Status> {
        let channel = self.links.channel(self.lane, &self.address)?;
        Ok(PeerClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    /// The message in its envelope.
    pub fn request<T>(&self, message: T) -> Result<Request<T>, Status> {
        let value = match self.envelope.get() {
            Some(value) => value.clone(),
            None => {
                let home = &self.links.shared.home;
                let cluster = home.cluster().ok_or_else(|| {
                    Status::failed_precondition("this node belongs to no cluster yet")
                })?;
                let envelope = Envelope { cluster, from: home.identity(), to: self.to };
                self.envelope.get_or_init(|| envelope.to_value()).clone()
            }
        };
        let mut request = Request::new(message);
        Envelope::write(value, request.metadata_mut());
        Ok(request)
    }

    /// Sends one request and awaits its answer for at most `within`.
    pub async fn call<T, R, F>(
        &self,
        message: T,
        within: Duration,
        send: impl FnOnce(PeerClient<Channel>, Request<T>) -> F,
    ) -> Result<R, RPCError<TypeConfig>>
    where
        F: Future<Output = Result<tonic::Response<R>, Status>>,
    {
        let client = self.client().map_err(|status| self.failed(&status))?;
        let request = self.request(message).map_err(|status| self.failed(&status))?;
        match tokio::time::timeout(within, send(client, request)).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.failed(&status)),
            Err(_) => Err(self.unreachable(format!("no answer within {within:?}"))),
        }
    }

    /// What openraft is told of a failed call. Always `Unreachable`, so that it
    /// backs off. A refusal is an operator's business and is told to them.
    pub fn failed(&self, status: &Status) -> RPCError<TypeConfig> {
        let (node, message) = (self.to.node, status.message());
        if status.code() == Code::FailedPrecondition && self.links.is_news(node, message) {
            let address = &self.address;
            tracing::error!("node {node} at {address} turns this node's calls away: {message}");
        }
        self.unreachable(format!("{:?}: {message}", status.code()))
    }

    pub fn unreachable(&self, why: impl std::fmt::Display) -> RPCError<TypeConfig> {
        let (node, address) = (self.to.node, &self.address);
        RPCError::Unreachable(Unreachable::from_string(format!("node {node} at {address}: {why}")))
    }
}
