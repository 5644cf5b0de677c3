//! The task behind a watch: one stream after the other, wherever a node answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::ClientError;
use super::backoff::{Backoff, SPREAD, at_least};
use super::lanes::Lane;
use super::network::{Network, Target, Verdict, judge};
use super::operations::revision;
use super::route::{Address, Walk};
use super::watch::Seen;
use crate::clock::Moment;
use crate::locks::Revision;
use crate::wire::reason::{Reason, Told};
use crate::wire::v1;
use crate::wire::v1::watch_client::WatchClient;
use crate::wire::v1::watch_response::Part;

/// The largest message that is read: a part of a state, or many events.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Reads streams until the watcher is gone or cannot go on.
pub(super) struct Feed {
    network: Arc<Network>,
    what: Option<v1::watch_request::What>,
    place: Position,
    /// The cluster that answered last; empty before.
    cluster: Bytes,
    /// Whether a new state is as good as the events that one node has no longer.
    anew: bool,
    tell: mpsc::Sender<Result<Seen, ClientError>>,
    search: Search,
}

/// The way to the next node that answers.
struct Search {
    walk: Walk,
    backoff: Backoff,
    /// Since when nothing was heard, and what was met last.
    silent_since: Moment,
    last: Option<String>,
    /// What a node of this round refused that another may not: it keeps the events that
    /// follow no longer, or as many watch there as may.
    refused: Option<ClientError>,
    /// A node was not asked in this round, or gave no such answer: it may have what the
    /// others refuse.
    open: bool,
}

/// How a stream, or the attempt at one, ended.
enum End {
    /// Try the next node.
    Elsewhere,
    /// Try again after a pause.
    Pause(Duration),
    /// The watch is over.
    Over(ClientError),
}

impl Feed {
    pub fn new(
        network: Arc<Network>,
        what: Option<v1::watch_request::What>,
        after: Option<Revision>,
        anew: bool,
        tell: mpsc::Sender<Result<Seen, ClientError>>,
    ) -> Self {
        let search = Search {
            walk: network.walk(),
            backoff: Backoff::default(),
            silent_since: Moment::now(),
            last: None,
            refused: None,
            open: false,
        };
        let (place, cluster) = (Position::new(after), Bytes::new());
        Self { network, what, place, cluster, anew, tell, search }
    }

    pub async fn run(mut self) {
        let watcher = self.tell.clone();
        tokio::select! {
            () = watcher.closed() => {}
            () = self.go_on() => {}
        }
    }

    async fn go_on(&mut self) {
        loop {
            let Some(node) = self.network.next(&mut self.search.walk) else {
                if let Some(error) = self.search.again() {
                    let _ = self.tell.send(Err(error)).await;
                    return;
                }
                self.complain().await;
                tokio::time::sleep(self.search.backoff.pause(rand::random())).await;
                continue;
            };
            match self.follow(&node).await {
                End::Elsewhere => {}
                End::Pause(pause) => tokio::time::sleep(pause).await,
                End::Over(error) => {
                    let _ = self.tell.send(Err(error)).await;
                    return;
                }
            }
        }
    }

    /// Says that nobody answers, once in each call timeout.
    async fn complain(&mut self) {
        let now = Moment::now();
        if now.since(self.search.silent_since) < self.network.settings.call {
            return;
        }
        self.search.silent_since = now;
        let last = self.search.last.take();
        let last = last.unwrap_or_else(|| "no node answered".to_owned());
        let error = ClientError::Unreachable { outcome_unknown: false, last };
        let _ = self.tell.send(Err(error)).await;
    }

    /// Watches at one node until that ends.
    async fn follow(&mut self, node: &Address) -> End {
        let network = Arc::clone(&self.network);
        let place = network.place();
        let target = network.target(node, place.lane(), true);
        let limit = network.settings.attempt;
        let opened = tokio::time::timeout(limit, watch(&target, self.request())).await;
        let stream = match opened {
            Ok(Ok(stream)) => stream,
            Ok(Err(status)) => return self.ended(node, place.lane(), &status),
            Err(_) => {
                network.stalled(node);
                self.search.open = true;
                self.search.last = Some(format!("{node} did not answer"));
                return End::Elsewhere;
            }
        };
        let opened = Moment::now();
        let end = self.read(node, stream).await;
        let now = Moment::now();
        if self.place.after.is_some() && now.since(opened) >= network.settings.call {
            // There was nothing to tell; that is no silence.
            self.search.silent_since = now;
        }
        match end {
            Ok(end) => end,
            Err(status) => self.ended(node, place.lane(), &status),
        }
    }

