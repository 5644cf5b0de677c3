//! To the leader: calls that arrive at another node are forwarded, once.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::node::Node;
use super::refusals::{leader_unreachable, not_leader, outcome_unknown};
use crate::wire::reason::{NO_FORWARD, Reason};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections to the nodes that lead or have led, by address.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl Leaders {
    fn channel(&self, address: &str) -> Result<Channel, Status> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|_| not_leader(None))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        let channel = endpoint.connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// Where a call is to be answered.
pub(super) enum Route {
    Here,
    Leader(Channel),
}

impl Node {
    /// Decides where a call is answered. A forwarded call is answered here or not at
    /// all: no call goes in circles.
    pub(super) fn route(&self, metadata: &MetadataMap) -> Result<Route, Status> {
        let leadership = self.replica.leadership();
        let now = leadership.borrow();
        if now.here {
            return Ok(Route::Here);
        }
        let leader = now.leader.as_ref().map(|(_, address)| address.as_str());
        if metadata.contains_key(NO_FORWARD) {
            return Err(not_leader(leader));
        }
        let address = leader.ok_or_else(|| not_leader(None))?;
        self.leaders.channel(address).map(Route::Leader)
    }

    /// Answers a call here if this node leads, else forwards it once.
    pub(super) async fn answer<'n, Q, R, H, F>(
        &'n self,
        request: Request<Q>,
        here: impl FnOnce(&'n Self, Q) -> H,
        forward: impl FnOnce(Channel, Request<Q>) -> F,
    ) -> Result<Response<R>, Status>
    where
        H: Future<Output = Result<R, Status>>,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        match self.route(request.metadata())? {
            Route::Here => here(self, request.into_inner()).await.map(Response::new),
            Route::Leader(channel) => {
                forward(channel, forwarded(request)).await.map_err(of_forwarding)
            }
        }
    }
}

/// Marks a call as forwarded. Deadline and other metadata go along.
pub(super) fn forwarded<Q>(mut request: Request<Q>) -> Request<Q> {
    request.metadata_mut().insert(NO_FORWARD, AsciiMetadataValue::from_static("1"));
    request
}

/// A status of ours passes as it is; anything else came from the connection. Without
/// one the call cannot have arrived; else whether it did is unknown.
pub(super) fn of_forwarding(status: Status) -> Status {
    if Reason::of(&status).is_some() {
        return status;
    }
    let mut cause = std::error::Error::source(&status);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return leader_unreachable();
        }
        cause = error.source();
    }
    outcome_unknown()
}
