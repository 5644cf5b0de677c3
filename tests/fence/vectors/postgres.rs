//! PostgreSQL, a real server.

use std::sync::mpsc;

use ringfence::fence::{Fence, FenceError, postgres};
use ringfence::locks::{ClusterId, ResourceName, Token};
use tokio_postgres::types::Type;
use tokio_postgres::{NoTls, Transaction};

use super::{Client, Destination, PATIENCE, Vectors};
use crate::postgres_server::Postgres;

struct Database(String);

struct Writer(tokio_postgres::Client);

impl Database {
    fn new(url: String) -> Self {
        super::runtime().block_on(async {
            let client = Writer::connect(&url).await.0;
            postgres::install(&client).await.expect("an empty database");
            let ledger = "CREATE TABLE ledger (seq bigserial PRIMARY KEY, line text)";
            client.batch_execute(ledger).await.expect("an empty database");
        });
        Self(url)
    }
}

impl Writer {
    async fn connect(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it runs");
        // It ends with its client or its server; what failed is seen by the client.
        tokio::spawn(async move { drop(connection.await) });
        Self(client)
    }

    async fn checked(&mut self, fences: &[Fence]) -> Result<Transaction<'_>, FenceError> {
        let (first, rest) = fences.split_first().expect("a grant has a fence");
        let transaction = postgres::begin(&mut self.0, first, PATIENCE).await?;
        for fence in rest {
            postgres::check(&transaction, fence).await?;
        }
        Ok(transaction)
    }
}

impl Destination for Database {
    type Client = Writer;

    async fn client(&self) -> Writer {
        Writer::connect(&self.0).await
    }
}

impl Client for Writer {
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        let transaction = self.checked(fences).await?;
        let sql = "INSERT INTO ledger (line) VALUES ($1)";
        transaction.execute_typed(sql, &[(&line, Type::TEXT)]).await?;
        Ok(transaction.commit().await?)
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        match fences {
            [fence] => postgres::raise(&mut self.0, fence, PATIENCE).await,
            set => Ok(self.checked(set).await?.commit().await?),
        }
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        postgres::mark(&self.0, resource, slot).await.expect("installed")
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        postgres::adopt(&self.0, from, to).await.expect("installed, and the schema is ours");
    }

    /// The numbers are drawn while the marks are held: per resource in commit order.
    async fn ledger(&mut self) -> Vec<String> {
        let sql = "SELECT line FROM ledger ORDER BY seq";
        let rows = self.0.query_typed(sql, &[]).await.expect("a ledger");
        rows.iter().map(|row| row.get(0)).collect()
    }
}

#[test]
fn postgres_passes_every_vector() {
    let server = Postgres::shared();
    super::tells_every_case(&Database::new(server.url(&server.create_database())));
}

#[test]
fn sixteen_writers_never_take_postgres_back() {
    let server = Postgres::shared();
    let database = Database::new(server.url(&server.create_database()));
    super::sixteen_writers_never_take_it_back(&database);
}

#[test]
fn postgres_is_as_every_crash_may_leave_it() {
    let mut server = Postgres::start();
    let url = server.url("postgres");
    let database = Database::new(url.clone());
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
