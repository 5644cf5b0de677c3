//! A raise, a crash or a frozen owner between a write's check and its commit.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::stories::{ATTEMPTS, assert_never_back, mixed};

/// The owner before, whose transaction has passed the check; and the new owner.
const OLD: u64 = 1;
const NEW: u64 = 2;

#[tokio::test]
async fn a_raise_waits_for_a_write_past_its_check_and_refuses_the_next() {
    for isolation in ISOLATIONS {
        let destination = Destination::new().await;
        let (mut old, mut new) = (destination.client().await, destination.client().await);
        let observer = destination.client().await;
        postgres::raise(&mut old, &exclusive("job/7", OLD), PATIENCE).await.expect("the first");
        let writing = old.build_transaction().isolation_level(isolation).start().await;
        let writing = writing.expect("connected");
        let past = postgres::check(&writing, &exclusive("job/7", OLD)).await;
        past.expect("the owner");
        let waiting = backend(&new).await;
        let raising = tokio::spawn(async move {
            postgres::raise(&mut new, &exclusive("job/7", NEW), PATIENCE).await
        });
        until_blocked(&observer, waiting).await;
        publish(&writing, OLD).await.expect("past the check");
        writing.commit().await.expect("past the check");
        raising.await.expect("it ran").expect("nobody writes now");
        let stale = write_at(&mut old, isolation, &exclusive("job/7", OLD)).await;
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{isolation:?}: {stale:?}");
        assert_eq!(ledger(&observer).await, [OLD], "{isolation:?}");
    }
}

#[tokio::test]
async fn a_write_that_meets_a_raise_in_flight_waits_for_it_and_is_refused() {
    for isolation in ISOLATIONS {
        let destination = Destination::new().await;
        let (mut old, mut new) = (destination.client().await, destination.client().await);
        let observer = destination.client().await;
        postgres::raise(&mut old, &exclusive("job/7", OLD), PATIENCE).await.expect("the first");
        let raising = new.transaction().await.expect("connected");
        let raised = postgres::check(&raising, &exclusive("job/7", NEW)).await;
        raised.expect("greater than the mark");
        let waiting = backend(&old).await;
        let writing = tokio::spawn(async move {
            let begun = old.build_transaction().isolation_level(isolation).start().await;
            let transaction = begun.expect("connected");
            let first = postgres::check(&transaction, &exclusive("job/7", OLD)).await;
            drop(transaction);
            (first, write_at(&mut old, isolation, &exclusive("job/7", OLD)).await)
        });
        until_blocked(&observer, waiting).await;
        raising.commit().await.expect("a raise");
        let (first, again) = writing.await.expect("it ran");
        match isolation {
            IsolationLevel::ReadCommitted => {
                assert!(matches!(first, Err(FenceError::Stale { .. })), "{first:?}");
            }
            _ => assert!(matches!(first, Err(FenceError::Conflict(_))), "{first:?}"),
        }
        assert!(matches!(again, Err(FenceError::Stale { .. })), "{again:?}");
        assert!(ledger(&observer).await.is_empty());
    }
}

#[tokio::test]
async fn a_first_write_that_meets_another_first_write_of_a_later_owner_is_refused() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let observer = destination.client().await;
    let first = postgres::begin(&mut new, &exclusive("job/7", NEW), PATIENCE).await;
    let first = first.expect("no mark yet");
    let waiting = backend(&old).await;
    let stale = tokio::spawn(async move { write(&mut old, OLD).await });
    until_blocked(&observer, waiting).await;
    first.commit().await.expect("past the check");
    let stale = stale.await.expect("it ran");
    assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
}

/// What is visible when a raise returns is all that an earlier owner ever writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_order_no_stale_write_commits_after_the_raise() {
    const WRITER_FIRST: usize = 0;
    const RAISE_FIRST: usize = 1;
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    postgres::raise(&mut old, &exclusive("job/7", OLD), PATIENCE).await.expect("the first owner");
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..90 {
        let isolation = ISOLATIONS[round / 3 % 3];
        new.batch_execute("UPDATE ringfence.marks SET mark = 1; UPDATE job SET state = 'new'")
            .await
            .expect("between two rounds");
        let (past, raised) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let writing = async {
            if round % 3 == RAISE_FIRST {
                raised.notified().await;
            }
            let begun = old.build_transaction().isolation_level(isolation).start().await;
            let transaction = begun.expect("connected");
            let fence = exclusive("job/7", OLD);
            let checked = postgres::check(&transaction, &fence).await;
            past.notify_one();
            checked?;
            publish(&transaction, OLD).await?;
            transaction.commit().await.map_err(FenceError::from)
        };
        let raising = async {
            if round % 3 == WRITER_FIRST {
                past.notified().await;
            }
            let fence = exclusive("job/7", NEW);
            postgres::raise(&mut new, &fence, PATIENCE).await.expect("the greatest token");
            raised.notify_one();
            text(&new, "SELECT state FROM job").await
        };
        let (written, seen) = tokio::join!(writing, raising);
        match &written {
            Ok(()) => accepted += 1,
            Err(FenceError::Stale { .. } | FenceError::Conflict(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        assert_eq!(text(&new, "SELECT state FROM job").await, seen, "{written:?}");
        assert_eq!(seen, if written.is_ok() { "by 1" } else { "new" });
    }
    assert!(accepted >= 30 && refused >= 30, "{accepted} accepted, {refused} refused");
}

#[tokio::test]
async fn counterexample_15_a_plain_read_is_a_hole_even_when_serializable_and_the_check_is_none() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let serializable = IsolationLevel::Serializable;
    postgres::raise(&mut old, &exclusive("job/7", OLD), PATIENCE).await.expect("the first owner");

    let reading = old.build_transaction().isolation_level(serializable).start().await;
    let reading = reading.expect("connected");
    let sql = "SELECT mark FROM ringfence.marks WHERE resource = 'job/7' AND slot = -1";
    let mark: i64 = reading.query_typed_one(sql, &[]).await.expect("a mark").get(0);
    assert!(mark <= OLD.cast_signed(), "the plain check is passed");
    let raising = new.build_transaction().isolation_level(serializable).start().await;
    let raising = raising.expect("connected");
    postgres::check(&raising, &exclusive("job/7", NEW)).await.expect("a reader stops nobody");
    raising.commit().await.expect("a reader stops nobody");
    publish(&reading, OLD).await.expect("nothing stops it");
    reading.commit().await.expect("the hole: a stale write commits after the raise");
    assert_eq!(ledger(&new).await, [OLD]);

    let writing = old.build_transaction().isolation_level(serializable).start().await;
    let writing = writing.expect("connected");
    postgres::check(&writing, &exclusive("job/7", NEW)).await.expect("the owner");
    let later = exclusive("job/7", NEW + 1);
    let busy = postgres::raise(&mut new, &later, Duration::from_millis(50)).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "the raise has to wait: {busy:?}");
}

