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

use tonic::{Request, Response, Status};

use super::node::Node;
use super::refusals::{compacted, invalid, refused, too_many_watchers};
use crate::feed::Topic;
use crate::locks::{Invalid, Refusal, ResourceName, Revision};
use crate::wire::v1;
use crate::wire::v1::watch_client::WatchClient;
use crate::wire::v1::watch_request::What;
use crate::wire::v1::watch_server::Watch;
use stream::Responses;

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
        start(&self.0, topic, resume).map(Response::new)
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
/// this node has not come to yet: then nothing is told until it has.
fn start(node: &Node, topic: Topic, resume: Option<Revision>) -> Result<Responses, Status> {
    let authority = &node.authority;
    let (now, since) = {
        let state = authority.lock();
        if state.table.cluster().is_none() {
            return Err(refused(&Refusal::NotBootstrapped));
        }
        (Revision::end_of(state.feed.position()), state.feed.since())
    };
    let read = resume.unwrap_or(now);
    if read < since {
        return Err(compacted(read, since));
    }
    let seat = authority.watchers().sit_down(topic.clone(), read, now);
    let seat = seat.map_err(|full| too_many_watchers(full.max))?;
    Ok(stream::responses(Arc::clone(authority), seat, topic, read, resume.is_none()))
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
