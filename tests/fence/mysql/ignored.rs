//! Callers who do not listen: an error ends no transaction here.

use mysql_async::{Error, ServerError};

use super::*;

/// Cannot execute statement in a READ ONLY transaction.
const READ_ONLY: u16 = 1792;

/// Sends it, and looks at nothing but the error's number.
async fn sent(session: &mut impl Queryable, sql: &str) -> Option<u16> {
    match session.query_drop(sql).await {
        Ok(()) => None,
        Err(Error::Server(ServerError { code, .. })) => Some(code),
        Err(other) => panic!("{sql}: {other}"),
    }
}

fn call(number: u64) -> String {
    let cluster = exclusive("job/7", number).cluster;
    format!("CALL ringfence_check_fence('{cluster}', 'job/7', NULL, {number}, {number}, 1)")
}

#[tokio::test]
async fn a_caller_who_ignores_the_refusal_writes_nothing() {
    for begin in ["START TRANSACTION", "SET autocommit = 0", "BEGIN"] {
        let destination = Destination::new().await;
        let mut conn = destination.client().await;
        write(&mut conn, 6).await.expect("the first owner");
        assert_eq!(sent(&mut conn, begin).await, None);
        assert_eq!(sent(&mut conn, "INSERT INTO ledger (token) VALUES (4)").await, None);
        assert!(sent(&mut conn, &call(5)).await.is_some());
        for _ in 0..2 {
            let stale = sent(&mut conn, "INSERT INTO ledger (token) VALUES (5)").await;
            assert_eq!(stale, Some(READ_ONLY), "{begin}");
            assert_eq!(sent(&mut conn, "COMMIT").await, None);
        }
        assert_eq!(ledger(&mut destination.client().await).await, [6], "{begin}");
    }
}

#[tokio::test]
async fn the_sql_error_itself_names_code_token_and_mark() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    write(&mut conn, 6).await.expect("the first owner");
    sent(&mut conn, "START TRANSACTION").await;
    let Err(Error::Server(said)) = conn.query_drop(call(5)).await else { panic!("stale") };
    assert_eq!(said.state, "RF001");
    assert_eq!(said.message, "ringfence: stale fence: token=5 mark=6 slot=none");
}

#[tokio::test]
async fn a_check_in_autocommit_is_refused_and_so_is_the_write_after_it() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let Err(Error::Server(said)) = conn.query_drop(call(5)).await else { panic!("refused") };
    assert_eq!(said.state, "RF006");
    let write = sent(&mut conn, "INSERT INTO ledger (token) VALUES (5)").await;
    assert_eq!(write, Some(READ_ONLY));
    assert_eq!(job_mark(&mut conn).await, None);

    // A transaction of the driver's that a statement has ended behind its back.
    let mut other = destination.client().await;
    let mut ended = start(&mut other, IsolationLevel::RepeatableRead).await;
    sent(&mut ended, "COMMIT").await;
    let refused = mysql::check(ended, &[exclusive("job/7", 5)]).await.map(drop);
    assert!(matches!(refused, Err(FenceError::NoTransaction)), "{refused:?}");
}

#[tokio::test]
async fn a_check_that_waited_in_vain_has_rolled_back_and_shut_the_session() {
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let holding = mysql::begin(&mut new, &[exclusive("job/7", 6)], PATIENCE).await;
    let holding = holding.expect("the first owner");
    sent(&mut old, "SET SESSION innodb_lock_wait_timeout = 1").await;
    sent(&mut old, "START TRANSACTION").await;
    assert_eq!(sent(&mut old, "UPDATE job SET state = 'stale' WHERE id = 7").await, None);
    // It ends the statement only: without more, COMMIT would commit the update.
    assert_eq!(sent(&mut old, &call(5)).await, Some(1205));
    assert_eq!(sent(&mut old, "UPDATE job SET state = 'stale'").await, Some(READ_ONLY));
    assert_eq!(sent(&mut old, "COMMIT").await, None);
    holding.rollback().await.expect("connected");
    assert_eq!(state(&mut new).await, "new");
}

