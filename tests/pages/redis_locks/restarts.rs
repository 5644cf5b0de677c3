//! A server that is started again, and what it has forgotten.

use super::redlock::Redlock;
use super::{LONG, Redis, ask, connect};

/// A has the lock on the servers 1, 2 and 3 while 4 and 5 are down; they come back, and 3 is
/// started again. Whether B gets a majority now, within A's time.
async fn a_second_majority(settings: &[&'static str]) -> bool {
    let mut servers: [Redis; 5] = std::array::from_fn(|_| Redis::start_with(settings));
    let redlock = Redlock::of(servers.each_ref().map(Redis::url));
    servers[3..].iter_mut().for_each(Redis::kill);
    let a = redlock.acquire(LONG).await.expect("three of five");
    servers[3..].iter_mut().for_each(Redis::restart);
    servers[2].kill();
    servers[2].restart();
    let b = redlock.acquire(LONG).await;
    assert!(!a.validity().is_zero(), "A counts on minutes more");
    b.is_some()
}

#[tokio::test]
async fn a_redlock_server_that_restarts_empty_lets_a_second_majority_form() {
    assert!(a_second_majority(&[]).await, "two holders");
}

#[tokio::test]
async fn a_redlock_server_that_syncs_every_write_does_not() {
    let synced = ["--appendonly", "yes", "--appendfsync", "always"];
    assert!(!a_second_majority(&synced).await);
}

#[tokio::test]
async fn a_counter_that_is_synced_survives_a_kill() {
    let mut redis = Redis::start();
    let next = ["INCR", "lock:job/7:token"];
    assert_eq!(ask::<u64>(&mut connect(&redis.url()).await, &next).await, 1);
    redis.kill();
    redis.restart();
    assert_eq!(ask::<u64>(&mut connect(&redis.url()).await, &next).await, 2);
}
