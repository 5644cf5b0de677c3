//! The lock on one server: `SET NX PX` with a random value, and scripts that compare it.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Script};

use super::{LEDGER, LONG, Redis, ask, connect, until};

const NAME: &str = "lock:job/7";

/// Deletes the lock, or prolongs it, if it still has the holder's value.
const COMPARE_AND_DELETE: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
else
    return 0
end
";
const COMPARE_AND_PROLONG: &str = "\
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
else
    return 0
end
";

/// One acquisition; the value is nobody else's.
#[derive(Debug, Clone)]
pub struct Key {
    value: String,
}

impl Key {
    /// A value for one acquisition.
    pub fn new() -> Self {
        Self { value: format!("{:032x}", rand::random::<u128>()) }
    }

    /// Whether the server has given the lock; `None` if it has not answered.
    pub async fn set(&self, server: &mut MultiplexedConnection, ttl: Duration) -> Option<bool> {
        let mut set = redis::cmd("SET");
        set.arg(NAME).arg(&self.value).arg("NX").arg("PX").arg(ttl.as_millis().to_string());
        let set: Option<String> = set.query_async(server).await.ok()?;
        Some(set.is_some())
    }

    /// Whether the lock on this server is this one's.
    pub async fn holds(&self, server: &mut MultiplexedConnection) -> bool {
        let value: Option<String> = ask(server, &["GET", NAME]).await;
        value.as_ref() == Some(&self.value)
    }

    /// Whether it was, and lasts for another `ttl`.
    pub async fn prolong(&self, server: &mut MultiplexedConnection, ttl: Duration) -> bool {
        let script = Script::new(COMPARE_AND_PROLONG);
        let mut call = script.key(NAME);
        call.arg(&self.value).arg(ttl.as_millis().to_string());
        call.invoke_async(server).await.expect("it runs")
    }

    /// Whether it was, and is free now; not if the server does not answer.
    pub async fn release(&self, server: &mut MultiplexedConnection) -> bool {
        let script = Script::new(COMPARE_AND_DELETE);
        let mut call = script.key(NAME);
        call.arg(&self.value);
        call.invoke_async(server).await.unwrap_or(false)
    }
}

/// Tries once.
pub async fn acquire(server: &mut MultiplexedConnection, ttl: Duration) -> Option<Key> {
    let key = Key::new();
    (key.set(server, ttl).await == Some(true)).then_some(key)
}

/// When nobody has it any more.
pub async fn until_expired(server: &mut MultiplexedConnection) {
    let free = async || (!ask::<bool>(server, &["EXISTS", NAME]).await).then_some(());
    until("the lock has expired", free).await;
}

/// Of a lock whose end a test waits for.
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn of_sixteen_that_want_to_do_the_same_work_one_does_it() {
    let redis = Redis::start_with(&[]);
    let mut workers = Vec::new();
    for number in 0..16 {
        let url = redis.url();
        workers.push(tokio::spawn(async move {
            let mut server = connect(&url).await;
            if acquire(&mut server, LONG).await.is_some() {
                let _: u64 = ask(&mut server, &["RPUSH", LEDGER, &format!("by {number}")]).await;
            }
        }));
    }
    for worker in workers {
        worker.await.expect("it does not panic");
    }
    let done: u64 = ask(&mut connect(&redis.url()).await, &["LLEN", LEDGER]).await;
    assert_eq!(done, 1);
}

#[tokio::test]
async fn the_lock_of_a_holder_that_died_is_free_after_its_ttl() {
    let redis = Redis::start_with(&[]);
    let mut server = connect(&redis.url()).await;
    let died = acquire(&mut server, SHORT).await.expect("free");
    until("another has it", async || acquire(&mut server, LONG).await).await;
    assert!(!died.holds(&mut server).await);
}

#[tokio::test]
async fn the_random_value_keeps_a_late_holder_from_freeing_the_lock_of_the_next() {
    let redis = Redis::start_with(&[]);
    let mut server = connect(&redis.url()).await;
    let page = include_str!("../../../docs/redis-locks.md");
    assert!(page.contains(&format!("```lua\n{COMPARE_AND_DELETE}```")), "the script is the page's");
    let late = acquire(&mut server, SHORT).await.expect("free");
    until_expired(&mut server).await;
    let next = acquire(&mut server, LONG).await.expect("free again");
    assert!(!late.prolong(&mut server, LONG).await);
    assert!(!late.release(&mut server).await);
    assert!(next.holds(&mut server).await);
    assert!(acquire(&mut server, LONG).await.is_none(), "no third one gets in");
}

#[tokio::test]
async fn a_plain_del_frees_the_lock_of_the_next_and_lets_a_third_one_in() {
    let redis = Redis::start_with(&[]);
    let mut server = connect(&redis.url()).await;
    let late = acquire(&mut server, SHORT).await.expect("free");
    until_expired(&mut server).await;
    let next = acquire(&mut server, LONG).await.expect("free again");
    assert!(!late.holds(&mut server).await && next.holds(&mut server).await);
    let deleted: u64 = Cmd::del(NAME).query_async(&mut server).await.expect("it runs");
    assert_eq!(deleted, 1, "the late one frees what it takes for its own");
    let third = acquire(&mut server, LONG).await;
    assert!(third.is_some(), "while the second one is at work");
}