#[tokio::test]
async fn a_check_whose_time_is_up_has_rolled_back_and_shut_the_session() {
    const STALE: &str = "UPDATE job SET state = 'stale' WHERE id = 7";
    let destination = Destination::new().await;
    let (mut old, mut new) = (destination.client().await, destination.client().await);
    let holding = mysql::begin(&mut new, &[exclusive("job/7", 6)], PATIENCE).await;
    let holding = holding.expect("the first owner");
    mysql::bound(&mut old, Duration::from_millis(50)).await.expect("connected");
    let mut begun = start(&mut old, IsolationLevel::RepeatableRead).await;
    assert_eq!(sent(&mut begun, STALE).await, None);
    let killed = mysql::check(begun, &[exclusive("job/7", 5)]).await.map(drop);
    assert!(matches!(killed, Err(FenceError::Busy(_))), "{killed:?}");
    assert_eq!(sent(&mut old, "COMMIT").await, None);
    assert_eq!(state(&mut old).await, "new");

    sent(&mut old, "START TRANSACTION").await;
    assert_eq!(sent(&mut old, STALE).await, None);
    assert_eq!(sent(&mut old, &call(5)).await, Some(1969));
    assert_eq!(sent(&mut old, STALE).await, Some(READ_ONLY));
    assert_eq!(sent(&mut old, "COMMIT").await, None);
    holding.rollback().await.expect("connected");
    assert_eq!(state(&mut new).await, "new");
}

#[tokio::test]
async fn in_sql_a_check_that_cannot_be_called_is_a_hole_unless_our_commit_ends_it() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    for (commit, left) in [("CALL ringfence_commit()", "new"), ("COMMIT", "unguarded")] {
        sent(&mut conn, "START TRANSACTION").await;
        let misspelt = call(5).replace("fence(", "fences(");
        assert_eq!(sent(&mut conn, &misspelt).await, Some(1305));
        assert_eq!(sent(&mut conn, UNGUARDED).await, None);
        sent(&mut conn, commit).await;
        assert_eq!(state(&mut destination.client().await).await, left, "{commit}");
    }
}

#[tokio::test]
async fn our_commit_refuses_a_transaction_that_was_rolled_back_to_before_its_check() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let mut begun = start(&mut conn, IsolationLevel::RepeatableRead).await;
    sent(&mut begun, "SAVEPOINT earlier").await;
    let mut checked = mysql::check(begun, &[exclusive("job/7", 5)]).await.expect("the first");
    assert_eq!(sent(&mut checked, "ROLLBACK TO earlier").await, None);
    publish(&mut checked, 5).await.expect("nothing stops it");
    assert_eq!(sent(&mut checked, "CALL ringfence_commit()").await, Some(1644));
    checked.rollback().await.expect("connected");
    assert!(ledger(&mut conn).await.is_empty());
    assert_eq!(job_mark(&mut conn).await, None);
}

#[tokio::test]
async fn the_adapter_opens_the_session_again_unless_it_was_shut_before() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    write(&mut conn, 6).await.expect("the first owner");
    for (before, after) in [("READ WRITE", None), ("READ ONLY", Some(READ_ONLY))] {
        sent(&mut conn, &format!("SET SESSION TRANSACTION {before}")).await;
        let mut options = TxOpts::new();
        options.with_readonly(false);
        let mut begun = conn.start_transaction(options).await.expect("connected");
        sent(&mut begun, "UPDATE job SET state = 'before the check'").await;
        let refused = mysql::check(begun, &[exclusive("job/7", 5)]).await.map(drop);
        assert!(matches!(refused, Err(FenceError::Stale { .. })), "{refused:?}");
        assert_eq!(state(&mut conn).await, "by 6");
        let unrelated = "UPDATE job SET epoch = epoch + 1";
        assert_eq!(sent(&mut conn, unrelated).await, after, "{before}");
    }
}

/// Has the server give up this session's transaction for another one, which has more to
/// lose; and nobody looks.
async fn deadlock(destination: &Destination, session: &mut impl Queryable) {
    let (mut other, mut observer) = (destination.client().await, destination.client().await);
    other.query_drop("INSERT INTO job VALUES (8, 'new', 0)").await.expect("a table");
    sent(&mut other, "START TRANSACTION").await;
    let heavy = "INSERT INTO ledger (token) SELECT seq + 1000 FROM seq_1_to_100";
    assert_eq!(sent(&mut other, heavy).await, None);
    assert_eq!(sent(&mut other, "UPDATE job SET epoch = 1 WHERE id = 8").await, None);
    assert_eq!(sent(session, "UPDATE job SET epoch = 5 WHERE id = 7").await, None);
    let waiting = other.id();
    let crossed = tokio::spawn(async move {
        let crossed = sent(&mut other, "UPDATE job SET epoch = 1 WHERE id = 7").await;
        (crossed, sent(&mut other, "ROLLBACK").await)
    });
    until_blocked(&mut observer, waiting).await;
    assert_eq!(sent(session, "UPDATE job SET epoch = 5 WHERE id = 8").await, Some(1213));
    assert_eq!(crossed.await.expect("it ran"), (None, None));
}

