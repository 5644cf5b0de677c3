//! The watches of the scripted authority: the state in small parts, and then the events
//! that the node keeps.

use bytes::Bytes;
use ringfence::locks::Revision;
use ringfence::wire::reason::Reason;
use ringfence::wire::v1;
use ringfence::wire::v1::watch_request::What;
use ringfence::wire::v1::watch_response::Part;
use ringfence::wire::v1::watch_server::Watch;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};

use crate::authority::{Authority, Manner, no_forward};
use crate::service::{Answer, Answers, Message, Service};
use crate::table::Table;

/// How many resources one part of a state has.
const PART: usize = 2;
/// Of which they are.
const CLUSTER: &[u8] = b"the first cluster";

type Told = mpsc::Sender<Result<v1::WatchResponse, Status>>;

#[tonic::async_trait]
impl Watch for Service {
    type WatchStream = Answers<v1::WatchResponse>;

    /// Losing the reply means here: the stream breaks after its first message.
    async fn watch(&self, request: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        let no_forward = no_forward(&request);
        let message = request.into_inner();
        let contents = message.contents();
        let breaks = match self.authority.enter(self.number, "watch", None, no_forward, contents) {
            Manner::Well => false,
            Manner::LosesReply | Manner::BreaksOff => true,
            Manner::SwallowsReply | Manner::Silent => std::future::pending().await,
            Manner::Refuses(reason, metadata) => return Err(reason.status("", metadata)),
        };
        let (tell, told) = mpsc::channel(1);
        let cut = self.authority.table().cuts;
        let cluster = Bytes::from_static(CLUSTER);
        let watching = Watching {
            authority: self.authority.clone(),
            node: self.number,
            message,
            cut,
            cluster,
        };
        tokio::spawn(async move {
            let first = tell.clone();
            let end = tokio::select! {
                end = watching.tell(tell) => end,
                () = first.closed() => return,
                () = broken(&first), if breaks => Status::unavailable("the connection broke"),
            };
            // If it still listens.
            let _ = first.send(Err(end)).await;
        });
        Ok(tonic::Response::new(Box::pin(ReceiverStream::new(told))))
    }

    async fn explain(&self, r: Request<v1::ExplainRequest>) -> Answer<v1::ExplainResponse> {
        self.play("explain", r, async |a, m| Ok(a.explain(m))).await
    }
}

/// Resolves when the first message is on its way.
async fn broken(told: &Told) {
    while told.capacity() > 0 {
        tokio::task::yield_now().await;
    }
}

struct Watching {
    authority: Authority,
    node: usize,
    message: v1::WatchRequest,
    /// How many cuts there were when it began.
    cut: usize,
    cluster: Bytes,
}

impl Watching {
    /// Tells everything until the watch ends.
    async fn tell(mut self, tell: Told) -> Status {
        let mut bell = self.authority.bell.subscribe();
        let mut after = match self.message.resume_after {
            Some(at) => Revision { index: at.index, ordinal: at.ordinal },
            None => match self.tell_state(&tell).await {
                Ok(at) => at,
                Err(end) => return end,
            },
        };
        loop {
            let parts = match self.news(after) {
                Ok(parts) => parts,
                Err(end) => return end,
            };
            for (part, at) in parts {
                after = at;
                if tell.send(Ok(self.answer(part))).await.is_err() {
                    return Status::cancelled("nobody listens");
                }
            }
            bell.changed().await.expect("the authority holds the bell");
        }
    }

    /// The first names the cluster.
    fn answer(&mut self, part: Part) -> v1::WatchResponse {
        let cluster_id = std::mem::take(&mut self.cluster);
        v1::WatchResponse { part: Some(part), cluster_id }
    }

    async fn tell_state(&mut self, tell: &Told) -> Result<Revision, Status> {
        let (views, at) = {
            let table = self.authority.table();
            let (prefix, whole) = match &self.message.what {
                Some(What::Resource(name)) => (name.clone(), true),
                Some(What::Prefix(prefix)) => (prefix.clone(), false),
                None => (String::new(), false),
            };
            let names = table.locks.resources_with_prefix(&prefix, None);
            let names = names.map(|view| view.name.to_string());
            let views =
                names.filter(|name| !whole || *name == prefix).map(|name| table.view(&name));
            let at = v1::Revision { index: table.locks.position().index, ordinal: u32::MAX };
            (views.collect::<Vec<_>>(), at)
        };
        let mut parts: Vec<Vec<v1::ResourceView>> = views.chunks(PART).map(<[_]>::to_vec).collect();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let end = parts.len() - 1;
        for (number, resources) in parts.into_iter().enumerate() {
            let state = v1::State { resources, at: Some(at), last: number == end };
            let answer = self.answer(Part::State(state));
            let gone = |_| Status::cancelled("nobody listens");
            tell.send(Ok(answer)).await.map_err(gone)?;
            if self.authority.table().outrun.contains(&self.node) {
                return Err(Reason::Compacted.status("it went too fast", []));
            }
        }
        Ok(Revision { index: at.index, ordinal: at.ordinal })
    }

    /// What happened after a revision, with the revision that is seen then.
    fn news(&self, after: Revision) -> Result<Vec<(Part, Revision)>, Status> {
        let table = self.authority.table();
        if table.cuts > self.cut {
            return Err(Status::unavailable("cut"));
        }
        if table.cut_off.contains(&self.node) {
            return Err(Reason::NoQuorum.status("cut off", []));
        }
        if table.compacted.get(&self.node).is_some_and(|&index| index > after.index) {
            return Err(Reason::Compacted.status("too late", []));
        }
        let events = table.events.iter().filter(|event| self.concerns(event));
        let mut parts = Vec::new();
        for event in events.filter(|event| at(event) > after) {
            let events = vec![event.clone()];
            parts.push((Part::Events(v1::Events { events }), at(event)));
        }
        let last = parts.last().map_or(after, |(_, at)| *at);
        let now = position(&table);
        if now.index > last.index {
            let progress = v1::Revision { index: now.index, ordinal: now.ordinal };
            parts.push((Part::Progress(progress), now));
        }
        Ok(parts)
    }

    fn concerns(&self, event: &v1::Event) -> bool {
        match &self.message.what {
            None => true,
            Some(What::Resource(name)) => event.resources.contains(name),
            Some(What::Prefix(prefix)) => event.resources.iter().any(|n| n.starts_with(prefix)),
        }
    }
}

fn position(table: &Table) -> Revision {
    Revision { index: table.locks.position().index, ordinal: u32::MAX }
}

fn at(event: &v1::Event) -> Revision {
    let at = event.at.expect("every event has its revision");
    Revision { index: at.index, ordinal: at.ordinal }
}
