//! Marks in SQLite files: several connections, several processes, and SIGKILL.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringfence::fence::{Fence, FenceError, sqlite};
use ringfence::locks::ClusterId;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tempfile::TempDir;

use crate::stories::{
    ATTEMPTS, assert_answer, assert_never_back, exclusive, mixed, name, shared, stories,
};

/// A file with marks, a protected row and a ledger of who wrote it.
fn destination() -> TempDir {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    let connection = open(dir.path());
    sqlite::install(&connection).expect("an empty file");
    let tables = "CREATE TABLE job (id INTEGER PRIMARY KEY, state TEXT, epoch INTEGER NOT NULL);
        INSERT INTO job VALUES (7, 'new', 0);
        CREATE TABLE ledger (seq INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL)";
    connection.execute_batch(tables).expect("an empty file");
    dir
}

fn open(dir: &Path) -> Connection {
    let connection = Connection::open(dir.join("destination.db")).expect("the folder is ours");
    let mode: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .expect("any file can use WAL");
    assert_eq!(mode, "wal");
    connection.busy_timeout(Duration::from_secs(30)).expect("a timeout");
    connection
}

fn publish(transaction: &Transaction<'_>, number: u64) -> rusqlite::Result<()> {
    let number = number.cast_signed();
    transaction.execute("UPDATE job SET state = 'by ' || ?1 WHERE id = 7", [number])?;
    transaction.execute("INSERT INTO ledger (token) VALUES (?1)", [number])?;
    Ok(())
}

fn write(connection: &mut Connection, number: u64) -> Result<(), FenceError> {
    let fence = exclusive("job/7", number);
    sqlite::guarded(connection, &fence, |transaction| publish(transaction, number))
}

fn ledger(connection: &Connection) -> Vec<u64> {
    let mut select = connection.prepare("SELECT token FROM ledger ORDER BY seq").expect("a ledger");
    let tokens = select.query_map([], |row| row.get::<_, i64>(0)).expect("a ledger");
    tokens.map(|token| token.expect("an integer").cast_unsigned()).collect()
}

fn job_mark(connection: &Connection) -> Option<u64> {
    sqlite::mark(connection, &name("job/7"), None)
        .expect("installed")
        .map(ringfence::locks::Token::get)
}

#[test]
fn sqlite_tells_every_story() {
    let dir = destination();
    let mut connection = open(dir.path());
    for story in stories() {
        for step in story.steps() {
            assert_answer(story.resource, &step, sqlite::raise(&mut connection, &step.fence));
        }
    }
}

#[test]
fn scenario_e5_sqlite_applies_the_write_and_its_check_together_or_not_at_all() {
    let dir = destination();
    let mut connection = open(dir.path());
    let answers = [5, 6, 5, 6, 7, 6].map(|number| match write(&mut connection, number) {
        Ok(()) => None,
        Err(FenceError::Stale { mark, .. }) => Some(mark.get()),
        Err(other) => panic!("{other}"),
    });
    assert_eq!(answers, [None, None, Some(6), None, None, Some(7)]);
    assert_eq!(ledger(&connection), [5, 6, 6, 7]);
}

#[test]
fn a_check_in_autocommit_is_refused_and_says_what_to_do() {
    let dir = destination();
    let connection = open(dir.path());
    let refused = sqlite::check(&connection, &exclusive("job/7", 5)).expect_err("no transaction");
    assert!(matches!(refused, FenceError::NoTransaction));
    assert!(refused.to_string().contains("outside a transaction"));
    assert_eq!(job_mark(&connection), None);
}

#[test]
fn a_raise_waits_for_a_write_past_its_check_and_refuses_the_next() {
    let kinds = [
        ("immediate", TransactionBehavior::Immediate),
        ("deferred", TransactionBehavior::Deferred),
    ];
    for (kind, behavior) in kinds {
        let dir = destination();
        let (mut old, mut new) = (open(dir.path()), open(dir.path()));
        new.busy_timeout(Duration::ZERO).expect("a timeout");
        let writing = old.transaction_with_behavior(behavior).expect("nobody else writes");
        sqlite::check(&writing, &exclusive("job/7", 1)).expect("the first owner");
        let busy = sqlite::raise(&mut new, &exclusive("job/7", 2));
        assert!(matches!(busy, Err(FenceError::Busy(_))), "{kind}: {busy:?}");
        publish(&writing, 1).expect("past the check");
        writing.commit().expect("past the check");
        sqlite::raise(&mut new, &exclusive("job/7", 2)).expect("nobody writes now");
        let stale = write(&mut old, 1);
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{kind}: {stale:?}");
        assert_eq!(ledger(&new), [1]);
    }
}