const UNGUARDED: &str = "UPDATE job SET state = 'unguarded' WHERE id = 7";

#[tokio::test]
async fn a_guarded_write_that_ignores_a_deadlock_commits_nothing() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let fence = [exclusive("job/7", 5)];
    let deaf = async |transaction: &mut Transaction<'_>| {
        deadlock(&destination, transaction).await;
        // It has rolled back all, the check included.
        assert_eq!(sent(transaction, UNGUARDED).await, None);
        Ok(())
    };
    let answer = mysql::guarded(&mut conn, &fence, PATIENCE, deaf).await;
    assert!(matches!(answer, Err(FenceError::NoTransaction)), "{answer:?}");
    assert_eq!(job_mark(&mut conn).await, None);
    assert_eq!(state(&mut conn).await, "new");
    write(&mut conn, 5).await.expect("the session is as it was");
}

#[tokio::test]
async fn in_sql_a_deadlock_that_nobody_looks_at_is_a_hole_but_by_the_recipe() {
    const OURS: &str = "CALL ringfence_commit()";
    let ways = [(0, OURS, "new"), (0, "COMMIT", "unguarded"), (1, OURS, "unguarded")];
    for (autocommit, commit, left) in ways {
        let destination = Destination::new().await;
        let mut conn = destination.client().await;
        sent(&mut conn, &format!("SET autocommit = {autocommit}")).await;
        sent(&mut conn, "START TRANSACTION").await;
        assert_eq!(sent(&mut conn, &call(5)).await, None);
        deadlock(&destination, &mut conn).await;
        assert_eq!(sent(&mut conn, UNGUARDED).await, None);
        sent(&mut conn, commit).await;
        let mut observer = destination.client().await;
        assert_eq!(state(&mut observer).await, left, "{autocommit} {commit}");
        assert_eq!(job_mark(&mut observer).await, None);
    }
}

#[tokio::test]
async fn the_recipe_in_sql_writes_and_commits() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let recipe = [
        "SET autocommit = 0",
        "SET SESSION TRANSACTION READ ONLY",
        "CALL ringfence_ready(1)",
        "START TRANSACTION READ WRITE",
        &call(5),
        "INSERT INTO ledger (token) VALUES (5)",
        "CALL ringfence_commit()",
    ];
    for _ in 0..2 {
        for sql in recipe {
            assert_eq!(sent(&mut conn, sql).await, None, "{sql}");
        }
    }
    let late = sent(&mut conn, "INSERT INTO ledger (token) VALUES (0)").await;
    assert_eq!(late, Some(READ_ONLY));
    assert_eq!(sent(&mut conn, "CALL ringfence_commit()").await, Some(1644));
    assert_eq!(ledger(&mut destination.client().await).await, [5, 5]);
}

#[tokio::test]
async fn a_guarded_write_that_fails_leaves_neither_write_nor_mark() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let fence = [exclusive("job/7", 5)];
    let fails = async |transaction: &mut Transaction<'_>| {
        publish(transaction, 5).await?;
        transaction.query_drop("SELECT no_such_column").await
    };
    let failed = mysql::guarded(&mut conn, &fence, PATIENCE, fails).await;
    assert!(matches!(failed, Err(FenceError::Store(_))), "{failed:?}");
    assert_eq!(job_mark(&mut conn).await, None);
    assert!(ledger(&mut conn).await.is_empty());
}

#[tokio::test]
async fn a_guarded_write_that_commits_by_itself_is_told_and_writes_no_more() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let fence = [exclusive("job/7", 5)];
    let hasty = async |transaction: &mut Transaction<'_>| {
        publish(transaction, 5).await?;
        transaction.query_drop("COMMIT").await?;
        let late = sent(transaction, "INSERT INTO ledger (token) VALUES (0)").await;
        assert_eq!(late, Some(READ_ONLY));
        Ok(())
    };
    let told = mysql::guarded(&mut conn, &fence, PATIENCE, hasty).await;
    assert!(matches!(told, Err(FenceError::NoTransaction)), "{told:?}");
    assert_eq!(ledger(&mut conn).await, [5]);
    assert_eq!(job_mark(&mut conn).await, Some(5), "with its mark");
}
