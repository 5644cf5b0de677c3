//! Watches on a node without a cluster: what is applied, and when, is up to the test.

use std::collections::BTreeSet;

use prost::Message;

use super::*;
use crate::feed::FeedLimits;
use crate::leases::Moment;
use crate::locks::{
    Bootstrap, Claim, ClusterId, Command, Done, Header, Labels, Limits, LockTable, Millis, Mode,
    OwnerId, Position, RequestId, SessionId, Term, Terms, Token, Value, Wait,
};
use crate::wire::Reason;
use crate::wire::v1::EventKind;

/// A node that applies what the test says.
struct Node {
    authority: Arc<Authority>,
    index: u64,
}

/// A session, and the last of its requests.
struct Client {
    owner: OwnerId,
    session: SessionId,
    request: u64,
}

impl Client {
    fn next(&mut self) -> Header {
        self.request += 1;
        let id = RequestId::new(self.request).expect("above 0");
        let (owner, session) = (self.owner, self.session);
        Header { owner, session, id, oldest_outstanding: id, answered: Vec::new() }
    }
}

fn name(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a good name")
}

impl Node {
    fn new() -> Self {
        let authority = Arc::new(Authority::new(LockTable::new(), Moment::now()));
        let mut node = Self { authority, index: 0 };
        let cluster = ClusterId::new([9; 16]);
        let limits = Limits::default();
        node.apply(&Command::Bootstrap(Bootstrap { cluster, token_floor: 0, limits }));
        node
    }

    fn apply(&mut self, command: &Command) -> Done {
        self.index += 1;
        let at = Position { term: Term(1), index: self.index };
        let mut state = self.authority.lock();
        let (outcome, _) = state.apply(at, Some(command), Moment::now());
        let read = state.feed.after(self.authority.watchers().position(), usize::MAX);
        drop(state);
        self.authority.watchers().look_through(&read);
        outcome.expect("nothing stands against it")
    }

    fn open(&mut self) -> Client {
        let owner = OwnerId::new(u128::from(self.index).to_be_bytes());
        let (ttl, labels) = (Millis(60_000), Labels::default());
        self.apply(&Command::OpenSession { owner, ttl, labels });
        Client { owner, session: SessionId(self.index), request: 0 }
    }

