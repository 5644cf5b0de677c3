//! What `docs/redis-locks.md` says, on real servers.

mod clock;
mod key;
mod paused;
mod promotion;
mod redlock;
mod restarts;
mod worker;

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue};
use ringfence::fence::Fence;
use ringfence::fence::redis::Marks;
use ringfence::locks::{ClusterId, ResourceName, Token};

use crate::redis_server::Redis;

/// Longer than anything takes: nothing here is decided by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of a lock that does not expire while a test runs.
const LONG: Duration = Duration::from_mins(10);

/// The writes that the destination has accepted, in order.
const LEDGER: &str = "{jobs}:ledger";

async fn connect(url: &str) -> MultiplexedConnection {
    let client = Client::open(url).expect("it is an address");
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&config).await.expect("it runs")
}

/// One command, to a server that runs.
async fn ask<T: FromRedisValue>(server: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut cmd = Cmd::new();
    for word in words {
        cmd.arg(*word);
    }
    cmd.query_async(server).await.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// A server that keeps everything, with marks, for what is protected.
async fn destination() -> (Redis, Marks, MultiplexedConnection) {
    let redis = Redis::start();
    let (marks, mut connection) = (marks(), connect(&redis.url()).await);
    marks.install(&mut connection).await.expect("an empty server");
    (redis, marks, connection)
}

fn marks() -> Marks {
    Marks::new("jobs").expect("a valid tag")
}

/// The fence of an exclusive grant, as a lock authority gives it out with this token.
fn fence(token: u64) -> Fence {
    let token = Token::new(token).expect("a valid token");
    let resource = ResourceName::new("job/7").expect("a valid name");
    Fence { cluster: ClusterId::new([7; 16]), resource, slot: None, token, floor: token }
}

/// Asks until it is so.
async fn until<T>(what: &str, mut asked: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = asked().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
