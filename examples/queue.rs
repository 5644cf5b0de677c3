//! A message queue. A message is invisible to others for as long as its consumer's lease lives.
//! Ann is paused in the middle of message 1, so Ben gets it as well; her late effect and her
//! late acknowledgement are refused. See `docs/systems/message-queue.md`.
//!
//! ```sh
//! ringfence dev                              # in another terminal, or any cluster:
//! export RINGFENCE_ENDPOINTS=10.0.0.1:7411
//! REDIS_URL=redis://localhost cargo run --example queue
//! ```

mod play;

use std::slice::from_ref;
use std::time::Duration;

use play::{Actor, Told, client, holds, orders, scene};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use ringfence::client::{ClientError, Guard, Session};
use ringfence::fence::redis::{Durability, Marks, Write};

/// For how long a message is invisible after its consumer was last heard of.
const TTL: Duration = Duration::from_secs(2);
/// A consumer that finds no message that is visible waits so long for the oldest, then looks
/// again.
const POLL: Duration = Duration::from_secs(1);
/// One that was delivered so often and never acknowledged is set aside.
const DELIVERIES_MAX: u32 = 3;

/// All in one hash slot with the marks, for scripts that write them together.
const TAG: &str = "orders";
/// The numbers of the messages that are not acknowledged.
const WAITING: &str = "waiting:{orders}";
/// What each message says.
const BODIES: &str = "bodies:{orders}";
/// How often each was delivered.
const DELIVERIES: &str = "deliveries:{orders}";
/// The numbers of those that were set aside.
const ASIDE: &str = "aside:{orders}";
/// How many of each thing are left: to do a message twice would show here.
const STOCK: &str = "stock:{orders}";
/// What was sent off, in order.
const SHIPPED: &str = "shipped:{orders}";
/// The last number that was given to a message. Not deleted: no number is used again.
const LAST: &str = "last:{orders}";

/// Runs with the check, so it raises the mark before anything is done with the message.
const DELIVER: &str = "
    if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return { 0, '' } end
    local delivery = redis.call('HINCRBY', KEYS[3], ARGV[1], 1)
    if delivery > tonumber(ARGV[2]) then
        redis.call('ZREM', KEYS[1], ARGV[1])
        redis.call('RPUSH', KEYS[4], ARGV[1])
    end
    return { delivery, redis.call('HGET', KEYS[2], ARGV[1]) }";

/// The check, the acknowledgement and the effect are one step. A second run of it by the same
/// holder passes the check, and finds the message gone.
const SHIP: &str = "
    local thing = redis.call('HGET', KEYS[2], ARGV[1])
    if not thing or redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
    redis.call('HDEL', KEYS[2], ARGV[1])
    redis.call('HDEL', KEYS[3], ARGV[1])
    redis.call('HINCRBY', KEYS[4], thing, -1)
    redis.call('RPUSH', KEYS[5], ARGV[1] .. ' ' .. thing .. ' by ' .. ARGV[2])
    return 1";

#[tokio::main]
async fn main() -> Told<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [name, url] => {
            let consumer = Consumer {
                name: name.clone(),
                session: client()?.session(TTL).purpose(name).await?,
                redis: connect(url).await?,
                marks: Marks::new(TAG)?,
            };
            consumer.run().await
        }
        _ => story().await,
    }
}

async fn story() -> Told<()> {
    let url = std::env::var("REDIS_URL").map_err(|_| "set REDIS_URL to a Redis or Valkey")?;
    let mut redis = connect(&url).await?;
    prepare(&mut redis).await?;
    let book = put(&mut redis, "book").await?;
    let lamp = put(&mut redis, "lamp").await?;

    scene("Ann receives the first message. Ben does not see it, and gets the second.");
    let mut ann = Actor::start("ann", &[&url])?;
    ann.ask("receive", &format!("message {book} (book), delivery 1")).await?;
    let mut ben = Actor::start("ben", &[&url])?;
    ben.ask("receive", &format!("message {lamp} (lamp), delivery 1")).await?;
    ben.ask("ship", "ready").await?;
    ben.ask("go", "shipped").await?;

    scene("Ann has looked whether she holds her message, and is paused before she ships.");
    ann.ask("ship", "ready").await?;
    ann.pause().await?;

    scene("Her lease ends, and her message is visible again. Ben receives it.");
    ben.ask("receive", &format!("message {book} (book), delivery 2")).await?;

    scene("Ann wakes up before he has shipped: the message is in the queue still. Refused.");
    ann.go_on().await?;
    ann.ask("go", "refused").await?;

    scene("Ben ships. He asks again, as if the answer had been lost: it is not done twice.");
    ben.ask("ship", "ready").await?;
    ben.ask("go", "shipped").await?;
    ben.ask("ship", "ready").await?;
    ben.ask("go", "gone").await?;

    scene("A message that nobody can read comes back until it is set aside.");
    let poison = put(&mut redis, "???").await?;
    for delivery in 1..=DELIVERIES_MAX {
        ben.ask("receive", &format!("message {poison} (???), delivery {delivery}")).await?;
        ben.ask("give back", "given back").await?;
    }
    ben.ask("receive", &format!("message {poison} is set aside")).await?;
    ben.expect("no message").await?;

    let shipped: Vec<String> = redis.lrange(SHIPPED, 0, -1).await?;
    let stock: (i64, i64) = redis.hmget(STOCK, &["book", "lamp"]).await?;
    let aside: Vec<u64> = redis.lrange(ASIDE, 0, -1).await?;
    let waiting: Vec<u64> = redis.zrange(WAITING, 0, -1).await?;
    println!("Shipped: {shipped:?}; in stock: {stock:?} of 5 and 5");
    println!("Set aside: {aside:?}; in the queue: {waiting:?}");
    let expected = [format!("{lamp} lamp by ben"), format!("{book} book by ben")];
    if shipped != expected || stock != (4, 4) || aside != [poison] || !waiting.is_empty() {
        return Err("that is not what was to be shipped".into());
    }
    Ok(())
}