#[test]
fn a_deferred_transaction_that_read_before_the_raise_cannot_write_after_it() {
    let dir = destination();
    let (mut old, mut new) = (open(dir.path()), open(dir.path()));
    let reading = old.transaction().expect("a deferred transaction");
    let state: String = reading
        .query_row("SELECT state FROM job WHERE id = 7", [], |row| row.get(0))
        .expect("the job is there");
    assert_eq!(state, "new");
    sqlite::raise(&mut new, &exclusive("job/7", 2)).expect("a reader stops nobody");
    for number in [1, 2] {
        let behind = sqlite::check(&reading, &exclusive("job/7", number));
        assert!(matches!(behind, Err(FenceError::Conflict(_))), "{behind:?}");
    }
    drop(reading);
    assert!(matches!(write(&mut old, 1), Err(FenceError::Stale { .. })));
    write(&mut old, 2).expect("run again, the owner's transaction goes through");
}

#[test]
fn a_write_that_fails_leaves_no_mark() {
    let dir = destination();
    let mut connection = open(dir.path());
    let failed = sqlite::guarded(&mut connection, &exclusive("job/7", 9), |transaction| {
        publish(transaction, 9)?;
        transaction.execute("INSERT INTO job VALUES (7, 'twice', 0)", [])
    });
    assert!(matches!(failed, Err(FenceError::Store(_))), "{failed:?}");
    assert_eq!((job_mark(&connection), ledger(&connection)), (None, vec![]));
}

#[test]
fn settings_under_which_a_mark_could_fall_are_refused() {
    let dir = destination();
    let mut connection = open(dir.path());
    for (settings, durable) in [
        ("PRAGMA synchronous = OFF", false),
        ("PRAGMA synchronous = NORMAL", false),
        ("PRAGMA synchronous = FULL", true),
        ("PRAGMA journal_mode = DELETE", false),
        ("PRAGMA synchronous = EXTRA", true),
        ("PRAGMA synchronous = FULL; PRAGMA journal_mode = TRUNCATE", true),
        ("PRAGMA synchronous = NORMAL", false),
        ("PRAGMA synchronous = EXTRA; PRAGMA journal_mode = MEMORY", false),
    ] {
        connection.execute_batch(settings).expect("outside a transaction");
        let answer = write(&mut connection, 5);
        match (answer, durable) {
            (Ok(()), true) | (Err(FenceError::NotDurable { .. }), false) => {}
            (answer, _) => panic!("{settings}: {answer:?}"),
        }
    }
    let mut lost = Connection::open_in_memory().expect("memory");
    sqlite::install(&lost).expect("an empty database");
    let refused = sqlite::raise(&mut lost, &exclusive("job/7", 5)).expect_err("memory is lost");
    assert_eq!(
        refused.to_string(),
        "the mark would not survive a power loss: journal_mode is memory; use WAL and a file"
    );
}

#[test]
fn installing_again_changes_nothing_and_a_newer_schema_is_left_alone() {
    let dir = destination();
    let mut connection = open(dir.path());
    write(&mut connection, 5).expect("the first owner");
    sqlite::install(&connection).expect("installed already");
    assert_eq!(job_mark(&connection), Some(5));
    connection.execute("UPDATE ringfence_schema SET version = 2", []).expect("a later version");
    for answer in [
        sqlite::install(&connection),
        write(&mut connection, 6),
        sqlite::mark(&connection, &name("job/7"), None).map(drop),
    ] {
        assert!(
            matches!(answer, Err(FenceError::SchemaNewer { found: 2, known: 1 })),
            "{answer:?}"
        );
    }
    assert_eq!(ledger(&connection), [5]);
}

#[test]
fn a_file_without_marks_is_refused() {
    let dir = tempfile::tempdir().expect("the temporary folder is writable");
    let mut connection = open(dir.path());
    connection.execute_batch("CREATE TABLE ledger (seq, token)").expect("an empty file");
    let refused = sqlite::guarded(&mut connection, &exclusive("job/7", 5), |transaction| {
        transaction.execute("INSERT INTO ledger VALUES (1, 5)", [])
    });
    assert!(matches!(refused, Err(FenceError::SchemaMissing)), "{refused:?}");
    assert!(ledger(&connection).is_empty());
}

#[test]
fn malformed_and_foreign_fences_are_refused_and_adoption_moves_no_mark() {
    let dir = destination();
    let mut connection = open(dir.path());
    let malformed = sqlite::raise(&mut connection, &shared("job/7", 5, 6));
    assert!(matches!(malformed, Err(FenceError::FloorAboveToken { .. })), "{malformed:?}");
    write(&mut connection, 5).expect("the first authority");
    let (old, new) = (exclusive("job/7", 5).cluster, ClusterId::new([8; 16]));
    let restored = Fence { cluster: new, ..exclusive("job/7", 900) };
    let foreign = sqlite::raise(&mut connection, &restored);
    assert!(
        matches!(foreign, Err(FenceError::ForeignCluster { known, offered, .. })
            if (known, offered) == (old, new)),
        "{foreign:?}"
    );
    assert_eq!(sqlite::adopt(&connection, old, new).expect("installed"), 1);
    assert_eq!(job_mark(&connection), Some(5));
    sqlite::raise(&mut connection, &restored).expect("adopted");
}

