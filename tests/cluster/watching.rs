//! Somebody who watches, and what can be known from that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use ringfence::wire::v1;
use ringfence::wire::v1::EventKind;
use ringfence::wire::v1::watch_client::WatchClient;
use ringfence::wire::v1::watch_request::What;
use ringfence::wire::v1::watch_response::Part;
use tonic::Status;

use crate::cluster::PATIENCE;
use crate::wire::Wire;

/// A watch on one node.
pub struct Watching {
    parts: tonic::Streaming<v1::WatchResponse>,
    events: VecDeque<v1::Event>,
    /// From where it can go on elsewhere.
    pub told: Option<v1::Revision>,
    /// What each answer named as its cluster.
    pub clusters: Vec<Bytes>,
}

pub fn at(revision: Option<v1::Revision>) -> (u64, u32) {
    revision.map(|at| (at.index, at.ordinal)).expect("a revision is set")
}

/// After all that the entry brought about.
pub fn end_of(index: u64) -> v1::Revision {
    v1::Revision { index, ordinal: u32::MAX }
}

pub fn resource(name: &str) -> Option<What> {
    Some(What::Resource(name.to_owned()))
}

pub fn prefix(prefix: &str) -> Option<What> {
    Some(What::Prefix(prefix.to_owned()))
}

impl Watching {
    /// With the state first.
    pub async fn state_of(node: &Wire, what: Option<What>) -> Result<Self, Status> {
        Self::begin(node, v1::WatchRequest { what, ..Default::default() }).await
    }

    /// What happened after a revision.
    pub async fn after(
        node: &Wire,
        what: Option<What>,
        after: v1::Revision,
    ) -> Result<Self, Status> {
        let resume_after = Some(after);
        Self::begin(node, v1::WatchRequest { what, resume_after, ..Default::default() }).await
    }

    /// What happened after a revision of this cluster.
    pub async fn after_in(
        node: &Wire,
        cluster_id: Bytes,
        after: v1::Revision,
    ) -> Result<Self, Status> {
        let resume_after = Some(after);
        Self::begin(node, v1::WatchRequest { resume_after, cluster_id, what: None }).await
    }

    async fn begin(node: &Wire, message: v1::WatchRequest) -> Result<Self, Status> {
        let told = message.resume_after;
        let mut client = WatchClient::new(node.channel());
        let begun = tokio::time::timeout(PATIENCE, client.watch(message)).await;
        let parts = begun.expect("a watch begins at once")?.into_inner();
        Ok(Self { parts, events: VecDeque::new(), told, clusters: Vec::new() })
    }

    /// The next message that says more than how far it is; `None` when there is none for
    /// a while.
    pub async fn part_within(&mut self, within: std::time::Duration) -> Option<Part> {
        let until = tokio::time::Instant::now() + within;
        loop {
            let told = tokio::time::timeout_at(until, self.parts.message()).await.ok()?;
            match told.expect("the watch goes on")?.part.expect("a part") {
                Part::Progress(_) => {}
                part @ (Part::State(_) | Part::Events(_)) => return Some(part),
            }
        }
    }

    /// The next message. A watch does not end without a reason.
    pub async fn part(&mut self) -> Result<Part, Status> {
        let told = tokio::time::timeout(PATIENCE, self.parts.message()).await;
        let told = told.expect("something is said")?.expect("an end with a reason");
        self.clusters.push(told.cluster_id);
        let part = told.part.expect("a part");
        self.told = match &part {
            Part::State(state) => state.at,
            Part::Events(events) => events.events.last().and_then(|event| event.at),
            Part::Progress(at) => Some(*at),
        };
        Ok(part)
    }

