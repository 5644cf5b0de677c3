//! Bad input, missing or newer schemas, and callers who do not listen.

use ringfence::locks::ClusterId;
use tokio_postgres::error::SqlState;

use super::*;
use crate::stories::shared;

#[tokio::test]
async fn a_caller_who_ignores_the_refusal_still_cannot_commit() {
    let destination = Destination::new().await;
    let mut client = destination.client().await;
    write(&mut client, 6).await.expect("the first owner");
    let deaf = client.transaction().await.expect("connected");
    let _ = postgres::check(&deaf, &exclusive("job/7", 5)).await;
    let aborted = publish(&deaf, 5).await.expect_err("the refusal has aborted the transaction");
    assert_eq!(aborted.code(), Some(&SqlState::IN_FAILED_SQL_TRANSACTION));
    // PostgreSQL answers COMMIT of an aborted transaction with ROLLBACK.
    deaf.commit().await.expect("an answer, not an error");
    assert_eq!(ledger(&client).await, [6]);
}

#[tokio::test]
async fn the_sql_error_itself_names_code_resource_token_and_mark() {
    let destination = Destination::new().await;
    let mut client = destination.client().await;
    write(&mut client, 6).await.expect("the first owner");
    let cluster = exclusive("job/7", 5).cluster;
    let call = format!("SELECT ringfence.check_fence('{cluster}', 'job/7', NULL, 5, 5)");
    let error = client.batch_execute(&call).await.expect_err("stale");
    let said = error.as_db_error().expect("PostgreSQL's own words");
    assert_eq!(said.code().code(), "RF001");
    assert_eq!(said.message(), "ringfence: stale fence: token 5 is below the mark 6 of job/7");
    assert_eq!(said.detail(), Some("token=5 mark=6 slot=none resource=job/7"));
    assert!(matches!(FenceError::from(error), FenceError::Stale { .. }));
}

#[tokio::test]
async fn malformed_and_foreign_fences_are_refused_and_adoption_moves_no_mark() {
    let destination = Destination::new().await;
    let mut client = destination.client().await;
    let malformed = postgres::raise(&mut client, &shared("job/7", 5, 6), PATIENCE).await;
    assert!(
        matches!(malformed, Err(FenceError::FloorAboveToken { token, floor, .. })
            if (token.get(), floor.get()) == (5, 6)),
        "{malformed:?}"
    );
    write(&mut client, 5).await.expect("the first authority");
    let (old, new) = (exclusive("job/7", 5).cluster, ClusterId::new([8; 16]));
    let restored = Fence { cluster: new, ..exclusive("job/7", 900) };
    let foreign = postgres::raise(&mut client, &restored, PATIENCE).await;
    assert!(
        matches!(foreign, Err(FenceError::ForeignCluster { known, offered, .. })
            if (known, offered) == (old, new)),
        "{foreign:?}"
    );
    assert_eq!(postgres::adopt(&client, old, new).await.expect("the schema's owner"), 1);
    assert_eq!(job_mark(&client).await, Some(5));
    postgres::raise(&mut client, &restored, PATIENCE).await.expect("adopted");
}

#[tokio::test]
async fn arguments_out_of_bounds_are_refused_and_leave_no_mark() {
    let destination = Destination::new().await;
    let client = destination.client().await;
    let cluster = exclusive("job/7", 5).cluster;
    let long = format!("'{}'", "x".repeat(513));
    for arguments in [
        "NULL, 'r', NULL, 5, 5",
        &format!("'{cluster}', NULL, NULL, 5, 5"),
        &format!("'{cluster}', '', NULL, 5, 5"),
        &format!("'{cluster}', {long}, NULL, 5, 5"),
        &format!("'{cluster}', 'r', -1, 5, 5"),
        &format!("'{cluster}', 'r', 4294967296, 5, 5"),
        &format!("'{cluster}', 'r', NULL, 0, 0"),
        &format!("'{cluster}', 'r', NULL, 5, 0"),
        &format!("'{cluster}', 'r', NULL, 9007199254740992, 5"),
        &format!("'{cluster}', 'r', NULL, NULL, 5"),
        &format!("'{cluster}', 'r', NULL, 5, NULL"),
    ] {
        let call = format!("SELECT ringfence.check_fence({arguments})");
        let refused = client.batch_execute(&call).await.expect_err(arguments);
        assert_eq!(refused.code().map(SqlState::code), Some("RF004"), "{arguments}");
    }
    assert_eq!(text(&client, "SELECT count(*)::text FROM ringfence.marks").await, "0");
}