    fn share(&mut self, client: &mut Client, of: &str, bytes: usize) -> Token {
        let value = Value::new(&vec![7; bytes]).expect("short enough");
        let terms = Terms { value, ..Terms::default() };
        let claim = Claim::new(vec![name(of)], Mode::Shared, terms).expect("a good claim");
        let claimed = Command::Acquire { header: client.next(), claim, wait: Wait::Try };
        match self.apply(&claimed) {
            Done::Granted { token } => token,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn close(&mut self, client: &Client) {
        let (owner, session) = (client.owner, client.session);
        self.apply(&Command::CloseSession { owner, session });
    }

    fn watch(&self, topic: Topic, with_state: bool) -> Watching {
        let read = Revision::end_of(self.index);
        let seat = self.authority.watchers().sit_down(topic.clone(), read, read);
        let (seat, cluster) = (seat.expect("there is room"), Bytes::new());
        let beginning = Beginning { seat, topic, read, with_state, cluster };
        Watching::begin(Arc::clone(&self.authority), beginning)
    }
}

async fn part(watching: &mut Watching) -> Part {
    let told = watching.next().await.expect("it goes on").expect("nothing is amiss");
    told.part.expect("a part")
}

/// Who holds a resource, as a watcher knows it.
#[derive(Default)]
struct Holders(BTreeSet<u64>);

impl Holders {
    fn read(&mut self, part: &Part) {
        match part {
            Part::State(state) => {
                let views = state.resources.iter().filter(|view| view.resource == "a");
                for grant in views.flat_map(|view| &view.holders) {
                    assert!(self.0.insert(grant.token), "told twice: {}", grant.token);
                }
            }
            Part::Events(events) => {
                for event in events.events.iter().filter(|event| event.resources == ["a"]) {
                    match event.kind() {
                        EventKind::Granted => {
                            assert!(self.0.insert(event.token), "told twice: {event:?}");
                        }
                        EventKind::Ended => {
                            self.0.remove(&event.token);
                        }
                        _ => {}
                    }
                }
            }
            Part::Progress(_) => {}
        }
    }
}

/// Between its parts holders go that were told and that were not, and others come.
async fn in_parts(topic: Topic) {
    const HOLDERS: usize = 300;
    let mut node = Node::new();
    let mut clients = VecDeque::new();
    for _ in 0..HOLDERS {
        let mut client = node.open();
        node.share(&mut client, "a", 4_000);
        clients.push_back(client);
    }
    let mut other = node.open();
    node.share(&mut other, "b", 0);
    let mut watching = node.watch(topic.clone(), true);
    let (mut holders, mut parts) = (Holders::default(), 0);
    loop {
        let part = part(&mut watching).await;
        holders.read(&part);
        let Part::State(state) = part else { continue };
        parts += 1;
        assert!(state.encoded_len() < 300 << 10, "{} bytes", state.encoded_len());
        if state.last {
            let b = state.resources.last().is_some_and(|view| view.resource == "b");
            assert_eq!(b, topic == Topic::Everything);
            break;
        }
        for gone in [clients.pop_front(), clients.pop_back()] {
            node.close(&gone.expect("there are more"));
        }
        let mut client = node.open();
        node.share(&mut client, "a", 4_000);
        clients.insert(clients.len() / 2, client); // not the next to go
    }
    assert!(parts >= 4, "{parts} parts");
    let state = node.authority.lock();
    let view = state.table.resource(&name("a")).expect("it is held");
    let held: BTreeSet<u64> = view.holders().map(|grant| grant.token.get()).collect();
    assert_eq!(holders.0, held);
}

#[tokio::test]
async fn very_many_holders_are_told_in_parts_and_each_once_whatever_happens_between() {
    in_parts(Topic::Everything).await;
    in_parts(Topic::Resource(name("a"))).await;
}

#[tokio::test]
async fn what_one_entry_brought_about_is_told_piece_by_piece_and_to_its_end() {
    const NAMES: usize = 2_000;
    let mut node = Node::new();
    node.authority.lock().feed.limit(FeedLimits { events: 10, bytes: usize::MAX });
    let mut client = node.open();
    for number in 0..NAMES {
        node.share(&mut client, &format!("{number:04}"), 0);
    }
    let mut watching = node.watch(Topic::Everything, false);
    node.close(&client);
    let (mut ends, mut messages) = (Vec::new(), 0);
    while ends.len() < NAMES + 1 {
        let Part::Events(events) = part(&mut watching).await else { panic!("no events") };
        assert!(watching.ready.is_empty(), "more is held than was asked for");
        ends.extend(events.events.into_iter().filter_map(|event| event.at));
        messages += 1;
        if messages == 1 {
            // The node keeps the entry no longer, but who is in the midst of it has it.
            node.open();
        }
    }
    assert!(messages >= NAMES / 256, "{messages} messages");
    let first = ends[0];
    let all = (first.ordinal..).map(|ordinal| v1::Revision { ordinal, ..first });
    assert_eq!(ends, all.take(NAMES + 1).collect::<Vec<_>>());
    let Part::Events(next) = part(&mut watching).await else { panic!("no events") };
    assert_eq!(next.events[0].kind(), EventKind::SessionOpened);
}

/// The last event of an entry is no place to go on from once the entry is gone: what was
/// the last is not known then.
#[tokio::test]
async fn a_watch_that_has_become_idle_says_at_once_from_where_to_go_on() {
    let mut node = Node::new();
    node.authority.lock().feed.limit(FeedLimits { events: 1, bytes: usize::MAX });
    let mut client = node.open();
    let mut watching = node.watch(Topic::Resource(name("a")), false);
    node.share(&mut client, "a", 0);
    let Part::Events(events) = part(&mut watching).await else { panic!("no event") };
    let (told, began) = (node.index, clock::timer());
    let Part::Progress(progress) = part(&mut watching).await else { panic!("no progress") };
    assert!(clock::timer() - began < PROGRESS_EVERY / 2);
    assert_eq!(progress, v1::Revision { index: told, ordinal: u32::MAX });
    node.share(&mut client, "b", 0);
    let state = node.authority.lock();
    let last = Revision::from(&events.events[0].at.expect("set"));
    assert!(state.feed.after(last, 1).is_err());
    assert!(state.feed.after(Revision::from(&progress), 1).is_ok());
}

#[tokio::test]
async fn a_watch_that_is_ended_says_first_from_where_to_go_on() {
    for why in [Over::CutOff, Over::Stops] {
        let mut node = Node::new();
        let mut client = node.open();
        let mut watching = node.watch(Topic::Resource(name("a")), false);
        node.share(&mut client, "a", 0);
        assert!(matches!(part(&mut watching).await, Part::Events(_)));
        node.authority.watchers().end(why);
        let to = v1::Revision { index: node.index, ordinal: u32::MAX };
        assert_eq!(part(&mut watching).await, Part::Progress(to));
        let status = watching.next().await.expect("a reason").expect_err("it ends");
        assert_eq!(Reason::of(&status), Some(Reason::NoQuorum));
        assert!(watching.next().await.is_none());
    }
}

#[tokio::test]
async fn a_watch_that_was_cut_off_for_a_moment_goes_on() {
    let mut node = Node::new();
    let mut client = node.open();
    let mut watching = node.watch(Topic::Resource(name("a")), false);
    node.authority.watchers().end(Over::CutOff);
    node.authority.watchers().go_on();
    node.share(&mut client, "a", 0);
    assert!(matches!(part(&mut watching).await, Part::Events(_)));
}