    /// The next event.
    pub async fn event(&mut self) -> Result<v1::Event, Status> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            match self.part().await? {
                Part::Events(events) => self.events.extend(events.events),
                Part::Progress(_) => {}
                Part::State(state) => panic!("a state among the events: {state:?}"),
            }
        }
    }

    /// All events up to the one that grants this resource, which is the last.
    pub async fn events_until_granted(&mut self, name: &str) -> Result<Vec<v1::Event>, Status> {
        let mut events = Vec::new();
        loop {
            events.push(self.event().await?);
            let last = events.last().expect("there is one");
            if last.kind() == EventKind::Granted && last.resources == [name] {
                return Ok(events);
            }
        }
    }
}

/// Who holds what, as somebody knows who watches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book {
    pub holders: BTreeMap<String, BTreeSet<u64>>,
    /// The last name of the state so far; all names once it is complete.
    upto: Upto,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Upto {
    #[default]
    Nothing,
    Name(String),
    All,
}

impl Book {
    /// What follows nothing: the beginning of the log.
    pub fn from_the_beginning() -> Self {
        Self { upto: Upto::All, ..Self::default() }
    }

    /// A part says all there is of its names, and nothing of others.
    pub fn read_state(&mut self, state: &v1::State) {
        let before = self.upto.clone();
        if let Some(last) = state.resources.last() {
            self.upto = Upto::Name(last.resource.clone());
        }
        if state.last {
            self.upto = Upto::All;
        }
        self.holders.retain(|name, _| Upto::Name(name.clone()) <= before);
        for view in &state.resources {
            let tokens = view.holders.iter().map(|grant| grant.token);
            self.holders.entry(view.resource.clone()).or_default().extend(tokens);
        }
        self.holders.retain(|_, tokens| !tokens.is_empty());
    }

    pub fn read_event(&mut self, event: &v1::Event) {
        for name in &event.resources {
            let tokens = self.holders.entry(name.clone()).or_default();
            match event.kind() {
                EventKind::Granted => {
                    assert!(tokens.insert(event.token), "granted twice: {event:?}");
                }
                EventKind::Ended => {
                    let known = tokens.remove(&event.token);
                    let told = Upto::Name(name.clone()) <= self.upto;
                    assert!(known || !told, "the end of what nobody held: {event:?}");
                }
                _ => {}
            }
            if tokens.is_empty() {
                self.holders.remove(name);
            }
        }
    }

    /// What it says of the names that `other` has been told of.
    pub fn as_far_as(&self, other: &Self) -> BTreeMap<String, BTreeSet<u64>> {
        let told = |name: &str| Upto::Name(name.to_owned()) <= other.upto;
        let known = self.holders.iter().filter(|(name, _)| told(name));
        known.map(|(name, tokens)| (name.clone(), tokens.clone())).collect()
    }

    /// Whether the event is of a name that it has been told of, or of none.
    pub fn knows(&self, event: &v1::Event) -> bool {
        let told = |name: &String| Upto::Name(name.clone()) <= self.upto;
        event.resources.is_empty() || event.resources.iter().any(told)
    }

    pub fn of(&self, name: &str) -> BTreeSet<u64> {
        self.holders.get(name).cloned().unwrap_or_default()
    }
}

pub fn ascends(events: &[v1::Event]) -> bool {
    events.windows(2).all(|pair| at(pair[0].at) < at(pair[1].at))
}

/// Both names of every pair that is told of have the same holders at every revision.
pub fn no_pair_is_held_in_part(events: &[v1::Event], at_least: usize) {
    let mut book = Book::from_the_beginning();
    let mut pairs: BTreeSet<(String, String)> = BTreeSet::new();
    for event in events {
        book.read_event(event);
        if let [a, b] = &event.resources[..] {
            pairs.insert((a.clone(), b.clone()));
            let (of_a, of_b) = (book.of(a), book.of(b));
            match event.kind() {
                EventKind::Granted => {
                    let alone = BTreeSet::from([event.token]);
                    assert_eq!((&of_a, &of_b), (&alone, &alone), "{event:?}");
                }
                EventKind::Ended => assert!(of_a.is_empty() && of_b.is_empty(), "{event:?}"),
                _ => {}
            }
        }
    }
    assert!(pairs.len() >= at_least, "hardly any pairs: {pairs:?}");
}