#[tokio::test]
async fn installing_again_or_at_once_changes_nothing_and_a_newer_schema_is_left_alone() {
    let destination = Destination::bare();
    let (a, b, mut c) =
        (destination.client().await, destination.client().await, destination.client().await);
    let installed =
        tokio::join!(postgres::install(&a), postgres::install(&b), postgres::install(&c));
    assert!(matches!(installed, (Ok(()), Ok(()), Ok(()))), "{installed:?}");
    a.batch_execute(TABLES).await.expect("an empty database");
    write(&mut c, 5).await.expect("the first owner");
    postgres::install(&a).await.expect("installed already");
    assert_eq!(job_mark(&a).await, Some(5));

    a.batch_execute("UPDATE ringfence.schema SET version = 2").await.expect("a later version");
    for answer in [postgres::install(&a).await, write(&mut c, 6).await] {
        assert!(
            matches!(answer, Err(FenceError::SchemaNewer { found: 2, known: 1 })),
            "{answer:?}"
        );
    }
    assert_eq!(ledger(&a).await, [5], "and the connection is of use");
}

#[tokio::test]
async fn a_database_without_marks_is_refused() {
    let destination = Destination::bare();
    let mut client = destination.client().await;
    client.batch_execute(TABLES).await.expect("an empty database");
    let refused = write(&mut client, 5).await;
    assert!(matches!(refused, Err(FenceError::SchemaMissing)), "{refused:?}");
    client.batch_execute("CREATE SCHEMA ringfence").await.expect("an empty one");
    let refused = write(&mut client, 5).await;
    assert!(matches!(refused, Err(FenceError::SchemaMissing)), "{refused:?}");
    assert!(ledger(&client).await.is_empty());
}

#[tokio::test]
async fn an_application_needs_no_right_on_the_marks_and_cannot_lower_or_adopt_them() {
    let destination = Destination::new().await;
    let mut client = destination.client().await;
    let role = format!("app_{}", destination.database);
    let rights = format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA ringfence TO {role};
         GRANT ALL ON job, ledger, ledger_seq_seq TO {role}; SET ROLE {role};
         SET search_path = pg_temp"
    );
    client.batch_execute(&rights).await.expect("a superuser");
    postgres::raise(&mut client, &exclusive("job/7", 5), PATIENCE).await.expect("USAGE is enough");
    assert_eq!(job_mark(&client).await, Some(5));
    let (old, new) = (exclusive("job/7", 5).cluster, ClusterId::new([8; 16]));
    for statement in [
        "UPDATE ringfence.marks SET mark = 1",
        "DELETE FROM ringfence.marks",
        &format!("SELECT ringfence.adopt('{old}', '{new}')"),
        &format!("SELECT ringfence.raise_mark('{old}', 'job/7', -1, 9, 1)"),
    ] {
        let denied = client.batch_execute(statement).await.expect_err(statement);
        assert_eq!(denied.code(), Some(&SqlState::INSUFFICIENT_PRIVILEGE), "{statement}");
    }
}

#[tokio::test]
async fn a_checked_transaction_commits_durably_whatever_the_session_had_set() {
    let destination = Destination::new().await;
    let mut client = destination.client().await;
    for session in ["off", "local", "remote_write"] {
        let set = format!("SET synchronous_commit = {session}");
        client.batch_execute(&set).await.expect("connected");
        let transaction = client.transaction().await.expect("connected");
        postgres::check(&transaction, &exclusive("job/7", 5)).await.expect("the owner");
        let inside = text(transaction.client(), "SHOW synchronous_commit").await;
        transaction.commit().await.expect("past the check");
        assert_eq!(inside, "on");
        assert_eq!(text(&client, "SHOW synchronous_commit").await, session);
    }
}
