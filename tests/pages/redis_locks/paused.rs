//! The paused worker. A holds the lock, has just looked, and is stopped; B takes it and
//! writes; A wakes up.

use super::redlock::Redlock;
use super::worker::{Worker, write};
use super::{LEDGER, LONG, Redis, ask, connect, destination, key, until, worker};

/// With tokens, every write shows its fence. What A's late write is answered, and the ledger.
async fn one_server(test: &str, tokens: Option<(u64, u64)>) -> (String, Vec<String>) {
    let lock = Redis::start_with(&[]);
    let (redis, _marks, mut ledger) = destination().await;
    let token = tokens.map(|(old, _)| old);
    let mut a = Worker::start(test, &[lock.url()], &redis.url(), token);
    a.stopped().await;
    let mut server = connect(&lock.url()).await;
    key::until_expired(&mut server).await;
    let b = key::acquire(&mut server, LONG).await.expect("A's has expired");
    assert_eq!(write(&mut ledger, "B", tokens.map(|(_, new)| new)).await, "accepted");
    a.wakes();
    let answer = a.says();
    assert_eq!(a.says(), "had no lock to free");
    assert!(b.holds(&mut server).await, "B has had it all the time");
    (answer, ask(&mut ledger, &["LRANGE", LEDGER, "0", "-1"]).await)
}

/// The same with five.
async fn five_servers(test: &str, tokens: Option<(u64, u64)>) -> (String, Vec<String>) {
    let servers: [Redis; 5] = std::array::from_fn(|_| Redis::start_with(&[]));
    let urls = servers.each_ref().map(Redis::url);
    let (redis, _marks, mut ledger) = destination().await;
    let token = tokens.map(|(old, _)| old);
    let mut a = Worker::start(test, &urls, &redis.url(), token);
    a.stopped().await;
    let redlock = Redlock::of(urls);
    let b = until("B has a majority", async || redlock.acquire(LONG).await).await;
    assert_eq!(write(&mut ledger, "B", tokens.map(|(_, new)| new)).await, "accepted");
    a.wakes();
    let answer = a.says();
    assert_eq!(a.says(), "had no lock to free");
    assert!(!b.validity().is_zero(), "B has had it all the time");
    assert!(redlock.release(&b).await > 2, "on a majority");
    (answer, ask(&mut ledger, &["LRANGE", LEDGER, "0", "-1"]).await)
}

const REFUSED: &str = "stale fence: token 33 is below the mark 34 of job/7";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_lock_with_a_random_value_and_a_watchdog_does_not_stop_a_paused_holder() {
    if worker::is_this().await {
        return;
    }
    let test = "redis_locks::paused::\
        a_redis_lock_with_a_random_value_and_a_watchdog_does_not_stop_a_paused_holder";
    let (answer, ledger) = one_server(test, None).await;
    assert_eq!(answer, "accepted");
    assert_eq!(ledger, ["B", "A"], "A's late write is over B's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_refuses_the_paused_holder_of_a_redis_lock() {
    if worker::is_this().await {
        return;
    }
    let test = "redis_locks::paused::the_fence_refuses_the_paused_holder_of_a_redis_lock";
    let (answer, ledger) = one_server(test, Some((33, 34))).await;
    assert_eq!(answer, REFUSED);
    assert_eq!(ledger, ["B"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redlock_on_five_servers_does_not_stop_a_paused_holder() {
    if worker::is_this().await {
        return;
    }
    let test = "redis_locks::paused::redlock_on_five_servers_does_not_stop_a_paused_holder";
    let (answer, ledger) = five_servers(test, None).await;
    assert_eq!(answer, "accepted");
    assert_eq!(ledger, ["B", "A"], "A's late write is over B's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_refuses_the_paused_holder_of_a_redlock() {
    if worker::is_this().await {
        return;
    }
    let test = "redis_locks::paused::the_fence_refuses_the_paused_holder_of_a_redlock";
    let (answer, ledger) = five_servers(test, Some((33, 34))).await;
    assert_eq!(answer, REFUSED);
    assert_eq!(ledger, ["B"]);
}
