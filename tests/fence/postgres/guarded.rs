//! A guarded table refuses statements that forget the check.

use super::*;

/// A destination whose jobs are guarded, each by a resource of its own.
async fn guarded() -> (Destination, Client) {
    let destination = Destination::new().await;
    let client = destination.client().await;
    postgres::guard_table(&client, "job", "job/{id}", Some("epoch")).await.expect("its owner");
    (destination, client)
}

fn unchecked(answer: Result<(), tokio_postgres::Error>) -> String {
    match answer.map_err(FenceError::from) {
        Err(FenceError::Unchecked { resource }) => resource.to_string(),
        other => panic!("{other:?}"),
    }
}

async fn epoch(client: &Client) -> i64 {
    client.query_typed_one("SELECT epoch FROM job WHERE id = 7", &[]).await.expect("a row").get(0)
}

#[tokio::test]
async fn a_statement_that_forgets_the_check_is_refused_whatever_it_does() {
    let (_destination, mut client) = guarded().await;
    for forgets in [
        "UPDATE job SET state = 'buggy' WHERE id = 7",
        "UPDATE job SET state = 'buggy', epoch = 99",
        "UPDATE job SET epoch = 99",
        "DELETE FROM job",
        "INSERT INTO job VALUES (7, 'buggy', 0) ON CONFLICT (id) DO UPDATE SET state = 'buggy'",
    ] {
        assert_eq!(unchecked(client.batch_execute(forgets).await), "job/7", "{forgets}");
    }
    let inserts = client.batch_execute("INSERT INTO job VALUES (8, 'new', 0)").await;
    assert_eq!(unchecked(inserts), "job/8");
    let truncates = client.batch_execute("TRUNCATE job").await.expect_err("refused");
    assert_eq!(truncates.code().map(|code| code.code().to_owned()).as_deref(), Some("RF006"));
    // With the check it passes, and the row says whose tenure wrote it.
    write(&mut client, 6).await.expect("checked");
    assert_eq!(epoch(&client).await, 6);
    let row = client.query_typed("SELECT state FROM job", &[]).await.expect("one row");
    assert_eq!(row.iter().map(|row| row.get(0)).collect::<Vec<&str>>(), ["by 6"]);
}

#[tokio::test]
async fn a_stale_owner_is_refused_with_the_check_and_without_it() {
    let (destination, mut client) = guarded().await;
    write(&mut client, 5).await.expect("the first owner");
    let mut newer = destination.client().await;
    postgres::raise(&mut newer, &exclusive("job/7", 6), PATIENCE).await.expect("the next one");
    assert!(matches!(write(&mut client, 5).await, Err(FenceError::Stale { .. })));
    let without = "UPDATE job SET state = 'late', epoch = 5 WHERE id = 7";
    assert_eq!(unchecked(client.batch_execute(without).await), "job/7");
    assert_eq!(epoch(&client).await, 5);
}

#[tokio::test]
async fn the_check_of_another_resource_or_transaction_or_savepoint_does_not_count() {
    let (_destination, mut client) = guarded().await;
    let update = "UPDATE job SET state = 'buggy' WHERE id = 7";
    let other = postgres::begin(&mut client, &exclusive("job/8", 6), PATIENCE).await;
    let other = other.expect("accepted");
    assert_eq!(unchecked(other.batch_execute(update).await), "job/7");
    drop(other);
    // A check in autocommit is over when the write comes.
    let cluster = exclusive("job/7", 6).cluster;
    let check = format!("SELECT ringfence.check_fence('{cluster}', 'job/7', NULL, 6, 6)");
    client.batch_execute(&check).await.expect("accepted");
    assert_eq!(unchecked(client.batch_execute(update).await), "job/7");
    // Rolled back with its savepoint, the mark's lock is gone, and the check with it.
    let saved = format!("BEGIN; SAVEPOINT s; {check}; ROLLBACK TO s");
    client.batch_execute(&saved).await.expect("a transaction");
    assert_eq!(unchecked(client.batch_execute(update).await), "job/7");
    client.batch_execute("ROLLBACK").await.expect("a transaction");
    // In a savepoint that stands, it does.
    let stands = format!("BEGIN; SAVEPOINT s; {check}; RELEASE s; {update}; COMMIT");
    client.batch_execute(&stands).await.expect("checked");
}

#[tokio::test]
async fn an_epoch_that_is_not_the_checked_one_is_refused() {
    let (_destination, mut client) = guarded().await;
    let transaction = postgres::begin(&mut client, &exclusive("job/7", 6), PATIENCE).await;
    let transaction = transaction.expect("accepted");
    transaction.batch_execute("UPDATE job SET epoch = 6, state = 'a'").await.expect("its own");
    let other = transaction.batch_execute("UPDATE job SET epoch = 5, state = 'b'").await;
    let said = other.expect_err("not what was checked");
    let said = said.as_db_error().expect("PostgreSQL's own words").message().to_owned();
    let told = "ringfence: epoch 5 is written to job/7, and the fence that was checked is 6";
    assert_eq!(said, told);
}

