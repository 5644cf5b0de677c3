//! Bad input, missing or newer schemas, and settings under which a mark could be lost.

use mysql_async::Error;
use ringfence::fence::FenceTarget;
use ringfence::locks::ClusterId;

use super::*;
use crate::stories::shared;

async fn sql_state(conn: &mut Conn, sql: &str) -> String {
    match conn.query_drop(sql).await {
        Err(Error::Server(said)) => said.state,
        other => panic!("{sql}: {other:?}"),
    }
}

#[tokio::test]
async fn malformed_and_foreign_fences_are_refused_and_adoption_moves_no_mark() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let malformed = mysql::raise(&mut conn, &[shared("job/7", 5, 6)], PATIENCE).await;
    assert!(
        matches!(malformed, Err(FenceError::FloorAboveToken { token, floor, .. })
            if (token.get(), floor.get()) == (5, 6)),
        "{malformed:?}"
    );
    write(&mut conn, 5).await.expect("the first authority");
    let (old, new) = (exclusive("job/7", 5).cluster, ClusterId::new([8; 16]));
    let restored = [Fence { cluster: new, ..exclusive("job/7", 900) }];
    let foreign = mysql::raise(&mut conn, &restored, PATIENCE).await;
    assert!(
        matches!(foreign, Err(FenceError::ForeignCluster { known, offered, .. })
            if (known, offered) == (old, new)),
        "{foreign:?}"
    );
    assert_eq!(mysql::adopt(&mut conn, old, new).await.expect("the tables are ours"), 1);
    assert_eq!(job_mark(&mut conn).await, Some(5));
    mysql::raise(&mut conn, &restored, PATIENCE).await.expect("adopted");
}

#[tokio::test]
async fn a_write_without_a_fence_and_one_with_two_of_a_resource_are_refused() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    for set in [vec![], vec![exclusive("job/7", 5), exclusive("job/7", 6)]] {
        let refused = mysql::raise(&mut conn, &set, PATIENCE).await;
        assert!(matches!(refused, Err(FenceError::Set)), "{refused:?}");
    }
    assert_eq!(job_mark(&mut conn).await, None);
}

#[tokio::test]
async fn arguments_out_of_bounds_are_refused_and_leave_no_mark() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let cluster = exclusive("job/7", 5).cluster;
    let long = format!("'{}'", "x".repeat(513));
    for arguments in [
        "NULL, 'r', NULL, 5, 5, 1",
        "'no', 'r', NULL, 5, 5, 1",
        &format!("'{cluster}', NULL, NULL, 5, 5, 1"),
        &format!("'{cluster}', '', NULL, 5, 5, 1"),
        &format!("'{cluster}', {long}, NULL, 5, 5, 1"),
        &format!("'{cluster}', 'r', -1, 5, 5, 1"),
        &format!("'{cluster}', 'r', 4294967296, 5, 5, 1"),
        &format!("'{cluster}', 'r', NULL, 0, 0, 1"),
        &format!("'{cluster}', 'r', NULL, 5, 0, 1"),
        &format!("'{cluster}', 'r', NULL, 9007199254740992, 5, 1"),
        &format!("'{cluster}', 'r', NULL, NULL, 5, 1"),
        &format!("'{cluster}', 'r', NULL, 5, NULL, 1"),
    ] {
        conn.query_drop("START TRANSACTION READ WRITE").await.expect("connected");
        let call = format!("CALL ringfence_check_fence({arguments})");
        assert_eq!(sql_state(&mut conn, &call).await, "RF004", "{arguments}");
    }
    let rows: Option<u32> =
        conn.query_first("SELECT COUNT(*) FROM ringfence_marks").await.expect("installed");
    assert_eq!(rows, Some(0));
}

