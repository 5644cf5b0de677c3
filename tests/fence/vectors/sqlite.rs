//! SQLite, in a file; the process that is killed is the destination.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringfence::fence::{Fence, FenceError, sqlite};
use ringfence::locks::{ClusterId, ResourceName, Token};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

use super::{Client, Destination, PATIENCE, Vectors};

struct File(TempDir);

struct Writer(Connection);

impl File {
    fn new() -> Self {
        let file = Self(tempfile::tempdir().expect("the temporary folder is writable"));
        let writer = Writer::open(file.0.path());
        sqlite::install(&writer.0).expect("an empty file");
        let ledger = "CREATE TABLE ledger (seq INTEGER PRIMARY KEY AUTOINCREMENT, line TEXT)";
        writer.0.execute_batch(ledger).expect("an empty file");
        file
    }
}

impl Writer {
    fn open(dir: &Path) -> Self {
        let connection = Connection::open(dir.join("destination.db")).expect("the folder is ours");
        connection.pragma_update(None, "journal_mode", "WAL").expect("any file can use WAL");
        connection.busy_timeout(PATIENCE).expect("a timeout");
        Self(connection)
    }

    fn checked(
        &mut self,
        fences: &[Fence],
        write: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), FenceError> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for fence in fences {
            sqlite::check(&transaction, fence)?;
        }
        write(&transaction)?;
        Ok(transaction.commit()?)
    }
}

impl Destination for File {
    type Client = Writer;

    async fn client(&self) -> Writer {
        Writer::open(self.0.path())
    }
}

impl Client for Writer {
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        let sql = "INSERT INTO ledger (line) VALUES (?1)";
        self.checked(fences, |transaction| transaction.execute(sql, [line]).map(drop))
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        match fences {
            [fence] => sqlite::raise(&mut self.0, fence),
            set => self.checked(set, |_| Ok(())),
        }
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        sqlite::mark(&self.0, resource, slot).expect("installed")
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        sqlite::adopt(&self.0, from, to).expect("installed");
    }

    async fn ledger(&mut self) -> Vec<String> {
        let mut select = self.0.prepare("SELECT line FROM ledger ORDER BY seq").expect("a ledger");
        let lines = select.query_map([], |row| row.get(0)).expect("a ledger");
        lines.map(|line| line.expect("text")).collect()
    }
}

#[test]
fn sqlite_passes_every_vector() {
    super::tells_every_case(&File::new());
}

#[test]
fn sixteen_writers_never_take_sqlite_back() {
    super::sixteen_writers_never_take_it_back(&File::new());
}

/// In the process that is killed: which case, and where.
fn role() -> Option<(usize, PathBuf)> {
    let case = std::env::var("RINGFENCE_TEST_ROLE").ok()?.parse().ok()?;
    Some((case, std::env::var_os("RINGFENCE_TEST_DIR")?.into()))
}

#[test]
fn sqlite_is_as_every_crash_may_leave_it() {
    if let Some((case, dir)) = role() {
        let crash = &Vectors::read().crash[case];
        super::runtime().block_on(async {
            let mut writer = Writer::open(&dir);
            println!("\n> called");
            let line = crash.line(crash.before.len());
            super::offer(&mut writer, crash.last.op, &crash.last.offer, &line).await;
            println!("\n> answered");
            // Waits to be killed.
            let _ = std::io::stdin().read_line(&mut String::new());
        });
        return;
    }
    for (case, crash) in Vectors::read().crash.iter().enumerate() {
        let file = File::new();
        super::runtime().block_on(super::before(&mut Writer::open(file.0.path()), crash));
        let mut process = Command::new(std::env::current_exe().expect("a test has a path"))
            .args(["--exact", "vectors::sqlite::sqlite_is_as_every_crash_may_leave_it"])
            .args(["--nocapture", "--test-threads=1"])
            .env("RINGFENCE_TEST_ROLE", case.to_string())
            .env("RINGFENCE_TEST_DIR", file.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary runs");
        let said = if crash.answered { "> answered" } else { "> called" };
        let stdout = BufReader::new(process.stdout.take().expect("it is piped"));
        let heard = stdout.lines().map_while(Result::ok).any(|line| line == said);
        assert!(heard, "{}: it ends before it is killed", crash.name);
        process.kill().expect("it runs");
        process.wait().expect("it is a child of ours");
        super::runtime().block_on(async {
            super::is_as_the_crash_may_leave_it(&mut Writer::open(file.0.path()), crash).await;
        });
    }
}