/// An empty queue, with five of each thing in stock.
async fn prepare(redis: &mut MultiplexedConnection) -> Told<()> {
    let marks = Marks::new(TAG)?;
    marks.install(redis).await?;
    println!(
        "  redis   {}",
        match marks.durability(redis).await? {
            Durability::EveryWrite => "keeps what it has answered through a power loss",
            Durability::Seconds => "can lose the last seconds: set appendfsync to always",
            Durability::Snapshots => "can lose marks: set appendonly to yes, appendfsync to always",
            Durability::Unknown => "does not tell what a power loss takes",
        }
    );
    let of_an_earlier_run = [WAITING, BODIES, DELIVERIES, ASIDE, STOCK, SHIPPED];
    let _: u64 = redis.del(&of_an_earlier_run).await?;
    let () = redis.hset_multiple(STOCK, &[("book", 5), ("lamp", 5)]).await?;
    Ok(())
}

/// Puts a message into the queue; its number. To put one in needs no lease.
async fn put(redis: &mut MultiplexedConnection, body: &str) -> Told<u64> {
    let number: u64 = redis.incr(LAST, 1).await?;
    let mut both = redis::pipe();
    both.atomic().hset(BODIES, number, body).zadd(WAITING, number, number);
    let _: (u64, u64) = both.query_async(redis).await?;
    Ok(number)
}

/// A consumer of messages, in a process of its own.
struct Consumer {
    name: String,
    session: Session,
    redis: MultiplexedConnection,
    marks: Marks,
}

/// A message, for as long as it is invisible to others.
struct Received {
    number: u64,
    lease: Guard,
}

impl Consumer {
    async fn run(mut self) -> Told<()> {
        let mut orders = orders();
        let mut received = None;
        while let Some(order) = orders.next_line().await? {
            match (order.as_str(), &received) {
                ("receive", _) => received = self.receive().await?,
                (_, None) => println!("no message is in hand"),
                ("give back", Some(_)) => {
                    let message: Option<Received> = received.take();
                    message.ok_or("it is in hand")?.lease.release().await?;
                    println!("given back");
                }
                (_, Some(message)) if !holds(&message.lease).await => println!("holds it no more"),
                (_, Some(message)) => {
                    // Nothing that is done between this look and the script can help: the
                    // pause may come after it. What helps is the fence inside the script.
                    println!("ready");
                    orders.next_line().await?;
                    self.ship(message).await;
                }
            }
        }
        Ok(())
    }

    /// The first message that is visible; none if the queue is empty.
    async fn receive(&mut self) -> Told<Option<Received>> {
        loop {
            let numbers: Vec<u64> = self.redis.zrange(WAITING, 0, 9).await?;
            let Some(&oldest) = numbers.first() else {
                println!("no message");
                return Ok(None);
            };
            let tries = numbers.into_iter().map(|number| (number, Duration::ZERO));
            for (number, wait) in tries.chain([(oldest, POLL)]) {
                let Some(lease) = self.lease(number, wait).await? else { continue };
                if self.deliver(number, &lease).await? {
                    return Ok(Some(Received { number, lease }));
                }
                lease.release().await?;
                break;
            }
        }
    }

    /// To hold this is what makes a message invisible.
    async fn lease(&self, number: u64, wait: Duration) -> Told<Option<Guard>> {
        let lease = self.session.acquire(format!("queue/orders/{number}")).wait(wait).await;
        match lease {
            Ok(lease) => Ok(Some(lease)),
            Err(ClientError::Busy { .. } | ClientError::Timeout { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Raises the fence, and takes the message if it is still there to be delivered.
    async fn deliver(&mut self, number: u64, lease: &Guard) -> Told<bool> {
        let deliver = [WAITING, BODIES, DELIVERIES, ASIDE]
            .into_iter()
            .fold(Write::script(DELIVER).argument(number).argument(DELIVERIES_MAX), Write::key);
        let (delivery, body): (u32, String) =
            self.marks.guarded(&mut self.redis, from_ref(lease.fence()), &deliver).await?;
        if delivery > DELIVERIES_MAX {
            println!("message {number} is set aside after {DELIVERIES_MAX} deliveries");
        } else if delivery > 0 {
            println!("message {number} ({body}), delivery {delivery}, token {}", lease.token());
        }
        Ok((1..=DELIVERIES_MAX).contains(&delivery))
    }

    async fn ship(&mut self, message: &Received) {
        let Received { number, lease } = message;
        let ship = [WAITING, BODIES, DELIVERIES, STOCK, SHIPPED]
            .into_iter()
            .fold(Write::script(SHIP).argument(*number).argument(&self.name), Write::key);
        let done = self.marks.guarded(&mut self.redis, from_ref(lease.fence()), &ship).await;
        match done {
            Ok(true) => println!("shipped and acknowledged message {number}"),
            Ok(false) => println!("gone: message {number} was acknowledged before"),
            Err(refused) => println!("refused: {refused}"),
        }
    }
}

async fn connect(url: &str) -> Told<MultiplexedConnection> {
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection().await?)
}
