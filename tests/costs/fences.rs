//! What the check costs at the destination: a guarded write against the same write without,
//! on each real store, in turns within one run. Each write is one that an application makes
//! anyway: a transaction that updates a row and adds one, synced.
//!
//! `cargo bench --bench fences`; WRITES=n for another number than 400 of each kind, and
//! names of stores to measure some of them only: `cargo bench --bench fences -- postgres`.

#[allow(dead_code, reason = "the fences' own tests use the rest")]
#[path = "../support/mariadb.rs"]
mod mariadb_server;
#[path = "../support/postgres.rs"]
mod postgres_server;
#[allow(dead_code, reason = "the fences' own tests use the rest")]
#[path = "../support/redis.rs"]
mod redis_server;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, TxOpts};
use ringfence::fence::redis::{Marks, Write};
use ringfence::fence::{self, Fence, mysql, postgres, sqlite};
use ringfence::locks::{ClusterId, ResourceName, Token};
use rusqlite::TransactionBehavior;
use tokio_postgres::NoTls;

/// Writes of one kind before it is the other's turn: what else the machine does meanwhile
/// meets both.
const TURN: usize = 10;

const HOLD: Duration = Duration::from_secs(10);

/// A store with a table `job` (id, state) of one row, 7, and a table `done` (token).
trait Store {
    async fn plain(&mut self);
    async fn guarded(&mut self, fence: &Fence);
}

fn main() {
    let writes = std::env::var("WRITES").map_or(400, |n| n.parse().expect("a number"));
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a thread can have a runtime");
    println!(
        "{:<16}{:>12}{:>12}{:>10}{:>12}{:>12}{:>10}",
        "store", "plain p50", "guarded p50", "ratio", "plain mean", "guarded", "ratio"
    );
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    runtime.block_on(async {
        if is_wanted("postgres") {
            let server = postgres_server::Postgres::start();
            measure("postgres", &mut Postgres::at(&server.url("postgres")).await, writes).await;
        }
        if is_wanted("mariadb") {
            let server = mariadb_server::Mariadb::start();
            let url = server.url(&server.create_database());
            let mut store = Mariadb::at(&url).await;
            // Asked for, and bounded, once on the connection; then with every write.
            measure("mariadb", &mut store, writes).await;
            measure("mariadb, begin", &mut Begun(store), writes).await;
        }
        if is_wanted("sqlite") {
            let folder = tempfile::tempdir().expect("writable");
            measure("sqlite", &mut Sqlite::at(&folder.path().join("x.db")), writes).await;
        }
        if is_wanted("rocksdb") {
            let folder = tempfile::tempdir().expect("writable");
            measure("rocksdb", &mut Rocks::at(folder.path()), writes).await;
        }
        if is_wanted("file") {
            let folder = tempfile::tempdir().expect("writable");
            measure("file", &mut Files::at(folder.path()), writes).await;
        }
        if is_wanted("redis") {
            let server = redis_server::Redis::start();
            measure("redis", &mut Redis::at(&server.url()).await, writes).await;
        }
    });
}

async fn measure(name: &str, store: &mut impl Store, writes: usize) {
    let (mut plain, mut guarded) = (Vec::new(), Vec::new());
    let fence = fence();
    for turn in 0..=writes / TURN {
        // The first turn warms up: plans, pages, connections.
        let counts = turn > 0;
        for _ in 0..TURN {
            let began = Instant::now();
            store.plain().await;
            plain.extend(counts.then(|| began.elapsed()));
        }
        for _ in 0..TURN {
            let began = Instant::now();
            store.guarded(&fence).await;
            guarded.extend(counts.then(|| began.elapsed()));
        }
    }
    let [plain, guarded] = [plain, guarded].map(|mut times| {
        times.sort_unstable();
        let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).expect("some");
        (times[times.len() / 2], mean)
    });
    let ratio = |guarded: Duration, plain: Duration| guarded.as_secs_f64() / plain.as_secs_f64();
    println!(
        "{name:<16}{:>10} us{:>9} us{:>10.2}{:>9} us{:>9} us{:>10.2}",
        plain.0.as_micros(),
        guarded.0.as_micros(),
        ratio(guarded.0, plain.0),
        plain.1.as_micros(),
        guarded.1.as_micros(),
        ratio(guarded.1, plain.1),
    );
}