    /// Tells what the stream brings until it ends.
    async fn read(
        &mut self,
        node: &Address,
        mut stream: Streaming<v1::WatchResponse>,
    ) -> Result<End, Status> {
        self.place.begin();
        while let Some(v1::WatchResponse { part, cluster_id }) = stream.message().await? {
            if !cluster_id.is_empty() {
                self.cluster = cluster_id;
            }
            let seen = match part.map(|part| self.place.take(part)) {
                Some(Ok(seen)) => seen,
                Some(Err(field)) => return Ok(End::Over(ClientError::Malformed { field })),
                None => Vec::new(),
            };
            if !seen.is_empty() {
                self.search.found(&self.network, node);
            }
            for seen in seen {
                if self.tell.send(Ok(seen)).await.is_err() {
                    // Nobody listens; the task ends with this.
                    return Ok(End::Elsewhere);
                }
            }
        }
        self.search.open = true;
        self.search.last = Some(format!("{node} ended the watch"));
        Ok(End::Pause(self.search.backoff.pause(rand::random())))
    }

    fn request(&self) -> v1::WatchRequest {
        let resume_after =
            self.place.after.map(|at| v1::Revision { index: at.index, ordinal: at.ordinal });
        // A state of any cluster will do, but no gap between two.
        let cluster_id = resume_after.map_or_else(Bytes::new, |_| self.cluster.clone());
        v1::WatchRequest { what: self.what.clone(), resume_after, cluster_id }
    }

    fn ended(&mut self, node: &Address, lane: Lane, status: &Status) -> End {
        self.search.last = Some(format!("{node}: {}", status.message()));
        if Told::of(status).is_none() {
            self.network.broke(node, lane);
        }
        match judge(status).0 {
            Verdict::Final(told) => self.refused(told),
            Verdict::Elsewhere { .. } => {
                self.search.open = true;
                self.network.leads_not(node);
                End::Pause(SPREAD.mul_f64(rand::random()))
            }
            Verdict::Again { after } => {
                self.search.open = true;
                let roll = rand::random();
                let pause = after
                    .map_or_else(|| self.search.backoff.pause(roll), |after| at_least(after, roll));
                End::Pause(pause)
            }
        }
    }

    /// What a node refused may be had at another, or it is refused for good.
    fn refused(&mut self, told: Told) -> End {
        let compacted = told.reason == Some(Reason::Compacted);
        if compacted && self.place.after.is_none() {
            // More happened than is kept while the state was read; it may fit next time.
            self.search.open = true;
            return End::Elsewhere;
        }
        let elsewhere = compacted || told.reason == Some(Reason::LimitReached);
        let error = ClientError::refused(told, false);
        if !elsewhere || (compacted && self.anew) {
            return End::Over(error);
        }
        self.search.refused = Some(error);
        End::Elsewhere
    }
}

impl Search {
    /// Ends a round; says why the watch is over, if every node has refused it.
    fn again(&mut self) -> Option<ClientError> {
        self.walk.again();
        let refused = self.refused.take();
        let open = std::mem::take(&mut self.open);
        refused.filter(|_| !open)
    }

    /// This node tells what is asked for. Should it fail, the search begins at the others.
    fn found(&mut self, network: &Network, node: &Address) {
        self.walk = network.walk();
        self.walk.avoid(node.clone());
        self.backoff.reset();
        self.silent_since = Moment::now();
        self.last = None;
        self.refused = None;
        self.open = true;
    }
}

async fn watch(
    target: &Target,
    request: v1::WatchRequest,
) -> Result<Streaming<v1::WatchResponse>, Status> {
    let client = WatchClient::new(target.channel.clone());
    let mut client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
    client.watch(target.request(request)).await.map(tonic::Response::into_inner)
}

