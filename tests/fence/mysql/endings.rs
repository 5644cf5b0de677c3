//! Transactions that a plain `ROLLBACK` does not end, and sessions that others go on with.

use mysql_async::{Pool, PoolConstraints, PoolOpts};
use ringfence::fence::FenceTarget;
use tokio::net::TcpListener;

use super::ignored::{READ_ONLY, call, deadlock, sent};
use super::*;

const STALE: &str = "INSERT INTO ledger (token) VALUES (5)";

/// Sends all of it, and looks at nothing: not even whether the connection is there.
async fn deaf(session: &mut impl Queryable, all: &[&str]) {
    for sql in all {
        let _ = session.query_drop(*sql).await;
    }
}

/// A database in which token 6 has been, and one line is in the ledger.
async fn later_owner() -> Destination {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    write(&mut conn, 6).await.expect("the first owner");
    destination
}

async fn assert_not_written(destination: &Destination, how: &str) {
    assert_eq!(ledger(&mut destination.client().await).await, [6], "{how}");
}

#[tokio::test]
async fn a_refusal_is_not_chained_to_a_transaction_that_may_write() {
    let destination = later_owner().await;
    for completion in ["CHAIN", "RELEASE"] {
        for commit in ["COMMIT", "CALL ringfence_commit()"] {
            for autocommit in [0, 1] {
                let mut conn = destination.client().await;
                let set =
                    format!("SET completion_type = '{completion}', autocommit = {autocommit}");
                assert_eq!(sent(&mut conn, &set).await, None);
                let begin = "START TRANSACTION READ WRITE";
                deaf(&mut conn, &[begin, &call(5), STALE, commit, STALE, "COMMIT"]).await;
                assert_not_written(&destination, &format!("{set}, {commit}")).await;
            }
        }
    }
}

#[tokio::test]
async fn our_commit_is_not_chained_to_a_transaction_that_may_write() {
    let destination = later_owner().await;
    let mut conn = destination.client().await;
    deaf(&mut conn, &["SET autocommit = 0", "SET SESSION TRANSACTION READ ONLY"]).await;
    assert_eq!(sent(&mut conn, "SET completion_type = 'CHAIN'").await, None);
    for _ in 0..2 {
        assert_eq!(sent(&mut conn, "START TRANSACTION READ WRITE").await, None);
        assert_eq!(sent(&mut conn, &call(6)).await, None);
        assert_eq!(sent(&mut conn, "CALL ringfence_commit()").await, None);
        assert_eq!(sent(&mut conn, STALE).await, Some(READ_ONLY));
        // Nor is the one in which it had nothing to commit.
        assert_eq!(sent(&mut conn, "CALL ringfence_commit()").await, Some(1644));
        assert_eq!(sent(&mut conn, STALE).await, Some(READ_ONLY));
        deaf(&mut conn, &["COMMIT", "ROLLBACK AND NO CHAIN"]).await;
    }
    assert_not_written(&destination, "chained").await;
}

#[tokio::test]
async fn a_guarded_write_in_a_session_that_chains_commits_once_and_leaves_nothing_open() {
    const LEFT: &str = "SELECT CONCAT_WS(' ', @@completion_type, @@in_transaction)";
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    for completion in ["CHAIN", "RELEASE"] {
        let set = format!("SET completion_type = '{completion}'");
        assert_eq!(sent(&mut conn, &set).await, None);
        write(&mut conn, 6).await.expect("the owner");
        let left: Option<String> = conn.query_first(LEFT).await.expect("connected");
        assert_eq!(left, Some(format!("{completion} 0")));
        let refused = write(&mut conn, 5).await;
        assert!(matches!(refused, Err(FenceError::Stale { .. })), "{refused:?}");
        let left: Option<String> = conn.query_first(LEFT).await.expect("connected");
        assert_eq!(left, Some(format!("{completion} 0")));
    }
    assert_eq!(ledger(&mut conn).await, [6, 6]);
}

#[tokio::test]
async fn a_check_that_is_refused_within_xa_ends_the_connection() {
    let destination = later_owner().await;
    for session in [
        "SET SESSION TRANSACTION READ WRITE",
        "SET SESSION TRANSACTION READ ONLY; SET TRANSACTION READ WRITE",
    ] {
        for number in [1, 2] {
            let mut conn = destination.client().await;
            assert_eq!(sent(&mut conn, session).await, None);
            assert_eq!(sent(&mut conn, &format!("XA START 'x{number}'")).await, None);
            let check = call(5);
            let rest = ["XA END 'x1'", "XA COMMIT 'x1' ONE PHASE", STALE, "COMMIT"];
            if number == 1 {
                assert_eq!(sent(&mut conn, &check).await, Some(1927), "it was killed");
                deaf(&mut conn, &[&[STALE], &rest[..]].concat()).await;
            } else {
                // In one packet: the server does not go on with it.
                let packet = [&[&*check, STALE], &rest[..]].concat().join(";");
                deaf(&mut conn, &[&packet.replace("x1", "x2")]).await;
            }
            assert!(conn.ping().await.is_err(), "it has ended");
            assert_not_written(&destination, session).await;
        }
    }
}

#[tokio::test]
async fn a_check_that_passes_within_xa_holds_the_mark_until_xa_commit() {
    let destination = later_owner().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let six = "INSERT INTO ledger (token) VALUES (6)";
    for sql in ["XA START 'x'", &call(6), six, "XA END 'x'", "XA PREPARE 'x'"] {
        assert_eq!(sent(&mut old, sql).await, None, "{sql}");
    }
    let later = [exclusive("job/7", 7)];
    let busy = mysql::raise(&mut new, &later, Duration::from_millis(50)).await;
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    assert_eq!(sent(&mut old, "XA COMMIT 'x'").await, None);
    mysql::raise(&mut new, &later, PATIENCE).await.expect("nobody writes");
    assert_eq!(ledger(&mut new).await, [6, 6]);
}