#[test]
fn sixteen_writers_of_mixed_tokens_never_take_the_accepted_sequence_back() {
    let dir = destination();
    let (start, attempts) = (Barrier::new(16), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut connection = open(dir.path());
                start.wait();
                loop {
                    let attempt = attempts.fetch_add(1, Ordering::Relaxed);
                    if attempt >= ATTEMPTS {
                        break;
                    }
                    match write(&mut connection, mixed(attempt)) {
                        Ok(()) | Err(FenceError::Stale { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    let connection = open(dir.path());
    let accepted = ledger(&connection);
    assert_never_back(&accepted);
    assert_eq!(job_mark(&connection), accepted.last().copied());
}

#[test]
fn the_epoch_in_the_protected_row_itself_refuses_a_stale_owner() {
    let dir = destination();
    let connection = open(dir.path());
    let changed = [5, 6, 5, 6, 7, 6].map(|epoch| {
        let sql = "UPDATE job SET state = 'done', epoch = ?1 WHERE id = 7 AND epoch <= ?1";
        connection.execute(sql, [epoch]).expect("the job is there")
    });
    assert_eq!(changed, [1, 1, 0, 1, 1, 0]);
}

/// Runs one test of this binary again, as another process that was told `role`.
fn another_process(test: &str, role: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().expect("a test has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("RINGFENCE_TEST_ROLE", role)
        .env("RINGFENCE_TEST_DIR", dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary runs")
}

fn role() -> Option<(String, std::path::PathBuf)> {
    let dir = std::env::var_os("RINGFENCE_TEST_DIR")?;
    Some((std::env::var("RINGFENCE_TEST_ROLE").ok()?, dir.into()))
}

/// What the other process says, one line each.
fn said(process: &mut Child) -> impl Iterator<Item = String> + use<> {
    let stdout = process.stdout.take().expect("it is piped");
    let lines = BufReader::new(stdout).lines().map_while(Result::ok);
    lines.filter_map(|line| line.split_once("> ").map(|(_, said)| said.to_owned()))
}

#[test]
fn a_frozen_process_inside_its_transaction_holds_up_the_raise_and_its_death_frees_it() {
    if let Some((_, dir)) = role() {
        let mut connection = open(&dir);
        let fence = exclusive("job/7", 1);
        let _ = sqlite::guarded(&mut connection, &fence, |transaction| {
            publish(transaction, 1)?;
            println!("\n> past the check");
            // Frozen: nobody ever answers.
            let _ = std::io::stdin().read_line(&mut String::new());
            Ok(())
        });
        return;
    }
    let dir = destination();
    let test =
        "sqlite::a_frozen_process_inside_its_transaction_holds_up_the_raise_and_its_death_frees_it";
    let mut frozen = another_process(test, "frozen", dir.path());
    let mut lines = said(&mut frozen);
    assert_eq!(lines.next().as_deref(), Some("past the check"));
    let mut new = open(dir.path());
    new.busy_timeout(Duration::from_millis(100)).expect("a timeout");
    let busy = sqlite::raise(&mut new, &exclusive("job/7", 2));
    assert!(matches!(busy, Err(FenceError::Busy(_))), "{busy:?}");
    frozen.kill().expect("it is frozen, not gone");
    frozen.wait().expect("it is a child of ours");
    sqlite::raise(&mut new, &exclusive("job/7", 2)).expect("the dead hold no lock");
    assert!(ledger(&new).is_empty(), "what the dead had not committed is undone");
}

#[test]
fn no_mark_falls_when_the_destination_is_killed_between_accept_and_answer() {
    if let Some((first, dir)) = role() {
        let mut connection = open(&dir);
        for number in first.parse::<u64>().expect("a number").. {
            write(&mut connection, number).expect("the only writer");
            println!("\n> {number}");
        }
    }
    let dir = destination();
    let test = "sqlite::no_mark_falls_when_the_destination_is_killed_between_accept_and_answer";
    let mut answered = 0;
    for _ in 0..5 {
        let mut writer = another_process(test, &(answered + 1).to_string(), dir.path());
        let mut lines = said(&mut writer);
        let tenth = lines.by_ref().nth(9).expect("it writes until it is killed");
        writer.kill().expect("it runs");
        writer.wait().expect("it is a child of ours");
        let last = lines.last().unwrap_or(tenth);
        answered = last.parse().expect("a number");
        let mut connection = open(dir.path());
        let (mark, ledger) = (job_mark(&connection).expect("ten writes"), ledger(&connection));
        assert!(mark >= answered, "mark {mark} fell below {answered}");
        assert_eq!(ledger.last(), Some(&mark), "a write and its mark are one");
        let stale = write(&mut connection, answered - 1);
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
        answered = mark;
    }
}
