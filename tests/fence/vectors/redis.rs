//! Redis, a real server.

use std::sync::mpsc;

use redis::aio::MultiplexedConnection;
use ringfence::fence::redis::{Marks, Write};
use ringfence::fence::{Fence, FenceError};
use ringfence::locks::{ClusterId, ResourceName, Token};

use super::{Client, Destination, Vectors};
use crate::redis_server::Redis;

struct Server(String);

struct Writer(Marks, MultiplexedConnection);

impl Server {
    fn new(url: String) -> Self {
        let server = Self(url);
        super::runtime().block_on(async {
            let Writer(marks, mut connection) = server.client().await;
            marks.install(&mut connection).await.expect("an empty server");
        });
        server
    }
}

impl Destination for Server {
    type Client = Writer;

    async fn client(&self) -> Writer {
        let client = redis::Client::open(&*self.0).expect("it is an address");
        let connection = client.get_multiplexed_async_connection().await.expect("it runs");
        Writer(Marks::new("jobs").expect("a valid tag"), connection)
    }
}

impl Client for Writer {
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        let mut push = redis::cmd("RPUSH");
        push.arg("{jobs}:ledger").arg(line);
        let write = Write::commands(&[push]).key("{jobs}:ledger");
        let lengths: Vec<usize> = self.0.guarded(&mut self.1, fences, &write).await?;
        assert_eq!(lengths.len(), 1);
        Ok(())
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        self.0.raise(&mut self.1, fences).await
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        self.0.mark(&mut self.1, resource, slot).await.expect("installed")
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        let taken = self.0.adopt(&mut self.1, from, to).await.expect("it runs");
        assert!(taken > 0);
    }

    async fn ledger(&mut self) -> Vec<String> {
        let mut range = redis::cmd("LRANGE");
        range.arg("{jobs}:ledger").arg(0).arg(-1);
        range.query_async(&mut self.1).await.expect("it runs")
    }
}

#[test]
fn redis_passes_every_vector() {
    let server = Redis::start();
    super::tells_every_case(&Server::new(server.url()));
}

#[test]
fn sixteen_writers_never_take_redis_back() {
    let server = Redis::start();
    super::sixteen_writers_never_take_it_back(&Server::new(server.url()));
}

#[test]
fn redis_is_as_every_crash_may_leave_it() {
    let mut redis = Redis::start();
    let server = Server::new(redis.url());
    for crash in Vectors::read().crash {
        super::runtime().block_on(async {
            super::before(&mut server.client().await, &crash).await;
        });
        let (said, heard) = mpsc::channel();
        std::thread::scope(|scope| {
            let (crash, server) = (&crash, &server);
            scope.spawn(move || super::runtime().block_on(super::last(server, crash, &said)));
            super::until_it_may_be_killed(crash, &heard);
            redis.kill();
        });
        redis.restart();
        super::runtime().block_on(async {
            super::is_as_the_crash_may_leave_it(&mut server.client().await, &crash).await;
        });
    }
}