#[tokio::test]
async fn a_frozen_owner_inside_its_transaction_is_ended_by_its_own_bound() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let hold = Duration::from_millis(400);
    let frozen = postgres::begin(&mut old, &exclusive("job/7", OLD), hold).await;
    let frozen = frozen.expect("the first owner");
    publish(&frozen, OLD).await.expect("past the check");
    let impatient = Duration::from_millis(50);
    let busy = postgres::raise(&mut new, &exclusive("job/7", NEW), impatient).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    postgres::raise(&mut new, &exclusive("job/7", NEW), PATIENCE).await.expect("the bound ends it");
    frozen.commit().await.expect_err("PostgreSQL has ended this session");
    assert!(ledger(&new).await.is_empty());
    assert_eq!(job_mark(&new).await, Some(NEW));
}

#[tokio::test]
async fn a_raise_gives_up_on_an_unbounded_owner_and_says_busy() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let frozen = old.transaction().await.expect("connected");
    postgres::check(&frozen, &exclusive("job/7", OLD)).await.expect("the first owner");
    let wait = Duration::from_millis(50);
    let busy = postgres::raise(&mut new, &exclusive("job/7", NEW), wait).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    // A write is bounded from its check on.
    let busy = postgres::begin(&mut new, &exclusive("job/7", NEW), wait).await.map(drop);
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    frozen.rollback().await.expect("connected");
    postgres::raise(&mut new, &exclusive("job/7", NEW), wait * 1000).await.expect("nobody writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_writers_of_mixed_tokens_never_take_the_accepted_sequence_back() {
    let destination = Destination::new().await;
    let mut writers = Vec::new();
    let start = Arc::new((tokio::sync::Barrier::new(16), AtomicU64::new(0)));
    for _ in 0..16 {
        let mut client = destination.client().await;
        let start = Arc::clone(&start);
        writers.push(tokio::spawn(async move {
            let (start, attempts) = &*start;
            start.wait().await;
            loop {
                let attempt = attempts.fetch_add(1, Ordering::Relaxed);
                if attempt >= ATTEMPTS {
                    break;
                }
                match write(&mut client, mixed(attempt)).await {
                    Ok(()) | Err(FenceError::Stale { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.expect("every answer is one of two");
    }
    let client = destination.client().await;
    // The ledger's numbers are drawn while the mark is held: in commit order.
    let accepted = ledger(&client).await;
    assert_never_back(&accepted);
    assert_eq!(job_mark(&client).await, accepted.last().copied());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mark_falls_when_postgres_is_killed_between_accept_and_answer() {
    let mut server = Postgres::start();
    let client = connect(&server.url("postgres")).await;
    postgres::install(&client).await.expect("an empty database");
    client.batch_execute(TABLES).await.expect("an empty database");
    let answered = Arc::new(AtomicU64::new(0));
    for _ in 0..3 {
        let before = answered.load(Ordering::SeqCst);
        let mut client = connect(&server.url("postgres")).await;
        // As an application would that has traded safety for speed.
        client.batch_execute("SET synchronous_commit = off").await.expect("connected");
        let counter = Arc::clone(&answered);
        let writer = tokio::spawn(async move {
            let mut number = before + 1;
            while write(&mut client, number).await.is_ok() {
                counter.store(number, Ordering::SeqCst);
                number += 1;
            }
        });
        let deadline = Instant::now() + PATIENCE;
        while answered.load(Ordering::SeqCst) < before + 20 {
            assert!(Instant::now() < deadline, "twenty writes took a minute");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.kill();
        writer.await.expect("it ends with its server");
        server.restart();
        let mut client = connect(&server.url("postgres")).await;
        let mark = job_mark(&client).await.expect("twenty writes");
        let last = answered.load(Ordering::SeqCst);
        assert!(mark >= last, "mark {mark} fell below {last}");
        assert_eq!(ledger(&client).await.last(), Some(&mark), "a write and its mark are one");
        let stale = write(&mut client, last - 1).await;
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
        answered.store(mark, Ordering::SeqCst);
    }
}