/// How far the watcher has seen. Pure.
///
/// Invariant: everything up to `after` was told, and nothing after it.
#[derive(Debug)]
struct Position {
    /// `None` until a whole state was seen.
    after: Option<Revision>,
    /// The state so far, and what happened between its parts.
    state: Vec<Seen>,
}

impl Position {
    fn new(after: Option<Revision>) -> Self {
        Self { after, state: Vec::new() }
    }

    /// Another stream begins; half a state of the one before is of no use.
    fn begin(&mut self) {
        self.state.clear();
    }

    /// Takes in a message; says what is to be told.
    ///
    /// # Errors
    /// The field that makes no sense.
    fn take(&mut self, part: Part) -> Result<Vec<Seen>, &'static str> {
        match part {
            Part::State(_) if self.after.is_some() => Err("state"),
            Part::State(v1::State { resources, at, last }) => {
                let at = at.map(revision).ok_or("at")?;
                self.state.push(Seen::State { resources, at, last });
                if !last {
                    return Ok(Vec::new());
                }
                self.after = Some(at);
                Ok(std::mem::take(&mut self.state))
            }
            Part::Events(v1::Events { events }) => {
                let mut seen = Vec::with_capacity(events.len());
                for event in events {
                    let at = event.at.map(revision).ok_or("at")?;
                    if self.after.is_none() {
                        self.state.push(Seen::Event(event));
                    } else if self.passes(at) {
                        seen.push(Seen::Event(event));
                    }
                }
                Ok(seen)
            }
            Part::Progress(at) => {
                let at = revision(at);
                let news = self.after.is_some() && self.passes(at);
                Ok(news.then_some(Seen::Progress(at)).into_iter().collect())
            }
        }
    }

    /// Moves on to a revision; false if it was passed before.
    fn passes(&mut self, at: Revision) -> bool {
        let news = self.after.is_some_and(|after| at > after);
        if news {
            self.after = Some(at);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u64) -> v1::Revision {
        v1::Revision { index, ordinal: 0 }
    }

    fn state(index: u64, last: bool) -> Part {
        Part::State(v1::State { resources: Vec::new(), at: Some(at(index)), last })
    }

    fn events(indices: &[u64]) -> Part {
        let event = |&index: &u64| v1::Event { at: Some(at(index)), ..Default::default() };
        Part::Events(v1::Events { events: indices.iter().map(event).collect() })
    }

    fn told(seen: &[Seen]) -> Vec<String> {
        let word = |seen: &Seen| match seen {
            Seen::State { at, last, .. } => format!("state {at} {last}"),
            Seen::Event(event) => format!("event {}", event.at.map_or(0, |at| at.index)),
            Seen::Progress(at) => format!("progress {at}"),
        };
        seen.iter().map(word).collect()
    }

    #[test]
    fn half_a_state_is_not_told_and_events_before_its_end_keep_their_place() {
        let mut place = Position::new(None);
        assert_eq!(place.take(state(4, false)), Ok(vec![]));
        place.begin();
        assert_eq!(place.take(state(5, false)), Ok(vec![]));
        assert_eq!(place.take(events(&[6])), Ok(vec![]));
        let whole = place.take(state(7, true)).expect("good");
        assert_eq!(told(&whole), ["state 5.0 false", "event 6", "state 7.0 true"]);
        assert_eq!(place.take(state(8, true)), Err("state"));
    }

    #[test]
    fn what_was_seen_before_is_not_told_again() {
        let mut place = Position::new(Some(Revision { index: 7, ordinal: 0 }));
        let seen = place.take(events(&[6, 7, 8, 8, 9])).expect("good");
        assert_eq!(told(&seen), ["event 8", "event 9"]);
        assert_eq!(place.take(Part::Progress(at(9))), Ok(vec![]));
        let progress = place.take(Part::Progress(at(12))).expect("good");
        assert_eq!(told(&progress), ["progress 12.0"]);
        assert_eq!(place.take(events(&[12])), Ok(vec![]));
    }
}
