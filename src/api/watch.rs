//! What is so, and then everything that happens. Section 9 of the contract.
//!
//! Any node answers, from what it has applied. A watch is a cursor and no more: it
//! reads a bounded piece under the lock when its client has taken the one before, so
//! a slow one costs the others nothing; what it has not taken before the node dropped
//! it ends the watch.

mod explain;
mod messages;
mod stream;

use std::sync::Arc;

use std::time::Duration;

use bytes::Bytes;
use tonic::{Request, Response, Status};

use super::node::Node;
use super::refusals::{compacted, cut_off, invalid, refused, too_many_watchers};
use crate::authority::Authority;
use crate::feed::Topic;
use crate::locks::{Invalid, Refusal, ResourceName, Revision};
use crate::wire::v1;
use crate::wire::v1::watch_client::WatchClient;
use crate::wire::v1::watch_request::What;
use crate::wire::v1::watch_server::Watch;
use stream::{Beginning, Responses};

/// How long a node that has just been elected, or started, is given to hear so.
const CONTACT_WITHIN: Duration = Duration::from_millis(300);

/// How often it is looked at meanwhile.
const CONTACT_POLL: Duration = Duration::from_millis(2);

/// `ringfence.v1.Watch`.
#[derive(Clone)]
pub struct WatchService(pub Arc<Node>);

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = Responses;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let request = request.into_inner();
        let topic = topic_in(request.what).map_err(|e| invalid(&e))?;
        let resume = request.resume_after.map(|at| Revision::from(&at));
        let mut contact = self.0.replica.contact();
        let made = async {
            let kept = contact.wait_for(|kept| *kept).await.is_ok();
            // The watchers hear of it a moment later.
            while kept && self.0.authority.watchers().is_cut_off() {
                tokio::time::sleep(CONTACT_POLL).await;
            }
            kept
        };
        if tokio::time::timeout(CONTACT_WITHIN, made).await != Ok(true) {
            return Err(cut_off());
        }
        start(&self.0.authority, topic, resume, &request.cluster_id).map(Response::new)
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let to_leader =
            |channel, request| async { WatchClient::new(channel).explain(request).await };
        self.0.answer(request, explain::explain, to_leader).await
    }
}

/// Begins a watch at what is applied here, or after a revision. That may be one that
/// this node has not come to yet: then nothing is told until it has. It must be one of
/// this cluster, though, if it is said of which it is.
fn start(
    authority: &Arc<Authority>,
    topic: Topic,
    resume: Option<Revision>,
    of_cluster: &[u8],
) -> Result<Responses, Status> {
    let (cluster, now, since) = {
        let state = authority.lock();
        let Some(cluster) = state.table.cluster() else {
            return Err(refused(&Refusal::NotBootstrapped));
        };
        (cluster, Revision::end_of(state.feed.position()), state.feed.since())
    };
    if !of_cluster.is_empty() && of_cluster != cluster.as_bytes() {
        return Err(invalid(&Invalid { field: "cluster_id", bound: "of this cluster, or empty" }));
    }
    let read = resume.unwrap_or(now);
    if read < since {
        return Err(compacted(read, since));
    }
    let seat = authority.watchers().sit_down(topic.clone(), read, now);
    let seat = seat.map_err(|full| too_many_watchers(full.max))?;
    let (with_state, cluster) = (resume.is_none(), Bytes::copy_from_slice(cluster.as_bytes()));
    let beginning = Beginning { seat, topic, read, with_state, cluster };
    Ok(stream::responses(Arc::clone(authority), beginning))
}

fn topic_in(what: Option<What>) -> Result<Topic, Invalid> {
    match what {
        None => Ok(Topic::Everything),
        Some(What::Resource(name)) => ResourceName::new(&name).map(Topic::Resource),
        Some(What::Prefix(prefix)) => {
            let bound = "1 to 512 bytes long, free of control characters";
            let checked = ResourceName::new(&prefix);
            checked.map_err(|_| Invalid { field: "prefix", bound })?;
            Ok(Topic::Prefix(prefix))
        }
    }
}