#[tokio::test]
async fn within_xa_a_deadlock_that_nobody_looks_at_commits_nothing() {
    let endings = [&["XA COMMIT 'x' ONE PHASE"][..], &["XA PREPARE 'x'", "XA COMMIT 'x'"]];
    for ending in endings {
        let destination = later_owner().await;
        let mut conn = destination.client().await;
        assert_eq!(sent(&mut conn, "XA START 'x'").await, None);
        assert_eq!(sent(&mut conn, &call(7)).await, None);
        deadlock(&destination, &mut conn).await;
        // It has rolled back all, the check included.
        deaf(&mut conn, &[&[STALE, "XA END 'x'"], ending].concat()).await;
        assert_not_written(&destination, "XA").await;
        assert_eq!(job_mark(&mut destination.client().await).await, Some(6));
    }
}

#[tokio::test]
async fn a_check_in_a_stored_function_or_a_trigger_ends_the_connection() {
    let destination = later_owner().await;
    let mut conn = destination.client().await;
    let ignoring = "DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END";
    // Also one that would pass: here it cannot tell whether there is a transaction.
    for (number, handler) in [(5, ""), (5, ignoring), (6, ""), (6, ignoring)] {
        let body = format!("BEGIN {handler}; {};", call(number)).replace("BEGIN ;", "BEGIN");
        for sql in [
            "DROP FUNCTION IF EXISTS checking",
            "DROP TRIGGER IF EXISTS checking",
            &format!("CREATE FUNCTION checking() RETURNS INT {body} RETURN 1; END"),
            &format!("CREATE TRIGGER checking BEFORE UPDATE ON job FOR EACH ROW {body} END"),
        ] {
            assert_eq!(sent(&mut conn, sql).await, None, "{sql}");
        }
        for check in ["SELECT checking()", "UPDATE job SET state = 'stale'"] {
            for begin in ["START TRANSACTION", "COMMIT"] {
                let mut deaf_one = destination.client().await;
                assert_eq!(sent(&mut deaf_one, begin).await, None);
                assert_eq!(sent(&mut deaf_one, check).await, Some(1927), "{body}");
                deaf(&mut deaf_one, &[STALE, "COMMIT"]).await;
                assert_not_written(&destination, &body).await;
            }
        }
    }
    assert_eq!(state(&mut conn).await, "by 6");
}

/// By an administrator, while the check waits for the mark.
#[tokio::test]
async fn a_check_that_is_killed_in_its_wait_leaves_nothing_to_go_on_with() {
    for (kill, code) in [("KILL QUERY", Some(1317)), ("KILL", None)] {
        let destination = later_owner().await;
        let (mut old, mut new) = (destination.client().await, destination.client().await);
        let mut observer = destination.client().await;
        let holding = mysql::begin(&mut new, &[exclusive("job/7", 7)], PATIENCE).await;
        let holding = holding.expect("a later owner");
        let waiting = old.id();
        let going_on = tokio::spawn(async move {
            deaf(&mut old, &["START TRANSACTION", STALE]).await;
            let answer = old.query_drop(call(5)).await;
            deaf(&mut old, &[STALE, "COMMIT", STALE]).await;
            answer
        });
        until_blocked(&mut observer, waiting).await;
        assert_eq!(sent(&mut observer, &format!("{kill} {waiting}")).await, None);
        match (going_on.await.expect("it ran"), code) {
            (Err(mysql_async::Error::Server(said)), Some(code)) => assert_eq!(said.code, code),
            (Err(_), None) => {}
            (other, _) => panic!("{kill}: {other:?}"),
        }
        holding.rollback().await.expect("connected");
        assert_not_written(&destination, kill).await;
    }
}

#[tokio::test]
async fn a_pool_that_resets_opens_a_shut_session_and_one_that_does_not_hands_it_on_shut() {
    for (reset, unfenced) in [(true, None), (false, Some(READ_ONLY))] {
        let destination = later_owner().await;
        let one = PoolConstraints::new(1, 1).expect("a range");
        let options = PoolOpts::new().with_constraints(one).with_reset_connection(reset);
        let url = destination.server.url(&destination.database);
        let pool = Pool::new(mysql_async::OptsBuilder::from_opts(opts(&url)).pool_opts(options));
        let mut first = pool.get_conn().await.expect("it runs");
        let id = first.id();
        deaf(&mut first, &["START TRANSACTION", &call(5), STALE]).await;
        drop(first);
        let mut next = pool.get_conn().await.expect("it runs");
        assert_eq!(next.id(), id, "handed on");
        // Whoever checks can write in it, and leaves it as it was.
        write(&mut next, 6).await.expect("the owner");
        let refused = write(&mut next, 5).await;
        assert!(matches!(refused, Err(FenceError::Stale { .. })), "{refused:?}");
        assert_eq!(sent(&mut next, "UPDATE job SET epoch = 1").await, unfenced, "reset: {reset}");
        assert_eq!(ledger(&mut next).await, [6, 6]);
        drop(next);
        pool.disconnect().await.expect("connected");
    }
}

/// A host that takes a connection and does not say a word.
#[tokio::test]
async fn a_raise_keeps_to_its_time_while_it_connects() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = silent.local_addr().expect("it is bound").port();
    let target = mysql::Target::new("jobs", opts(&format!("mysql://root@127.0.0.1:{port}/jobs")));
    let raising = target.raise(&[exclusive("job/7", 5)], Duration::from_millis(50)).await;
    assert!(matches!(raising, Err(FenceError::Store(_))), "{raising:?}");
}