fn fence() -> Fence {
    let token = Token::new(41).expect("in bounds");
    let resource = ResourceName::new("job/7").expect("a name");
    Fence { cluster: ClusterId::new([7; 16]), resource, slot: None, token, floor: token }
}

struct Postgres(tokio_postgres::Client);

const UPDATE: &str = "UPDATE job SET state = state + 1 WHERE id = 7";
const INSERT: &str = "INSERT INTO done (token) VALUES (41)";

impl Postgres {
    async fn at(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it runs");
        tokio::spawn(async move { drop(connection.await) });
        postgres::install(&client).await.expect("an empty database");
        let tables = "CREATE TABLE job (id bigint PRIMARY KEY, state bigint NOT NULL); \
                      INSERT INTO job VALUES (7, 0); CREATE TABLE done (token bigint NOT NULL)";
        client.batch_execute(tables).await.expect("an empty database");
        Self(client)
    }
}

impl Store for Postgres {
    async fn plain(&mut self) {
        let transaction = self.0.transaction().await.expect("connected");
        transaction.execute_typed(UPDATE, &[]).await.expect("a row");
        transaction.execute_typed(INSERT, &[]).await.expect("a table");
        transaction.commit().await.expect("written");
    }

    async fn guarded(&mut self, fence: &Fence) {
        let transaction = postgres::begin(&mut self.0, fence, HOLD).await.expect("accepted");
        transaction.execute_typed(UPDATE, &[]).await.expect("a row");
        transaction.execute_typed(INSERT, &[]).await.expect("a table");
        transaction.commit().await.expect("written");
    }
}

struct Mariadb(Conn);

/// As an application does that keeps no account of its connections.
struct Begun(Mariadb);

impl Mariadb {
    async fn at(url: &str) -> Self {
        let mut conn = Conn::new(Opts::from_url(url).expect("a URL")).await.expect("it runs");
        mysql::install(&mut conn).await.expect("an empty database");
        for table in [
            "CREATE TABLE job (id bigint PRIMARY KEY, state bigint NOT NULL)",
            "INSERT INTO job VALUES (7, 0)",
            "CREATE TABLE done (seq bigint AUTO_INCREMENT PRIMARY KEY, token bigint NOT NULL)",
        ] {
            conn.query_drop(table).await.expect("an empty database");
        }
        mysql::ready(&mut conn).await.expect("installed");
        mysql::bound(&mut conn, HOLD).await.expect("connected");
        Self(conn)
    }
}

impl Store for Mariadb {
    async fn plain(&mut self) {
        write_in(self.0.start_transaction(TxOpts::new()).await.expect("connected")).await;
    }

    async fn guarded(&mut self, fence: &Fence) {
        let begun = self.0.start_transaction(TxOpts::new()).await.expect("connected");
        let fences = std::slice::from_ref(fence);
        write_in(mysql::check(begun, fences).await.expect("accepted")).await;
    }
}

impl Store for Begun {
    async fn plain(&mut self) {
        self.0.plain().await;
    }

    async fn guarded(&mut self, fence: &Fence) {
        let fences = std::slice::from_ref(fence);
        write_in(mysql::begin(&mut self.0.0, fences, HOLD).await.expect("accepted")).await;
    }
}

async fn write_in(mut transaction: mysql_async::Transaction<'_>) {
    transaction.query_drop(UPDATE).await.expect("a row");
    transaction.query_drop(INSERT).await.expect("a table");
    transaction.commit().await.expect("written");
}

struct Sqlite(rusqlite::Connection);

impl Sqlite {
    fn at(path: &Path) -> Self {
        let connection = rusqlite::Connection::open(path).expect("writable");
        connection.pragma_update(None, "journal_mode", "WAL").expect("a file");
        connection.pragma_update(None, "synchronous", "FULL").expect("a file");
        sqlite::install(&connection).expect("an empty file");
        let tables = "CREATE TABLE job (id INTEGER PRIMARY KEY, state INTEGER NOT NULL); \
                      INSERT INTO job VALUES (7, 0); CREATE TABLE done (token INTEGER NOT NULL)";
        connection.execute_batch(tables).expect("an empty file");
        Self(connection)
    }
}