#[tokio::test]
async fn names_are_compared_byte_by_byte_and_the_longest_fits() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    let longest = "ä".repeat(256);
    let names = ["job", "JOB", "job ", "jöb", &longest, &longest[2..]];
    for (mark, resource) in (1..).zip(names) {
        mysql::raise(&mut conn, &[exclusive(resource, mark)], PATIENCE).await.expect("the first");
    }
    for (mark, resource) in (1..).zip(names) {
        let kept = mysql::mark(&mut conn, &name(resource), None).await.expect("installed");
        assert_eq!(kept.map(ringfence::locks::Token::get), Some(mark), "{resource:?}");
    }
    conn.query_drop("SET NAMES latin1").await.expect("connected");
    let cluster = exclusive("job", 1).cluster;
    conn.query_drop("START TRANSACTION").await.expect("connected");
    let said = b"CALL ringfence_check_fence('".to_vec();
    let said = [said, format!("{cluster}', 'j").into_bytes(), b"\xf6b', NULL, 9, 9, 1)".to_vec()];
    conn.query_drop(said.concat()).await.expect("a later owner");
    conn.query_drop("COMMIT").await.expect("past the check");
    conn.query_drop("SET NAMES utf8mb4").await.expect("connected");
    let kept = mysql::mark(&mut conn, &name("jöb"), None).await.expect("installed");
    assert_eq!(kept.map(ringfence::locks::Token::get), Some(9), "of any connection's text");
}

#[tokio::test]
async fn installing_again_or_at_once_changes_nothing_and_a_newer_schema_is_left_alone() {
    let destination = Destination::bare();
    let (mut a, mut b, mut c) =
        (destination.client().await, destination.client().await, destination.client().await);
    let installed =
        tokio::join!(mysql::install(&mut a), mysql::install(&mut b), mysql::install(&mut c));
    assert!(matches!(installed, (Ok(()), Ok(()), Ok(()))), "{installed:?}");
    a.query_drop(TABLES).await.expect("an empty database");
    write(&mut c, 5).await.expect("the first owner");
    mysql::install(&mut a).await.expect("installed already");
    destination.server.client(&destination.database, mysql::SCHEMA_SQL);
    assert_eq!(job_mark(&mut a).await, Some(5));

    a.query_drop("UPDATE ringfence_schema SET version = 2").await.expect("a later version");
    destination.server.client(&destination.database, mysql::SCHEMA_SQL);
    let begun = start(&mut b, IsolationLevel::RepeatableRead).await;
    let checked = mysql::check(begun, &[exclusive("job/7", 6)]).await.map(drop);
    for answer in [mysql::install(&mut a).await, write(&mut c, 6).await, checked] {
        assert!(
            matches!(answer, Err(FenceError::SchemaNewer { found: 2, known: 1 })),
            "{answer:?}"
        );
    }
    assert_eq!(ledger(&mut a).await, [5], "and the connection is of use");
}

#[tokio::test]
async fn what_the_command_line_prints_sets_up_the_marks_in_any_mode() {
    for mode in ["ORACLE", "ANSI", "NO_BACKSLASH_ESCAPES", ""] {
        let destination = Destination::bare();
        let sql = format!("SET SESSION sql_mode = '{mode}';\n{}", mysql::SCHEMA_SQL);
        destination.server.client(&destination.database, &sql);
        let mut conn = destination.client().await;
        conn.query_drop(format!("SET SESSION sql_mode = '{mode}'")).await.expect("connected");
        mysql::raise(&mut conn, &[exclusive("job/7", 5)], PATIENCE).await.expect("installed");
        let stale = mysql::raise(&mut conn, &[exclusive("job/7", 4)], PATIENCE).await;
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{mode}: {stale:?}");
    }
}

#[tokio::test]
async fn a_database_without_marks_is_refused() {
    let destination = Destination::bare();
    let mut conn = destination.client().await;
    conn.query_drop(TABLES).await.expect("an empty database");
    let refused = write(&mut conn, 5).await;
    assert!(matches!(refused, Err(FenceError::SchemaMissing)), "{refused:?}");
    let begun = start(&mut conn, IsolationLevel::RepeatableRead).await;
    let refused = mysql::check(begun, &[exclusive("job/7", 5)]).await.map(drop);
    assert!(matches!(refused, Err(FenceError::SchemaMissing)), "{refused:?}");
    let refused = mysql::mark(&mut conn, &name("job/7"), None).await;
    assert!(matches!(refused, Err(FenceError::SchemaMissing)), "{refused:?}");
    assert!(ledger(&mut conn).await.is_empty());
}

