//! A raise, a crash or a frozen owner between a write's check and its commit.

use std::sync::atomic::{AtomicU64, Ordering};

use ringfence::fence::FenceTarget;

use super::*;
use crate::stories::{ATTEMPTS, assert_never_back, mixed};

/// The owner before, whose transaction has passed the check; and the new owner.
const OLD: u64 = 1;
const NEW: u64 = 2;

async fn raise(conn: &mut Conn, number: u64, wait: Duration) -> Result<(), FenceError> {
    mysql::raise(conn, from_ref(&exclusive("job/7", number)), wait).await
}

#[tokio::test]
async fn a_raise_waits_for_a_write_past_its_check_and_refuses_the_next() {
    for isolation in ISOLATIONS {
        let destination = Destination::new().await;
        let (mut old, mut new) = (destination.client().await, destination.client().await);
        let mut observer = destination.client().await;
        raise(&mut old, OLD, PATIENCE).await.expect("the first");
        let writing = start(&mut old, isolation).await;
        let past = mysql::check(writing, &[exclusive("job/7", OLD)]).await;
        let mut writing = past.expect("the owner");
        let waiting = new.id();
        let raising = tokio::spawn(async move { raise(&mut new, NEW, PATIENCE).await });
        until_blocked(&mut observer, waiting).await;
        publish(&mut writing, OLD).await.expect("past the check");
        writing.commit().await.expect("past the check");
        raising.await.expect("it ran").expect("nobody writes now");
        let stale = write_at(&mut old, isolation, &exclusive("job/7", OLD)).await;
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{isolation:?}: {stale:?}");
        assert_eq!(ledger(&mut observer).await, [OLD], "{isolation:?}");
    }
}

#[tokio::test]
async fn a_write_that_meets_a_raise_in_flight_waits_for_it_and_is_refused() {
    for isolation in ISOLATIONS {
        let destination = Destination::new().await;
        let (mut old, mut new) = (destination.client().await, destination.client().await);
        let mut observer = destination.client().await;
        raise(&mut old, OLD, PATIENCE).await.expect("the first");
        let raising = mysql::begin(&mut new, &[exclusive("job/7", NEW)], PATIENCE).await;
        let raising = raising.expect("greater than the mark");
        let waiting = old.id();
        let writing = tokio::spawn(async move {
            let mut begun = start(&mut old, isolation).await;
            // The snapshot is older than the raise.
            state(&mut begun).await;
            mysql::check(begun, &[exclusive("job/7", OLD)]).await.map(drop)
        });
        until_blocked(&mut observer, waiting).await;
        raising.commit().await.expect("a raise");
        let stale = writing.await.expect("it ran");
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{isolation:?}: {stale:?}");
    }
}

/// A default of MariaDB from 11.6 on: rows that have changed since the snapshot are refused.
#[tokio::test]
async fn where_snapshots_are_isolated_a_raise_since_then_is_a_conflict() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    raise(&mut old, OLD, PATIENCE).await.expect("the first");
    old.query_drop("SET SESSION innodb_snapshot_isolation = ON").await.expect("10.11.8 and later");
    let mut begun = start(&mut old, IsolationLevel::RepeatableRead).await;
    state(&mut begun).await;
    raise(&mut new, NEW, PATIENCE).await.expect("nobody holds it");
    let first = mysql::check(begun, &[exclusive("job/7", OLD)]).await.map(drop);
    assert!(matches!(first, Err(FenceError::Conflict(_))), "{first:?}");
    let again = write_at(&mut old, IsolationLevel::RepeatableRead, &exclusive("job/7", OLD)).await;
    assert!(matches!(again, Err(FenceError::Stale { .. })), "{again:?}");
}

#[tokio::test]
async fn what_is_read_after_the_check_is_as_new_as_the_last_write_that_it_waited_for() {
    for isolation in ISOLATIONS {
        let destination = Destination::new().await;
        let (mut old, mut new) = (destination.client().await, destination.client().await);
        let mut observer = destination.client().await;
        let writing = mysql::begin(&mut old, &[exclusive("job/7", OLD)], PATIENCE).await;
        let mut writing = writing.expect("the first owner");
        publish(&mut writing, OLD).await.expect("past the check");
        let waiting = new.id();
        let reading = tokio::spawn(async move {
            let begun = start(&mut new, isolation).await;
            let checked = mysql::check(begun, &[exclusive("job/7", NEW)]).await;
            state(&mut checked.expect("a later owner")).await
        });
        until_blocked(&mut observer, waiting).await;
        writing.commit().await.expect("past the check");
        assert_eq!(reading.await.expect("it ran"), "by 1", "{isolation:?}");
    }
}

