//! Watches: the state, and then every event once. Section 9 of the contract.

use std::time::Duration;

use ringfence::client::{Client, ClientError, Seen, Session, Watcher, Watching};
use ringfence::locks::Revision;
use ringfence::wire::reason::Reason;
use ringfence::wire::v1::{self, EventKind};

use crate::authority::{Authority, FOR_EVER, Manner};
use crate::node::{Link, Node, SOON, client_of, nodes};

const TTL: Duration = Duration::from_secs(10);

async fn next(watcher: &mut Watcher) -> Seen {
    tokio::time::timeout(SOON, watcher.next()).await.expect("soon").expect("seen")
}

/// The whole state: its names, and its revision.
async fn state(watcher: &mut Watcher) -> (Vec<String>, Revision) {
    let mut names = Vec::new();
    loop {
        match next(watcher).await {
            Seen::State { resources, at, last } => {
                names.extend(resources.into_iter().map(|view| view.resource));
                if last {
                    return (names, at);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn event(watcher: &mut Watcher) -> v1::Event {
    loop {
        match next(watcher).await {
            Seen::Event(event) => return event,
            Seen::Progress(_) => {}
            Seen::State { .. } => panic!("a second state"),
        }
    }
}

async fn with(count: usize) -> (Authority, Vec<Node>, Client, Session) {
    let (authority, nodes) = nodes(count).await;
    let client = client_of(&nodes);
    let session = client.session(TTL).await.expect("opened");
    (authority, nodes, client, session)
}

#[tokio::test]
async fn a_watch_tells_the_state_and_then_what_happens_to_what_it_watches() {
    let (_authority, _nodes, client, session) = with(1).await;
    let held = session.acquire("job/7").await.expect("granted");
    let _elsewhere = session.acquire("jobless").await.expect("granted");
    let mut of_one = client.watch(Watching::resource("job/7"));
    let mut of_prefix = client.watch(Watching::prefix("job/"));
    let mut of_all = client.watch(Watching::everything());
    assert_eq!(state(&mut of_one).await.0, ["job/7"]);
    assert_eq!(state(&mut of_prefix).await.0, ["job/7"]);
    assert_eq!(state(&mut of_all).await.0, ["job/7", "jobless"]);
    let token = held.token().get();
    let other = session.acquire("job/8").await.expect("granted");
    held.release().await.expect("released");
    for watcher in [&mut of_one, &mut of_prefix, &mut of_all] {
        let mut seen = event(watcher).await;
        if seen.token == other.token().get() {
            seen = event(watcher).await;
        }
        assert_eq!((seen.kind(), seen.token), (EventKind::Ended, token));
    }
    session.close().await.expect("closed");
    let mut kinds = Vec::new();
    while kinds.last() != Some(&EventKind::SessionEnded) {
        kinds.push(event(&mut of_all).await.kind());
    }
    assert_eq!(kinds, [EventKind::Ended, EventKind::Ended, EventKind::SessionEnded]);
}

#[tokio::test]
async fn a_watch_goes_on_at_other_nodes_without_a_gap_and_without_a_repeat() {
    let (authority, nodes, client, session) = with(3).await;
    let mut nodes: Vec<_> = nodes.into_iter().map(Some).collect();
    let mut watcher = client.watch(Watching::prefix("job/"));
    let (_, from) = state(&mut watcher).await;
    let mut seen = Vec::new();
    for round in 0..12_usize {
        match round {
            // Whichever it is at: the stream breaks, its node dies, or breaks it off
            // again at the start.
            3 | 6 => authority.cut_watches(),
            8 => (0..3).for_each(|node| authority.behave(node, "watch", Manner::LosesReply, 2)),
            9 => nodes[authority.seen("watch").last().expect("it watches").node] = None,
            _ => {}
        }
        if round == 8 {
            authority.cut_watches();
        }
        let name = format!("job/{}", round % 4);
        session.acquire(name).await.expect("granted").release().await.expect("released");
        if round % 3 == 0 {
            seen.push(event(&mut watcher).await);
        }
    }
    let happened = || {
        let table = authority.table();
        let after = |event: &&v1::Event| event.at.is_some_and(|at| at.index > from.index);
        let on = |event: &&v1::Event| event.resources.iter().any(|name| name.starts_with("job/"));
        table.events.iter().filter(after).filter(on).cloned().collect::<Vec<_>>()
    };
    let happened = happened();
    assert_eq!(happened.len(), 24);
    while seen.len() < happened.len() {
        seen.push(event(&mut watcher).await);
    }
    assert_eq!(seen, happened);
    let resumed = authority.seen("watch");
    assert!(resumed.len() > 4, "{}", resumed.len());
    assert!(resumed[1..].iter().all(|seen| seen.contents.contains("resume_after: Some")));
    let named = |contents: &str| contents.contains("the first cluster");
    assert!(!named(&resumed[0].contents), "it took whichever answered");
    assert!(resumed[1..].iter().all(|seen| named(&seen.contents)), "and then that one");
}

#[tokio::test]
async fn a_watch_that_resumes_tells_no_state_and_begins_after_its_revision() {
    let (authority, _nodes, client, session) = with(1).await;
    session.acquire("job/7").await.expect("granted").release().await.expect("released");
    let events = authority.events_on("job/7");
    let at = events[0].at.expect("it has a revision");
    let after = Revision { index: at.index, ordinal: at.ordinal };
    let mut watcher = client.watch(Watching::resource("job/7")).resume_after(after);
    assert_eq!(next(&mut watcher).await, Seen::Event(events[1].clone()));
    // Idle, it moves on with what happens elsewhere, so that it can resume from there.
    let other = session.acquire("elsewhere").await.expect("granted");
    let index = authority.table().locks.position().index;
    loop {
        match next(&mut watcher).await {
            Seen::Progress(at) if at.index >= index => break,
            Seen::Progress(_) => {}
            other => panic!("{other:?}"),
        }
    }
    drop(other);
}

#[tokio::test]
async fn a_state_that_breaks_off_half_way_is_told_whole_from_the_next_node() {
    let (authority, _nodes, client, session) = with(2).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        guards.push(session.acquire(name).await.expect("granted"));
    }
    (0..2).for_each(|node| authority.behave(node, "watch", Manner::LosesReply, 1));
    let mut watcher = client.watch(Watching::everything());
    assert_eq!(state(&mut watcher).await.0, ["a", "b", "c", "d", "e"]);
    assert_eq!(authority.seen("watch").len(), 3);
}

#[tokio::test]
async fn events_that_one_node_keeps_no_longer_are_fetched_from_another() {
    let (authority, _nodes, client, session) = with(2).await;
    let mut watcher = client.watch(Watching::resource("job/7"));
    let (_, at) = state(&mut watcher).await;
    let guard = session.acquire("job/7").await.expect("granted");
    assert_eq!(event(&mut watcher).await.token, guard.token().get());
    authority.compact(0);
    authority.cut_watches();
    let token = guard.token().get();
    guard.release().await.expect("released");
    assert_eq!(event(&mut watcher).await.kind(), EventKind::Ended);

    authority.compact(1);
    let mut late = client.watch(Watching::resource("job/7")).resume_after(at);
    let error = late.next().await.expect_err("nobody keeps them");
    assert_eq!(error, ClientError::Compacted);
    assert_eq!(late.next().await.expect_err("it is over"), ClientError::Compacted);
    assert!(error.to_string().contains("watch anew"), "{error}");
    let mut anew = client.watch(Watching::resource("job/7"));
    assert_eq!(state(&mut anew).await.0, [""; 0]);
    assert!(token > 0);
}

#[tokio::test]
async fn nodes_that_cannot_be_reached_are_told_and_the_watch_goes_on_when_they_can() {
    let (_authority, nodes, _, session) = with(1).await;
    let link = Link::to(&nodes[0]).await;
    let hasty = Client::builder().call_timeout(Duration::from_millis(500));
    let hasty = hasty.attempt_timeout(Duration::from_millis(200));
    let watching = hasty.connect([&link.address]).expect("a good endpoint");
    let mut watcher = watching.watch(Watching::resource("job/7"));
    state(&mut watcher).await;
    link.goes_dark();
    let error = tokio::time::timeout(SOON, async {
        loop {
            if let Err(error) = watcher.next().await {
                break error;
            }
        }
    });
    let error = error.await.expect("the silence is noticed");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    let guard = session.acquire("job/7").await.expect("granted");
    link.is_lit();
    let granted = loop {
        match tokio::time::timeout(SOON, watcher.next()).await.expect("soon") {
            Ok(Seen::Event(event)) => break event,
            Ok(_) | Err(ClientError::Unreachable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(granted.token, guard.token().get(), "nothing is missing");
}

#[tokio::test]
async fn a_look_that_is_given_up_loses_nothing() {
    let (authority, _nodes, client, session) = with(1).await;
    let mut watcher = client.watch(Watching::resource("job/7"));
    state(&mut watcher).await;
    let mut seen = Vec::new();
    for _ in 0..10 {
        session.acquire("job/7").await.expect("granted").release().await.expect("released");
        tokio::select! {
            biased;
            got = watcher.next() => seen.push(got.expect("seen")),
            () = tokio::task::yield_now() => {}
        }
    }
    let happened = authority.events_on("job/7");
    let events = |seen: &[Seen]| {
        let events = seen.iter().filter_map(|seen| match seen {
            Seen::Event(event) => Some(event.clone()),
            Seen::Progress(_) | Seen::State { .. } => None,
        });
        events.collect::<Vec<_>>()
    };
    while events(&seen).len() < happened.len() {
        seen.push(next(&mut watcher).await);
    }
    assert_eq!(events(&seen), happened);
}

#[tokio::test]
async fn a_watch_that_is_refused_says_why_and_is_over() {
    let (authority, _nodes, client, _session) = with(2).await;
    let error = client.watch(Watching::resource("")).next().await.expect_err("no name");
    assert!(matches!(error, ClientError::Invalid { ref field, .. } if field == "resource"));
    for node in 0..2 {
        authority.behave(node, "watch", Manner::Refuses(Reason::LimitReached, vec![]), FOR_EVER);
    }
    let mut full = client.watch(Watching::everything());
    let error = full.next().await.expect_err("no node has room");
    assert!(matches!(&error, ClientError::Refused { told, .. } if told.word == "LIMIT_REACHED"));
    assert_eq!(authority.seen("watch").len(), 2, "each node was asked");
    authority.recover_all();
    for node in 0..2 {
        authority.behave(node, "watch", Manner::Refuses(Reason::PermissionDenied, vec![]), 1);
    }
    let mut denied = client.watch(Watching::everything());
    let error = denied.next().await.expect_err("denied");
    assert!(
        matches!(&error, ClientError::Refused { told, .. } if told.word == "PERMISSION_DENIED")
    );
    assert_eq!(denied.next().await.expect_err("it is over"), error);
}

#[tokio::test]
async fn a_watch_leaves_a_node_that_is_cut_off_and_resumes_at_another() {
    let (authority, _nodes, client, session) = with(3).await;
    let mut watcher = client.watch(Watching::resource("job/7"));
    state(&mut watcher).await;
    for round in 0..2 {
        let at = authority.seen("watch").last().expect("it watches").node;
        authority.cut_off(at);
        let guard = session.acquire("job/7").await.expect("granted");
        let token = guard.token().get();
        guard.release().await.expect("released");
        let (granted, ended) = (event(&mut watcher).await, event(&mut watcher).await);
        assert_eq!((granted.kind(), granted.token), (EventKind::Granted, token), "{round}");
        assert_eq!((ended.kind(), ended.token), (EventKind::Ended, token), "{round}");
        let last = authority.seen("watch").pop().expect("it watches");
        assert!(last.node != at && last.contents.contains("resume_after: Some"), "{last:?}");
    }
}

#[tokio::test]
async fn a_watch_is_over_only_when_every_node_has_refused_it() {
    let (authority, nodes, _, session) = with(2).await;
    let link = Link::to(&nodes[1]).await;
    let hasty = Client::builder().call_timeout(Duration::from_millis(500));
    let hasty = hasty.attempt_timeout(Duration::from_millis(200));
    let client = hasty.connect([&nodes[0].address, &link.address]).expect("good endpoints");
    let after = Revision { index: authority.table().locks.position().index, ordinal: u32::MAX };
    let guard = session.acquire("job/7").await.expect("granted");
    authority.compact(0);
    link.goes_dark();
    let mut watcher = client.watch(Watching::resource("job/7")).resume_after(after);
    for _ in 0..3 {
        let error = tokio::time::timeout(SOON, watcher.next()).await.expect("it complains");
        let error = error.expect_err("one has it no longer, the other is dark");
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    }
    link.is_lit();
    let granted = loop {
        match tokio::time::timeout(SOON, watcher.next()).await.expect("soon") {
            Ok(Seen::Event(event)) => break event,
            Ok(_) | Err(ClientError::Unreachable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(granted.token, guard.token().get(), "nothing is missing");
}

#[tokio::test]
async fn a_state_that_never_comes_whole_is_told_and_not_asked_for_in_a_rush() {
    let (authority, nodes, _, session) = with(2).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(session.acquire(name).await.expect("granted"));
    }
    authority.change(|t| t.outrun.extend([0, 1]));
    let hasty = Client::builder().call_timeout(Duration::from_secs(1));
    let client = hasty.connect(nodes.iter().map(|node| &node.address)).expect("good endpoints");
    let mut watcher = client.watch(Watching::everything());
    let told = tokio::time::timeout(SOON, watcher.next()).await.expect("it complains");
    let error = told.expect_err("no state comes whole");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    let asked = authority.seen("watch").len();
    assert!((4..100).contains(&asked), "asked {asked} times in a second");
    authority.change(|t| t.outrun.clear());
    assert_eq!(state(&mut watcher).await.0, ["a", "b", "c"]);
}