#[tokio::test]
async fn a_row_that_moves_to_another_resource_needs_both() {
    let (_destination, mut client) = guarded().await;
    let moves = "UPDATE job SET id = 8 WHERE id = 7";
    let transaction = postgres::begin(&mut client, &exclusive("job/7", 6), PATIENCE).await;
    let transaction = transaction.expect("accepted");
    assert_eq!(unchecked(transaction.batch_execute(moves).await), "job/8");
    drop(transaction);
    let transaction = postgres::begin(&mut client, &exclusive("job/7", 6), PATIENCE).await;
    let transaction = transaction.expect("accepted");
    postgres::check(&transaction, &exclusive("job/8", 7)).await.expect("accepted");
    transaction.batch_execute(moves).await.expect("both were checked");
}

#[tokio::test]
async fn slots_pass_and_the_whole_table_can_be_one_resource() {
    let destination = Destination::new().await;
    let mut client = destination.client().await;
    let whole = postgres::guard_table(&client, "public.ledger", "it's 100% ours", None).await;
    whole.expect("its owner");
    let insert = "INSERT INTO ledger (token) VALUES (9)";
    assert_eq!(unchecked(client.batch_execute(insert).await), "it's 100% ours");
    let slot = Fence { slot: Some(3), floor: exclusive("x", 4).token, ..exclusive("x", 9) };
    let slot = Fence { resource: name("it's 100% ours"), ..slot };
    let transaction = postgres::begin(&mut client, &slot, PATIENCE).await.expect("accepted");
    transaction.batch_execute(insert).await.expect("checked");
    transaction.commit().await.expect("committed");
    assert_eq!(ledger(&client).await, [9]);
}

#[tokio::test]
async fn guarding_again_changes_the_terms_and_it_can_be_taken_off() {
    let (_destination, client) = guarded().await;
    postgres::guard_table(&client, "job", "jobs", None).await.expect("its owner");
    let update = "UPDATE job SET state = 'x'";
    assert_eq!(unchecked(client.batch_execute(update).await), "jobs");
    postgres::install(&client).await.expect("running it again");
    assert_eq!(unchecked(client.batch_execute(update).await), "jobs", "it keeps guarding");
    postgres::unguard_table(&client, "job").await.expect("its owner");
    postgres::unguard_table(&client, "job").await.expect("there is none");
    client.batch_execute(update).await.expect("nothing guards it");
}

#[tokio::test]
async fn a_guard_that_makes_no_sense_is_refused() {
    let (_destination, client) = guarded().await;
    let guard = async |table, resource| {
        let refused = postgres::guard_table(&client, table, resource, None).await;
        let FenceError::Store(error) = refused.expect_err("refused") else { panic!("its words") };
        let error = error.downcast::<tokio_postgres::Error>().expect("PostgreSQL's");
        error.as_db_error().expect("its words").message().to_owned()
    };
    assert_eq!(guard("job", "job/{number}").await, "ringfence: public.job has no column number");
    assert!(guard("job", "job/{id").await.contains("a brace without its other"));
    assert!(guard("job", "").await.contains("is empty"));
    assert!(guard("jobs", "job/{id}").await.contains("does not exist"));
}

fn refused_with(answer: Result<(), tokio_postgres::Error>) -> (String, String) {
    let error = answer.expect_err("refused");
    let said = error.as_db_error().expect("PostgreSQL's own words");
    (said.code().code().to_owned(), said.message().to_owned())
}

#[tokio::test]
async fn a_row_that_names_no_resource_is_refused() {
    let (_destination, client) = guarded().await;
    let table = "CREATE TABLE visit (tenant text, n int, twice int GENERATED ALWAYS AS (n * 2) STORED, day date)";
    client.batch_execute(table).await.expect("an empty database");
    postgres::guard_table(&client, "visit", "tenant/{tenant}", Some("epoch")).await.expect("ours");
    let nobody = client.batch_execute("INSERT INTO visit (tenant, n) VALUES (NULL, 1)").await;
    let (code, said) = refused_with(nobody);
    assert_eq!((&*code, said.contains("this row names no resource")), ("RF006", true), "{said}");
    for (template, epoch) in [("x/{twice}", None), ("x/{day}", None), ("x", Some("tenant"))] {
        let refused = postgres::guard_table(&client, "visit", template, epoch).await;
        let FenceError::Store(error) = refused.expect_err("refused") else { panic!("its words") };
        let error = *error.downcast::<tokio_postgres::Error>().expect("PostgreSQL's");
        assert_eq!(refused_with(Err(error)).0, "RF004", "{template} {epoch:?}");
    }
}