#[tokio::test]
async fn an_application_needs_no_right_on_the_marks_and_cannot_lower_or_adopt_them() {
    let destination = Destination::new().await;
    let (app, database) = (format!("app_{}", destination.database), &destination.database);
    let rights = format!(
        "CREATE USER {app}@localhost; GRANT ALL ON {database}.job TO {app}@localhost;
         GRANT ALL ON {database}.ledger TO {app}@localhost;
         GRANT EXECUTE ON PROCEDURE {database}.ringfence_ready TO {app}@localhost;
         GRANT EXECUTE ON PROCEDURE {database}.ringfence_check_fence TO {app}@localhost;
         GRANT EXECUTE ON PROCEDURE {database}.ringfence_mark TO {app}@localhost"
    );
    destination.server.client(database, &rights);
    let url = destination.server.url(database).replace("root@", &format!("{app}@"));
    let mut conn = connect(&url).await;
    write(&mut conn, 5).await.expect("EXECUTE is enough");
    assert_eq!(job_mark(&mut conn).await, Some(5));
    let old = exclusive("job/7", 5).cluster;
    for statement in [
        "UPDATE ringfence_marks SET mark = 1",
        "DELETE FROM ringfence_marks",
        &format!("CALL ringfence_adopt('{old}', '{old}')"),
        &format!("CALL ringfence_raise_mark(UNHEX('{old}'), 'job/7', -1, 9, 1)"),
    ] {
        assert_eq!(sql_state(&mut conn, statement).await, "42000", "{statement}: denied");
    }
    let refused = mysql::adopt(&mut conn, old, ClusterId::new([8; 16])).await;
    assert!(matches!(refused, Err(FenceError::Store(_))), "{refused:?}");
}

#[tokio::test]
async fn a_table_that_cannot_roll_back_is_refused() {
    let destination = Destination::new().await;
    let mut conn = destination.client().await;
    conn.query_drop("ALTER TABLE ringfence_marks ENGINE = Aria").await.expect("ours");
    for answer in [write(&mut conn, 5).await, mysql::install(&mut conn).await] {
        assert!(
            matches!(&answer, Err(FenceError::NotDurable { setting }) if setting.contains("Aria")),
            "{answer:?}"
        );
    }
    assert!(ledger(&mut conn).await.is_empty());
}

#[tokio::test]
async fn settings_under_which_a_power_loss_takes_a_mark_are_refused_by_every_check() {
    let server = Mariadb::start_with(&["--log-bin=log", "--sync-binlog=1"]);
    let mut conn = connect(&server.url(&server.create_database())).await;
    mysql::install(&mut conn).await.expect("durable");
    conn.query_drop(TABLES).await.expect("an empty database");
    write(&mut conn, 5).await.expect("durable");
    for (setting, durable) in [("innodb_flush_log_at_trx_commit", 1), ("sync_binlog", 1)] {
        for value in [0, 2] {
            let set = format!("SET GLOBAL {setting} = {value}");
            conn.query_drop(set).await.expect("root");
            let begun = start(&mut conn, IsolationLevel::RepeatableRead).await;
            let checked = mysql::check(begun, &[exclusive("job/7", 6)]).await.map(drop);
            for answer in [write(&mut conn, 6).await, checked] {
                assert!(
                    matches!(&answer, Err(FenceError::NotDurable { setting: s }) if s.contains(setting)),
                    "{answer:?}"
                );
            }
        }
        conn.query_drop(format!("SET GLOBAL {setting} = {durable}")).await.expect("root");
    }
    write(&mut conn, 6).await.expect("durable again");
    assert_eq!(ledger(&mut conn).await, [5, 6]);
}

#[tokio::test]
async fn a_store_that_is_down_is_an_error_that_says_so() {
    let mut server = Mariadb::start();
    let url = server.url(&server.create_database());
    let mut conn = connect(&url).await;
    mysql::install(&mut conn).await.expect("an empty database");
    server.kill();
    let down = mysql::raise(&mut conn, &[exclusive("job/7", 5)], PATIENCE).await;
    assert!(matches!(down, Err(FenceError::Store(_))), "{down:?}");
    let target = mysql::Target::new("jobs", opts(&url));
    let down = target.raise(&[exclusive("job/7", 5)], PATIENCE).await;
    assert!(matches!(down, Err(FenceError::Store(_))), "{down:?}");
}