#[tokio::test]
async fn a_first_write_that_meets_another_first_write_of_a_later_owner_is_refused() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let mut observer = destination.client().await;
    let first = mysql::begin(&mut new, &[exclusive("job/7", NEW)], PATIENCE).await;
    let first = first.expect("no mark yet");
    let waiting = old.id();
    let stale = tokio::spawn(async move { write(&mut old, OLD).await });
    until_blocked(&mut observer, waiting).await;
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
    raise(&mut old, OLD, PATIENCE).await.expect("the first owner");
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..90 {
        let isolation = ISOLATIONS[round / 3 % 3];
        new.query_drop("UPDATE ringfence_marks SET mark = 1; UPDATE job SET state = 'new'")
            .await
            .expect("between two rounds");
        let (past, raised) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let writing = async {
            if round % 3 == RAISE_FIRST {
                raised.notified().await;
            }
            let begun = start(&mut old, isolation).await;
            let checked = mysql::check(begun, &[exclusive("job/7", OLD)]).await;
            past.notify_one();
            let mut transaction = checked?;
            publish(&mut transaction, OLD).await?;
            transaction.commit().await.map_err(FenceError::from)
        };
        let raising = async {
            if round % 3 == WRITER_FIRST {
                past.notified().await;
            }
            raise(&mut new, NEW, PATIENCE).await.expect("the greatest token");
            raised.notify_one();
            state(&mut new).await
        };
        let (written, seen) = tokio::join!(writing, raising);
        match &written {
            Ok(()) => accepted += 1,
            Err(FenceError::Stale { .. } | FenceError::Conflict(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        assert_eq!(state(&mut new).await, seen, "{written:?}");
        assert_eq!(seen, if written.is_ok() { "by 1" } else { "new" });
    }
    assert!(accepted >= 30 && refused >= 30, "{accepted} accepted, {refused} refused");
}

#[tokio::test]
async fn counterexample_15_a_plain_read_is_a_hole_and_the_check_is_none() {
    const PLAIN: &str = "SELECT mark FROM ringfence_marks WHERE resource = 'job/7' AND slot = -1";
    for isolation in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead] {
        let destination = Destination::new().await;
        let (mut old, mut new) = (destination.client().await, destination.client().await);
        raise(&mut old, OLD, PATIENCE).await.expect("the first owner");
        let mut reading = start(&mut old, isolation).await;
        let mark: Option<u64> = reading.query_first(PLAIN).await.expect("a mark");
        assert_eq!(mark, Some(OLD), "the plain check is passed");
        raise(&mut new, NEW, PATIENCE).await.expect("a reader stops nobody");
        let again: Option<u64> = reading.query_first(PLAIN).await.expect("a mark");
        let snapshot = isolation == IsolationLevel::RepeatableRead;
        assert_eq!(again, Some(if snapshot { OLD } else { NEW }), "{isolation:?}");
        publish(&mut reading, OLD).await.expect("nothing stops it");
        reading.commit().await.expect("the hole: a stale write commits after the raise");
        assert_eq!(ledger(&mut new).await, [OLD]);

        let writing = start(&mut old, isolation).await;
        let checked = mysql::check(writing, &[exclusive("job/7", NEW)]).await;
        let checked = checked.expect("the owner");
        let busy = raise(&mut new, NEW + 1, Duration::from_millis(50)).await;
        assert!(matches!(busy, Err(FenceError::Busy(_))), "the raise has to wait: {busy:?}");
        checked.rollback().await.expect("connected");
    }
}

#[tokio::test]
async fn a_frozen_owner_inside_its_transaction_is_ended_by_its_own_bound() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let hold = Duration::from_millis(400);
    let frozen = mysql::begin(&mut old, &[exclusive("job/7", OLD)], hold).await;
    let mut frozen = frozen.expect("the first owner");
    publish(&mut frozen, OLD).await.expect("past the check");
    let busy = raise(&mut new, NEW, Duration::from_millis(50)).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    raise(&mut new, NEW, PATIENCE).await.expect("the bound ends it");
    frozen.commit().await.expect_err("MariaDB has ended this session");
    assert!(ledger(&mut new).await.is_empty());
    assert_eq!(job_mark(&mut new).await, Some(NEW));
}

