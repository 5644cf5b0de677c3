use std::sync::Arc;

use super::*;
use crate::locks::{EndCause, RequestId, SessionId, Token, Value, WaitId};

fn name(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a good name")
}

/// A value of `bytes` bytes is set on each of these names, by the entry at `index`.
fn entry(index: u64, names: &[&str], bytes: usize) -> Vec<Event> {
    let wait = WaitId { session: SessionId(1), request: RequestId::FIRST };
    let token = Token::new(1).expect("a token");
    let value = Value::new(&vec![7; bytes]).expect("short enough");
    let event = |(ordinal, one): (usize, &&str)| Event {
        at: Revision { index, ordinal: u32::try_from(ordinal).expect("few") },
        what: Happened::ValueChanged { wait, names: vec![name(one)], token, value: value.clone() },
    };
    names.iter().enumerate().map(event).collect()
}

fn ended(index: u64) -> Vec<Event> {
    let what = Happened::Ended { session: SessionId(1), cause: EndCause::Expired };
    vec![Event { at: Revision { index, ordinal: 0 }, what }]
}

fn keeps(events: usize, bytes: usize) -> Feed {
    let mut feed = Feed::new(10);
    feed.limit(FeedLimits { events, bytes });
    feed
}

fn revision(index: u64, ordinal: u32) -> Revision {
    Revision { index, ordinal }
}

/// The events after a revision, as index and ordinal, and up to where that is.
fn after(feed: &Feed, after: Revision, max: usize) -> (Vec<(u64, u32)>, Revision, bool) {
    let read = feed.after(after, max).expect("they are kept");
    let events = read.entries.iter().flat_map(|entry| &entry.events);
    let events = events.filter(|event| event.at > after);
    (events.map(|event| (event.at.index, event.at.ordinal)).collect(), read.to, read.all)
}

#[test]
fn what_is_kept_is_bounded_by_number_and_the_oldest_entry_goes_whole() {
    let mut feed = keeps(5, usize::MAX);
    assert_eq!(feed.since(), Revision::end_of(10));
    for index in 11..=13 {
        feed.append(index, entry(index, &["a", "b"], 0));
    }
    assert_eq!((feed.len(), feed.since()), (4, Revision::end_of(11)));
    feed.append(14, Vec::new());
    assert_eq!((feed.len(), feed.position()), (4, 14));
    let behind = feed.after(revision(11, 0), 100).expect_err("half an entry is gone");
    assert_eq!(behind, Behind { read: revision(11, 0), since: Revision::end_of(11) });
    let all = vec![(12, 0), (12, 1), (13, 0), (13, 1)];
    assert_eq!(after(&feed, Revision::end_of(11), 100), (all, Revision::end_of(14), true));
}

#[test]
fn what_is_kept_is_bounded_by_bytes() {
    let mut feed = keeps(usize::MAX, 10_000);
    for index in 11..=20 {
        feed.append(index, entry(index, &["a"], 3_000));
    }
    assert_eq!((feed.len(), feed.since()), (3, Revision::end_of(17)));
    feed.limit(FeedLimits { events: 1, bytes: usize::MAX });
    assert_eq!((feed.len(), feed.since()), (1, Revision::end_of(19)));
}

#[test]
fn the_last_entry_is_kept_whatever_its_size() {
    let mut feed = keeps(2, 10);
    feed.append(11, entry(11, &["a"], 0));
    feed.append(12, entry(12, &["a", "b", "c", "d"], 100));
    assert_eq!((feed.len(), feed.since()), (4, Revision::end_of(11)));
    feed.append(13, entry(13, &["a"], 0));
    assert_eq!((feed.len(), feed.since()), (1, Revision::end_of(12)));
}

#[test]
fn reading_goes_on_inside_an_entry_and_stops_at_whole_ones() {
    let mut feed = keeps(100, usize::MAX);
    for index in 11..=14 {
        feed.append(index, entry(index, &["a", "b", "c"], 0));
    }
    let some = after(&feed, revision(11, 1), 4);
    assert_eq!(some.0, [(11, 2), (12, 0), (12, 1), (12, 2)]);
    assert_eq!((some.1, some.2), (Revision::end_of(12), false));
    let rest = after(&feed, some.1, 100);
    assert_eq!((rest.0.len(), rest.1, rest.2), (6, Revision::end_of(14), true));
    assert_eq!(after(&feed, rest.1, 100), (vec![], Revision::end_of(14), true));
}