fn write(transaction: &rusqlite::Transaction<'_>) -> rusqlite::Result<()> {
    transaction.prepare_cached(UPDATE)?.execute([])?;
    transaction.prepare_cached(INSERT)?.execute([])?;
    Ok(())
}

impl Store for Sqlite {
    async fn plain(&mut self) {
        let immediate = TransactionBehavior::Immediate;
        let transaction = self.0.transaction_with_behavior(immediate).expect("nobody else");
        write(&transaction).expect("tables");
        transaction.commit().expect("written");
    }

    async fn guarded(&mut self, fence: &Fence) {
        sqlite::guarded(&mut self.0, fence, write).expect("accepted");
    }
}

struct Redis {
    connection: redis::aio::MultiplexedConnection,
    marks: Marks,
    write: Write,
}

fn commands() -> [redis::Cmd; 2] {
    let (mut set, mut push) = (redis::cmd("HINCRBY"), redis::cmd("RPUSH"));
    set.arg("job:{bench}:7").arg("state").arg(1);
    push.arg("done:{bench}").arg(41);
    [set, push]
}

impl Redis {
    async fn at(url: &str) -> Self {
        let client = redis::Client::open(url).expect("a URL");
        let mut connection = client.get_multiplexed_async_connection().await.expect("it runs");
        let marks = Marks::new("bench").expect("a tag");
        marks.install(&mut connection).await.expect("it is empty");
        let write = Write::commands(&commands()).key("job:{bench}:7").key("done:{bench}");
        Self { connection, marks, write }
    }
}

impl Store for Redis {
    async fn plain(&mut self) {
        let mut both = redis::pipe();
        both.atomic();
        for command in commands() {
            both.add_command(command);
        }
        let _: (u64, u64) = both.query_async(&mut self.connection).await.expect("written");
    }

    async fn guarded(&mut self, fence: &Fence) {
        let fences = std::slice::from_ref(fence);
        let written = self.marks.guarded(&mut self.connection, fences, &self.write).await;
        let _: (u64, u64) = written.expect("accepted");
    }
}

struct Rocks {
    db: Arc<rocksdb::DB>,
    marks: fence::rocksdb::Marks,
}

fn batch() -> rocksdb::WriteBatch {
    let mut batch = rocksdb::WriteBatch::default();
    batch.put(b"job/7", b"done");
    batch.put(b"done/41", b"");
    batch
}

impl Rocks {
    fn at(path: &Path) -> Self {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let marks = [fence::rocksdb::column_family()];
        let db = rocksdb::DB::open_cf_descriptors(&options, path, marks).expect("writable");
        let db = Arc::new(db);
        let marks = fence::rocksdb::Marks::new(Arc::clone(&db));
        marks.install().expect("an empty database");
        Self { db, marks }
    }
}

impl Store for Rocks {
    async fn plain(&mut self) {
        let mut synced = rocksdb::WriteOptions::default();
        synced.set_sync(true);
        self.db.write_opt(batch(), &synced).expect("written");
    }

    async fn guarded(&mut self, fence: &Fence) {
        self.marks.guarded(std::slice::from_ref(fence), batch()).expect("accepted");
    }
}

struct Files {
    folder: PathBuf,
    marks: fence::file::Marks,
}

impl Files {
    fn at(folder: &Path) -> Self {
        let marks = fence::file::Marks::new(folder);
        marks.install().expect("an empty folder");
        Self { folder: folder.to_owned(), marks }
    }
}

impl Store for Files {
    /// As a careful application replaces a file.
    async fn plain(&mut self) {
        let (new, path) = (self.folder.join("new"), self.folder.join("plain"));
        std::fs::write(&new, b"done").expect("writable");
        std::fs::File::open(&new).and_then(|file| file.sync_all()).expect("a disk");
        std::fs::rename(&new, &path).expect("one folder");
        std::fs::File::open(&self.folder).and_then(|dir| dir.sync_all()).expect("a disk");
    }

    async fn guarded(&mut self, fence: &Fence) {
        let fences = std::slice::from_ref(fence);
        self.marks.replace("guarded", fences, b"done").expect("accepted");
    }
}