#[tokio::test]
async fn partitions_are_guarded_and_tables_that_others_inherit_from_are_not_taken() {
    let (_destination, client) = guarded().await;
    let tables = "CREATE TABLE part (id int, s text) PARTITION BY RANGE (id); \
                  CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (0) TO (10); \
                  CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent)";
    client.batch_execute(tables).await.expect("an empty database");
    for _ in 0..2 {
        postgres::guard_table(&client, "part", "part/{id}", None).await.expect("ours");
    }
    for write in ["INSERT INTO part VALUES (1, 'x')", "INSERT INTO part1 VALUES (1, 'x')"] {
        assert_eq!(unchecked(client.batch_execute(write).await), "part/1");
    }
    for empties in ["TRUNCATE part", "TRUNCATE part1"] {
        assert_eq!(refused_with(client.batch_execute(empties).await).0, "RF006");
    }
    let refused = postgres::guard_table(&client, "parent", "parent/{id}", None).await;
    assert!(matches!(refused, Err(FenceError::Store(_))), "{refused:?}");
    postgres::unguard_table(&client, "part").await.expect("ours");
    client.batch_execute("INSERT INTO part VALUES (1, 'x'); TRUNCATE part1").await.expect("free");
}

/// Two tables share no guard, though they were dumped and restored with other numbers.
#[tokio::test]
async fn each_table_has_a_guard_of_its_own_and_keeps_it() {
    let (_destination, client) = guarded().await;
    let other = "CREATE TABLE other (id int)";
    client.batch_execute(other).await.expect("an empty database");
    postgres::guard_table(&client, "other", "other/{id}", None).await.expect("ours");
    postgres::guard_table(&client, "other", "another/{id}", None).await.expect("ours");
    let insert = "INSERT INTO other VALUES (1)";
    assert_eq!(unchecked(client.batch_execute(insert).await), "another/1");
    assert_eq!(unchecked(client.batch_execute("DELETE FROM job").await), "job/7");
    let count =
        "SELECT count(*) FROM pg_proc WHERE proname LIKE 'guard\\_%' AND proname <> 'guard_table'";
    let count: i64 = client.query_typed_one(count, &[]).await.expect("a number").get(0);
    assert_eq!(count, 2, "what is not used any more is gone");
}

/// As a dump of another server may bring it: the number of a transaction that is still to come.
#[tokio::test]
async fn a_check_that_a_dump_brought_counts_in_no_transaction() {
    let (_destination, mut client) = guarded().await;
    write(&mut client, 6).await.expect("checked");
    let next = "UPDATE ringfence.marks SET checked_in = txid_current() + 1";
    client.batch_execute(next).await.expect("a superuser");
    let number = "SELECT checked_in FROM ringfence.marks";
    let next: i64 = client.query_typed_one(number, &[]).await.expect("a row").get(0);
    let update = "BEGIN; UPDATE job SET state = 'unchecked' WHERE id = 7";
    let refused = client.batch_execute(update).await;
    assert_eq!(unchecked(refused), "job/7");
    client.batch_execute("ROLLBACK").await.expect("a transaction");
    let now: i64 = client.query_typed_one("SELECT txid_current()", &[]).await.expect("one").get(0);
    assert!(now >= next, "the transaction {next} has been: it is {now}");
}

/// Who may only use the tables can neither forge a check nor take the guard off.
#[tokio::test]
async fn an_application_without_rights_on_the_marks_passes_by_the_check_only() {
    let (_destination, client) = guarded().await;
    let role = "CREATE ROLE guarded_app; GRANT USAGE ON SCHEMA ringfence TO guarded_app; \
                GRANT SELECT, INSERT, UPDATE, DELETE ON job TO guarded_app; \
                SET ROLE guarded_app";
    client.batch_execute(role).await.expect("a superuser");
    let update = "UPDATE job SET state = 'app' WHERE id = 7";
    assert_eq!(unchecked(client.batch_execute(update).await), "job/7");
    for forges in [
        "UPDATE ringfence.marks SET checked_in = txid_current()",
        "SELECT ringfence.unguard_table('job')",
        "SELECT ringfence.guard_table('job', 'mine')",
        "ALTER TABLE job DISABLE TRIGGER ALL",
    ] {
        let refused = client.batch_execute(forges).await.expect_err(forges);
        let code = refused.code().expect("PostgreSQL's own").code().to_owned();
        assert_eq!(code, "42501", "{forges}: insufficient privilege");
    }
    let cluster = exclusive("job/7", 6).cluster;
    let checked = format!(
        "BEGIN; SELECT ringfence.check_fence('{cluster}', 'job/7', NULL, 6, 6); {update}; COMMIT"
    );
    client.batch_execute(&checked).await.expect("checked");
    let reset = "RESET ROLE; DROP OWNED BY guarded_app; DROP ROLE guarded_app";
    client.batch_execute(reset).await.expect("a superuser");
}