#[test]
fn a_revision_that_this_node_has_not_come_to_is_waited_for() {
    let mut feed = keeps(100, usize::MAX);
    let ahead = revision(12, 0);
    assert_eq!(after(&feed, ahead, 100), (vec![], ahead, true));
    feed.append(11, entry(11, &["a"], 0));
    assert_eq!(after(&feed, ahead, 100), (vec![], ahead, true));
    feed.append(12, entry(12, &["a", "b"], 0));
    assert_eq!(after(&feed, ahead, 100), (vec![(12, 1)], Revision::end_of(12), true));
}

#[test]
fn another_table_leaves_nothing_of_what_was_kept() {
    let mut feed = keeps(100, usize::MAX);
    feed.append(11, entry(11, &["a"], 0));
    feed.reset(500);
    assert_eq!((feed.len(), feed.position(), feed.since()), (0, 500, Revision::end_of(500)));
    assert!(feed.after(revision(11, 0), 100).is_err());
    assert_eq!(after(&feed, Revision::end_of(500), 1), (vec![], Revision::end_of(500), true));
    feed.append(501, entry(501, &["a"], 0));
    feed.limit(FeedLimits { events: 1, bytes: 1 });
    assert_eq!(feed.len(), 1);
}

#[test]
fn what_happened_before_an_index_is_read_backwards() {
    let mut feed = keeps(100, usize::MAX);
    for index in [11, 13, 15] {
        feed.append(index, entry(index, &["a", "b"], 0));
    }
    let indexes = |index, max| -> Vec<u64> {
        feed.before(index, max).iter().map(|entry| entry.index()).collect()
    };
    assert_eq!(indexes(16, 100), [15, 13, 11]);
    assert_eq!(indexes(15, 3), [13, 11]);
    assert_eq!(indexes(15, 1), [13]);
    assert_eq!(indexes(11, 100), [0; 0]);
}

/// A feed and its watchers, without a task between.
struct Node {
    feed: Feed,
    watchers: Arc<Watchers>,
}

impl Node {
    fn new(events: usize) -> Self {
        Self { feed: keeps(events, usize::MAX), watchers: Arc::default() }
    }

    fn sits(&self, topic: Topic) -> Seat {
        let now = Revision::end_of(self.feed.position());
        self.watchers.sit_down(topic, now, now).expect("there is room")
    }

    fn apply(&mut self, index: u64, events: Vec<Event>) {
        self.feed.append(index, events);
        self.watchers.look_through(&self.feed.after(self.watchers.position(), usize::MAX));
    }
}

fn topics() -> [Topic; 5] {
    let prefix = |prefix: &str| Topic::Prefix(prefix.to_owned());
    [Topic::Everything, prefix("job/"), prefix("é"), Topic::Resource(name("job/7")), prefix("x")]
}

#[test]
fn a_watcher_is_woken_by_what_it_watches_only_and_moves_on_with_the_rest() {
    let mut node = Node::new(100);
    let seats = topics().map(|topic| node.sits(topic));
    let start = Revision::end_of(10);
    node.apply(11, vec![]); // what was before they came is looked through
    let idle = |at| seats.each_ref().map(|seat| seat.turn(at));
    let mut expected = [Turn::Read(start); 5];
    assert_eq!(idle(start), expected, "each reads what came while it sat down");
    let at = Revision::end_of(11);
    assert_eq!(idle(at), [Turn::Idle(at); 5]);
    node.apply(12, vec![]);
    node.apply(13, entry(13, &["job/8", "é1"], 0));
    node.apply(14, ended(14));
    let (now, before) = (Revision::end_of(14), Revision::end_of(12));
    expected = [
        Turn::Read(before),
        Turn::Read(before),
        Turn::Read(before),
        Turn::Idle(now),
        Turn::Idle(now),
    ];
    assert_eq!(idle(at), expected);
    assert_eq!(idle(now), [Turn::Idle(now); 5]);
    node.apply(15, ended(15));
    let now = Revision::end_of(15);
    assert_eq!(idle(at)[0], Turn::Read(Revision::end_of(14)));
    assert_eq!(idle(at)[1..], [Turn::Idle(now); 4], "a session is of the audit feed only");
}

