//! Redlock, as <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>
//! describes it: the lock of one server on a majority of independent ones, within its time.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};

use super::key::Key;

/// How long one server may take. That page says 5 to 50 ms, so that one that is down costs
/// little; here those that are down refuse at once, and those that are up may be slow.
const A_SERVER: Duration = Duration::from_secs(10);

/// The addresses of the servers.
pub struct Redlock {
    urls: Vec<String>,
}

/// One acquisition.
pub struct Held {
    key: Key,
    until: Instant,
}

impl Redlock {
    pub fn of(urls: impl IntoIterator<Item = String>) -> Self {
        Self { urls: urls.into_iter().collect() }
    }

    /// Tries once: all servers in turn, the same name and random value at each.
    pub async fn acquire(&self, ttl: Duration) -> Option<Held> {
        let (key, start) = (Key::new(), Instant::now());
        let mut given = 0;
        for url in &self.urls {
            if let Some(mut server) = reach(url).await
                && key.set(&mut server, ttl).await == Some(true)
            {
                given += 1;
            }
        }
        // The allowance of the first implementations: a hundredth for clocks that drift, and
        // keys expire in whole milliseconds.
        let drift = ttl / 100 + Duration::from_millis(2);
        let validity = ttl.checked_sub(start.elapsed() + drift).filter(|left| !left.is_zero());
        let held = Held { key, until: start + (ttl - drift) };
        if given > self.urls.len() / 2 && validity.is_some() {
            return Some(held);
        }
        self.release(&held).await;
        None
    }

    /// On how many servers it was freed: all are asked, also those that have not given it.
    pub async fn release(&self, held: &Held) -> usize {
        let mut freed = 0;
        for url in &self.urls {
            if let Some(mut server) = reach(url).await {
                freed += usize::from(held.key.release(&mut server).await);
            }
        }
        freed
    }
}

impl Held {
    /// How long the work may take, by the holder's own monotonic clock.
    pub fn validity(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// A server that answers in time.
async fn reach(url: &str) -> Option<MultiplexedConnection> {
    let client = Client::open(url).expect("it is an address");
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(A_SERVER))
        .set_response_timeout(Some(A_SERVER));
    client.get_multiplexed_async_connection_with_config(&config).await.ok()
}
