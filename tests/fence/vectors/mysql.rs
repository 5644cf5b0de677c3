//! MySQL and MariaDB: a real MariaDB.

use std::sync::mpsc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Transaction};
use ringfence::fence::{Fence, FenceError, mysql};
use ringfence::locks::{ClusterId, ResourceName, Token};

use super::{Client, Destination, PATIENCE, Vectors};
use crate::mariadb_server::Mariadb;

struct Database(Opts);

struct Writer(Conn);

impl Database {
    fn new(url: &str) -> Self {
        let database = Self(Opts::from_url(url).expect("a URL"));
        super::runtime().block_on(async {
            let mut conn = database.client().await.0;
            mysql::install(&mut conn).await.expect("an empty database");
            let ledger = "CREATE TABLE ledger (seq BIGINT AUTO_INCREMENT PRIMARY KEY, line TEXT)";
            conn.query_drop(ledger).await.expect("an empty database");
        });
        database
    }
}

impl Destination for Database {
    type Client = Writer;

    async fn client(&self) -> Writer {
        Writer(Conn::new(self.0.clone()).await.expect("it runs"))
    }
}

impl Client for Writer {
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        let sql = "INSERT INTO ledger (line) VALUES (?)";
        let write =
            async |transaction: &mut Transaction<'_>| transaction.exec_drop(sql, (line,)).await;
        mysql::guarded(&mut self.0, fences, PATIENCE, write).await
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        mysql::raise(&mut self.0, fences, PATIENCE).await
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        mysql::mark(&mut self.0, resource, slot).await.expect("installed")
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        mysql::adopt(&mut self.0, from, to).await.expect("installed, and the tables are ours");
    }

    /// The numbers are drawn while the marks are held: per resource in commit order.
    async fn ledger(&mut self) -> Vec<String> {
        self.0.query("SELECT line FROM ledger ORDER BY seq").await.expect("a ledger")
    }
}

#[test]
fn mysql_passes_every_vector() {
    let server = Mariadb::shared();
    super::tells_every_case(&Database::new(&server.url(&server.create_database())));
}

#[test]
fn sixteen_writers_never_take_mysql_back() {
    let server = Mariadb::shared();
    let database = Database::new(&server.url(&server.create_database()));
    super::sixteen_writers_never_take_it_back(&database);
}

#[test]
fn mysql_is_as_every_crash_may_leave_it() {
    let mut server = Mariadb::start();
    let database = Database::new(&server.url(&server.create_database()));
    for crash in Vectors::read().crash {
        super::runtime().block_on(async {
            super::before(&mut database.client().await, &crash).await;
        });
        let (said, heard) = mpsc::channel();
        std::thread::scope(|scope| {
            let (crash, database) = (&crash, &database);
            scope.spawn(move || super::runtime().block_on(super::last(database, crash, &said)));
            super::until_it_may_be_killed(crash, &heard);
            server.kill();
        });
        server.restart();
        super::runtime().block_on(async {
            super::is_as_the_crash_may_leave_it(&mut database.client().await, &crash).await;
        });
    }
}