#[test]
fn what_comes_up_while_one_reads_is_read_next() {
    let mut node = Node::new(100);
    let seat = node.sits(Topic::Resource(name("a")));
    let read = Revision::end_of(10);
    assert_eq!(seat.turn(read), Turn::Idle(read));
    node.apply(11, entry(11, &["a"], 0));
    assert_eq!(seat.turn(read), Turn::Read(read));
    node.apply(12, entry(12, &["a"], 0));
    node.apply(13, entry(13, &["b"], 0));
    let read = Revision::end_of(11);
    assert_eq!(seat.turn(read), Turn::Read(read));
    let read = Revision::end_of(13);
    assert_eq!(seat.turn(read), Turn::Idle(read));
    node.apply(14, entry(14, &["b"], 0));
    assert_eq!(seat.turn(read), Turn::Idle(Revision::end_of(14)));
}

#[test]
fn one_that_is_idle_is_not_cut_however_much_else_happens() {
    let mut node = Node::new(2);
    let idle = node.sits(Topic::Resource(name("a")));
    let busy = node.sits(Topic::Everything);
    let start = Revision::end_of(10);
    assert_eq!((idle.turn(start), busy.turn(start)), (Turn::Idle(start), Turn::Idle(start)));
    for index in 11..=20 {
        node.apply(index, entry(index, &["b"], 0));
    }
    node.watchers.cut_before(node.feed.since());
    assert_eq!(node.watchers.len(), 1);
    assert_eq!(idle.turn(start), Turn::Idle(Revision::end_of(20)));
    assert_eq!(busy.turn(start), Turn::Cut { read: start });
}

#[test]
fn an_overrun_of_those_who_look_through_concerns_all() {
    let mut node = Node::new(2);
    let seat = node.sits(Topic::Resource(name("a")));
    let start = Revision::end_of(10);
    node.apply(11, vec![]);
    let at = Revision::end_of(11);
    assert_eq!(seat.turn(at), Turn::Idle(at));
    node.feed.reset(50);
    node.watchers.look_through(&node.feed.after(node.watchers.position(), 100));
    assert_eq!(seat.turn(at), Turn::Read(at));
    assert!(node.feed.after(at, 1).is_err());
    assert_eq!(seat.turn(start), Turn::Read(at), "it has told more before");
}

#[test]
fn as_many_watch_as_may_and_a_place_given_up_is_free() {
    let node = Node::new(2);
    node.watchers.limit(2);
    let seats = [node.sits(Topic::Everything), node.sits(Topic::Prefix("a".into()))];
    let full =
        node.watchers.sit_down(Topic::Everything, Revision::end_of(10), Revision::end_of(10));
    assert_eq!(full.map(drop), Err(TooMany { max: 2 }));
    for seat in &seats {
        let at = Revision::end_of(10);
        assert_eq!(seat.turn(at), Turn::Idle(at));
    }
    node.watchers.end(Over::Stops);
    let read = Revision::end_of(10);
    assert_eq!(seats[0].turn(read), Turn::Over { read, why: Over::Stops });
    drop(seats);
    assert!(node.watchers.is_empty());
}

/// Whoever takes a turn meanwhile waits for a few events, not for all of an entry.
#[test]
fn looking_through_a_large_entry_lets_others_in_between() {
    let mut node = Node::new(1);
    let _seat = node.sits(Topic::Resource(name("x")));
    let names: Vec<String> = (0..5_000).map(|number| format!("job/{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let watchers = Arc::clone(&node.watchers);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            if watchers.position().ordinal != u32::MAX {
                return true;
            }
        }
        false
    });
    // However the two are scheduled, some time the other one comes in between.
    for index in 11..=5_000 {
        if other.is_finished() {
            break;
        }
        node.apply(index, entry(index, &names, 0));
    }
    drop(stop);
    assert!(other.join().expect("it looks"), "never in the midst of an entry");
}
