//! `examples/queue.rs`, with a paused consumer and a killed leader.

use redis::AsyncCommands;

use crate::killed;
use crate::redis_server::Redis;

#[tokio::test]
async fn example_queue_every_message_takes_effect_once_and_the_late_consumer_is_refused() {
    let server = Redis::start();
    let told = killed::run("queue", ("REDIS_URL", &server.url())).await;
    killed::in_order(
        &told,
        &[
            "This Redis keeps its marks through a power loss.",
            "ann     message 1 (book), delivery 1, token",
            "ben     message 2 (lamp), delivery 1, token",
            "ann     (stopped)",
            "Kill the leader now",
            "ben     message 1 (book), delivery 2, token",
            "ann     (goes on)",
            "ann     refused: stale fence: token",
            "ben     shipped and acknowledged message 1",
            "ben     gone: message 1 was acknowledged before",
            "ben     message 3 is set aside after 3 deliveries",
        ],
    );
    let client = redis::Client::open(server.url()).expect("a valid address");
    let mut redis = client.get_multiplexed_async_connection().await.expect("it runs");
    let shipped: Vec<String> = redis.lrange("shipped:{orders}", 0, -1).await.expect("a list");
    assert_eq!(shipped, ["2 lamp by ben", "1 book by ben"]);
    let stock: (i64, i64) = redis.hmget("stock:{orders}", &["book", "lamp"]).await.expect("both");
    assert_eq!(stock, (4, 4), "of five each");
    let waiting: u64 = redis.zcard("waiting:{orders}").await.expect("a sorted set");
    let aside: Vec<u64> = redis.lrange("aside:{orders}", 0, -1).await.expect("a list");
    assert_eq!((waiting, aside), (0, vec![3]));
    // The mark is the token of the second delivery, made by the leader that came after.
    let mark: String =
        redis.hget("ringfence:{orders}:queue/orders/1", "r").await.expect("it is marked");
    let second = format!("ben     message 1 (book), delivery 2, token {mark}");
    assert!(told.lines().any(|line| line.trim() == second), "{second:?} is missing in\n{told}");
}
