//! The client's way through the whole lock model, on a cluster that loses its leader.

use std::future::IntoFuture;
use std::sync::mpsc;
use std::time::Duration;

use ringfence::client::{Client, ClientError, Leader, Observer, Seen, Session, Watching};
use ringfence::locks::Note;
use ringfence::wire::v1::{Event, EventKind};

use crate::cluster::{Cluster, PATIENCE};

const TTL: Duration = Duration::from_secs(6);
const BARRIER: Duration = Duration::from_secs(60);

fn note() -> Note {
    Note::new("ops", "make room").expect("a good note")
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

async fn leader(observer: &mut Observer) -> Option<Leader> {
    soon("a change of the leader", observer.next()).await.expect("observed")
}

async fn two_sessions(client: &Client) -> (Session, Session) {
    let session = async || client.session(TTL).await.expect("a session");
    (session().await, session().await)
}

#[tokio::test]
async fn an_election_goes_through_a_dead_leader_in_order_and_its_watchers_miss_nothing() {
    let mut cluster = Cluster::start(3).await;
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let (first, second) = two_sessions(&client).await;
    let mut observer = client.observe("db/primary");
    let mut watcher = client.watch(Watching::resource("db/primary"));
    assert_eq!(leader(&mut observer).await, None);
    let state = soon("the state", watcher.next()).await.expect("seen");
    assert!(matches!(state, Seen::State { last: true, .. }), "{state:?}");

    let campaign = first.election("db/primary").campaign("one").strict(BARRIER);
    let unconfirmed = campaign.await.expect("granted");
    let current = client.check_token("db/primary", unconfirmed.token()).await.expect("answered");
    assert!(!current.current, "not before it is confirmed");
    let leading = unconfirmed.confirm().await.expect("confirmed");
    let seen = leader(&mut observer).await.expect("it leads");
    assert_eq!((seen.token, &*seen.value), (leading.token(), &b"one"[..]));
    leading.proclaim("one, at work").await.expect("proclaimed");
    assert_eq!(&*leader(&mut observer).await.expect("it leads").value, b"one, at work");

    let (tell, told) = mpsc::channel();
    let candidate = second.election("db/primary").campaign("two");
    let candidate = candidate.on_queued(move |ahead| tell.send(ahead).expect("heard"));
    let candidate = tokio::spawn(candidate.into_future());
    soon("its place", async {
        while client.get("db/primary").await.expect("read").resource.expect("there").waiting == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let dead = cluster.leader().await;
    cluster.kill(dead);
    cluster.leader_but(Some(dead)).await;
    let token = leading.token();
    let asked = client.ask_release("db/primary", token, Duration::from_secs(5), note());
    asked.await.expect("asked");
    let asked = soon("the ask", leading.handover_asked()).await;
    assert_eq!((&*asked.actor, &*asked.reason), ("ops", "make room"));
    assert!(!candidate.is_finished(), "nothing is taken away");
    leading.resign().await.expect("resigned");
    let next = soon("the next one", candidate).await.expect("not aborted").expect("elected");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [0]);
    let seen = loop {
        // That nobody led in between may be seen or not.
        if let Some(seen) = leader(&mut observer).await {
            break seen;
        }
    };
    assert_eq!((seen.token, &*seen.value), (next.token(), &b"two"[..]));

    let mut events: Vec<Event> = Vec::new();
    while events.iter().filter(|event| event.kind() == EventKind::Granted).count() < 2 {
        if let Seen::Event(event) = soon("an event", watcher.next()).await.expect("seen") {
            events.push(event);
        }
    }
    let (one, two) = (token.get(), next.token().get());
    let order: Vec<_> = events.iter().map(|event| (event.kind(), event.token)).collect();
    assert_eq!(
        order,
        [
            (EventKind::Granted, one),
            (EventKind::Activated, one),
            (EventKind::ValueChanged, one),
            (EventKind::Queued, 0),
            (EventKind::Asked, one),
            (EventKind::Ended, one),
            (EventKind::Granted, two),
        ]
    );
}

#[tokio::test]
async fn modes_sets_and_administration_are_told_as_what_they_are() {
    let cluster = Cluster::start(3).await;
    let client = Client::connect(cluster.endpoints()).expect("good endpoints");
    let (one, two) = two_sessions(&client).await;

    let (reader, other) = (one.acquire_shared("book"), two.acquire_shared("book"));
    let (reader, other) = (reader.await.expect("granted"), other.await.expect("granted"));
    assert_eq!(other.fence().floor, reader.token());
    let slot = one.acquire_slot("screens", 3).await.expect("granted");
    assert_eq!((slot.slot(), slot.fence().slot), (0, Some(0)));
    let error = two.acquire_slot("screens", 2).await.expect_err("another number");
    assert!(matches!(error, ClientError::CapacityMismatch { slots: Some(3), .. }), "{error}");
    let resized = client.resize("screens", 1, note()).await.expect("resized");
    assert_eq!((resized.slots, resized.range, resized.removed.len()), (1, 1..3, 2));

    let set = one.acquire_all(["b", "a"]).await.expect("granted");
    let b = two.acquire("c").await.expect("granted");
    let waiting = tokio::spawn(two.acquire("a").into_future());
    soon("it waits", async {
        while client.get("a").await.expect("read").resource.expect("there").waiting == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let error = one.acquire("c").await.expect_err("they would wait for each other");
    let ClientError::Deadlock { sessions, resources } = &error else { panic!("{error}") };
    assert_eq!(
        (&sessions[..], &resources[..]),
        (&[one.id(), two.id()][..], &["c".into(), "a".into()][..])
    );
    let fences = client.revoke("b", set.token(), note()).await.expect("revoked");
    assert_eq!(fences.len(), 2, "one for each of the set");
    let inherited = soon("the next one", waiting).await.expect("not aborted").expect("granted");
    soon("the loss", set.lost()).await;
    assert!(one.try_acquire("b").await.expect("free").is_held());

    let freeze = client.freeze("c", note()).await.expect("frozen");
    soon("the loss", b.lost()).await;
    let error = one.try_acquire("c").await.expect_err("closed");
    let resource = Some("c".to_owned());
    assert_eq!(error, ClientError::Frozen { resource, token: Some(freeze.token) });
    let stale = client.thaw("c", inherited.token(), note()).await.expect_err("another token");
    assert!(matches!(stale, ClientError::NotFound { .. }), "{stale}");
    client.thaw("c", freeze.token, note()).await.expect("thawed");
    let explained = client.explain("c").await.expect("explained");
    assert_eq!(explained.events.last().map(Event::kind), Some(EventKind::Thawed));
    for _ in 0..20 {
        drop(one.acquire("c").await.expect("its own release is first"));
    }
}