#[tokio::test]
async fn a_raise_gives_up_on_an_unbounded_owner_in_time_and_says_busy() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let begun = start(&mut old, IsolationLevel::RepeatableRead).await;
    let frozen = mysql::check(begun, &[exclusive("job/7", OLD)]).await.expect("the first owner");
    let target = mysql::Target::new("jobs", opts(&destination.server.url(&destination.database)));
    assert_eq!(target.name(), "jobs");
    let later = [exclusive("job/7", NEW)];
    let started = Instant::now();
    for wait in [50, 1200] {
        let wait = Duration::from_millis(wait);
        let busy = raise(&mut new, NEW, wait).await;
        assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
        let busy = target.raise(&later, wait).await;
        assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    }
    assert!(started.elapsed() < PATIENCE / 2, "not the server's own 50 s");
    frozen.rollback().await.expect("connected");
    target.raise(&later, PATIENCE).await.expect("nobody writes");
    assert_eq!(job_mark(&mut new).await, Some(NEW));
    let stale = target.raise(&[exclusive("job/7", OLD)], PATIENCE).await;
    assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
}

#[tokio::test]
async fn sets_in_any_order_lock_their_marks_in_one_and_move_all_of_them_or_none() {
    let destination = Destination::new().await;
    let (mut a, mut b) = (destination.client().await, destination.client().await);
    let set = |number| [exclusive("b", number), exclusive("a", number)];
    for round in 0..20 {
        let (forth, mut back) = (set(2 * round + 1), set(2 * round + 2));
        back.reverse();
        let (one, two) = tokio::join!(
            mysql::raise(&mut a, &forth, PATIENCE),
            mysql::raise(&mut b, &back, PATIENCE)
        );
        assert!(matches!(one, Ok(()) | Err(FenceError::Stale { .. })), "{one:?}");
        two.expect("the greatest token");
    }
    let half = [exclusive("c", 7), exclusive("b", 7)];
    let stale = mysql::raise(&mut a, &half, PATIENCE).await;
    assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
    assert_eq!(mysql::mark(&mut a, &name("c"), None).await.expect("installed"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_writers_of_mixed_tokens_never_take_the_accepted_sequence_back() {
    let destination = Destination::new().await;
    let mut writers = Vec::new();
    let start = Arc::new((tokio::sync::Barrier::new(16), AtomicU64::new(0)));
    for _ in 0..16 {
        let mut conn = destination.client().await;
        let start = Arc::clone(&start);
        writers.push(tokio::spawn(async move {
            let (start, attempts) = &*start;
            start.wait().await;
            loop {
                let attempt = attempts.fetch_add(1, Ordering::Relaxed);
                if attempt >= ATTEMPTS {
                    break;
                }
                match write(&mut conn, mixed(attempt)).await {
                    Ok(()) | Err(FenceError::Stale { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.expect("every answer is one of two");
    }
    let mut conn = destination.client().await;
    // The ledger's numbers are drawn while the mark is held: in commit order.
    let accepted = ledger(&mut conn).await;
    assert_never_back(&accepted);
    assert_eq!(job_mark(&mut conn).await, accepted.last().copied());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mark_falls_when_mariadb_is_killed_between_accept_and_answer() {
    let mut server = Mariadb::start();
    let url = server.url(&server.create_database());
    let mut conn = connect(&url).await;
    mysql::install(&mut conn).await.expect("an empty database");
    conn.query_drop(TABLES).await.expect("an empty database");
    let answered = Arc::new(AtomicU64::new(0));
    for _ in 0..3 {
        let before = answered.load(Ordering::SeqCst);
        let mut conn = connect(&url).await;
        let counter = Arc::clone(&answered);
        let writer = tokio::spawn(async move {
            let mut number = before + 1;
            while write(&mut conn, number).await.is_ok() {
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
        let mut conn = connect(&url).await;
        let mark = job_mark(&mut conn).await.expect("twenty writes");
        let last = answered.load(Ordering::SeqCst);
        assert!(mark >= last, "mark {mark} fell below {last}");
        assert_eq!(ledger(&mut conn).await.last(), Some(&mark), "a write and its mark are one");
        let stale = write(&mut conn, last - 1).await;
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
        answered.store(mark, Ordering::SeqCst);
    }
}
