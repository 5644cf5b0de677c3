//! `examples/queue.rs`, as docs/systems/message-queue.md tells it.

use redis::AsyncCommands;

use crate::redis_server::Redis;
use crate::stepwise::{around_the_kill, in_order, killing_the_leader_at};

#[tokio::test]
async fn queue_a_message_takes_effect_once_though_it_is_redelivered_through_a_failover() {
    let server = Redis::start();
    let told =
        killing_the_leader_at("Her lease ends", "queue", &[("REDIS_URL", &server.url())]).await;
    let (before, after) = around_the_kill(&told);
    let first = [
        "redis   keeps what it has answered through a power loss",
        "ann     message 1 (book), delivery 1, token 1",
        "ben     message 2 (lamp), delivery 1, token 2",
        "ben     shipped and acknowledged message 2",
        "ann     ready",
        "ann     (stopped)",
    ];
    in_order(before, &first);
    assert!(!before.contains("delivery 2"), "{before}");
    let second = "ben     message 1 (book), delivery 2, token ";
    let token = after.lines().find_map(|line| line.trim_start().strip_prefix(second)?.parse().ok());
    let token: u64 = token.expect("it was delivered to Ben");
    let refused = "ann     refused: stale fence: token 1 is below the mark";
    let refused = format!("{refused} {token} of queue/orders/1");
    let then = [
        second,
        "ann     (goes on)",
        &refused,
        "ben     shipped and acknowledged message 1",
        "ben     gone: message 1 was acknowledged before",
        "ben     message 3 is set aside after 3 deliveries",
    ];
    in_order(after, &then);
    let client = redis::Client::open(server.url()).expect("a valid address");
    let mut redis = client.get_multiplexed_async_connection().await.expect("it runs");
    let shipped: Vec<String> = redis.lrange("shipped:{orders}", 0, -1).await.expect("a list");
    assert_eq!(shipped, ["2 lamp by ben", "1 book by ben"]);
    let stock: (i64, i64) = redis.hmget("stock:{orders}", &["book", "lamp"]).await.expect("both");
    assert_eq!(stock, (4, 4), "of five each");
    let waiting: u64 = redis.zcard("waiting:{orders}").await.expect("a sorted set");
    let aside: Vec<u64> = redis.lrange("aside:{orders}", 0, -1).await.expect("a list");
    assert_eq!((waiting, aside), (0, vec![3]));
    let mark: u64 = redis.hget("ringfence:{orders}:queue/orders/1", "r").await.expect("a mark");
    assert_eq!(mark, token, "that of the second delivery");
}
