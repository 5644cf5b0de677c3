//! A failover: the primary dies, and a replica takes its place. Replication is asynchronous,
//! so what the primary has answered need not have arrived.

use std::net::TcpListener;

use redis::aio::MultiplexedConnection;
use redis::cmd;

use super::worker::write;
use super::{LEDGER, LONG, Redis, ask, connect, key, marks, until};
use crate::proxy::Proxy;

struct Primary {
    redis: Redis,
    connection: MultiplexedConnection,
    port: u16,
}

/// A replica, behind a network that can be cut.
struct Replica {
    _redis: Redis,
    connection: MultiplexedConnection,
    network: Proxy,
}

impl Primary {
    async fn start() -> Self {
        // Else it waits for a second replica before it sends the first one a copy.
        let redis = Redis::start_with(&["--repl-diskless-sync-delay", "0"]);
        let mut connection = connect(&redis.url()).await;
        let port = listen(&mut connection).await;
        Self { redis, connection, port }
    }

    /// One more, which follows.
    async fn replica(&self) -> Replica {
        let redis = Redis::start_with(&[]);
        let network = Proxy::before(&format!("127.0.0.1:{}", self.port)).await;
        let mut connection = connect(&redis.url()).await;
        let (host, port) = network.address().split_once(':').expect("host:port");
        let _: String = ask(&mut connection, &["REPLICAOF", host, port]).await;
        let follows = async || {
            let told: String = ask(&mut connection, &["INFO", "replication"]).await;
            told.contains("master_link_status:up").then_some(())
        };
        until("the replica follows", follows).await;
        Replica { _redis: redis, connection, network }
    }

    /// How many replicas have confirmed all that was written over this connection.
    async fn wait(&mut self, wanted: &str, milliseconds: &str) -> u64 {
        ask(&mut self.connection, &["WAIT", wanted, milliseconds]).await
    }

    /// SIGKILL, and this replica takes over.
    async fn fails_over_to(mut self, replica: &mut Replica) {
        self.redis.kill();
        // What the network holds back is lost with the connection.
        replica.network.cut();
        let _: String = ask(&mut replica.connection, &["REPLICAOF", "NO", "ONE"]).await;
    }
}

/// Lets a server that has only its socket listen on a free port of the loopback too.
async fn listen(server: &mut MultiplexedConnection) -> u16 {
    until("a port is free", async || {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let mut set = cmd("CONFIG");
        set.arg("SET").arg("port").arg(port);
        let set: Result<String, _> = set.query_async(server).await;
        set.ok().map(|_| port)
    })
    .await
}

#[tokio::test]
async fn a_promoted_replica_does_not_know_a_lock_that_was_acknowledged() {
    let mut primary = Primary::start().await;
    let mut replica = primary.replica().await;
    replica.network.go_dark();
    let a = key::acquire(&mut primary.connection, LONG).await.expect("acknowledged");
    assert!(a.holds(&mut primary.connection).await);
    assert_eq!(primary.wait("1", "50").await, 0, "nobody has confirmed it; the lock stays");
    assert!(a.holds(&mut primary.connection).await);
    primary.fails_over_to(&mut replica).await;
    let b = key::acquire(&mut replica.connection, LONG).await;
    assert!(b.is_some(), "two holders, each for minutes");
}

#[tokio::test]
async fn a_lock_that_the_promoted_replica_has_confirmed_is_kept() {
    let mut primary = Primary::start().await;
    let mut replica = primary.replica().await;
    let a = key::acquire(&mut primary.connection, LONG).await.expect("acknowledged");
    assert_eq!(primary.wait("1", "60000").await, 1);
    primary.fails_over_to(&mut replica).await;
    assert!(a.holds(&mut replica.connection).await);
    assert!(key::acquire(&mut replica.connection, LONG).await.is_none());
}

#[tokio::test]
async fn wait_does_not_say_which_replica_is_promoted() {
    let mut primary = Primary::start().await;
    let (_confirms, mut lags) = (primary.replica().await, primary.replica().await);
    lags.network.go_dark();
    key::acquire(&mut primary.connection, LONG).await.expect("acknowledged");
    assert_eq!(primary.wait("1", "60000").await, 1, "one of two has confirmed it");
    primary.fails_over_to(&mut lags).await;
    let b = key::acquire(&mut lags.connection, LONG).await;
    assert!(b.is_some(), "two holders");
}

#[tokio::test]
async fn a_counter_beside_the_lock_gives_the_same_token_to_two_holders() {
    let mut primary = Primary::start().await;
    let mut replica = primary.replica().await;
    let next = ["INCR", "lock:job/7:token"];
    assert_eq!(ask::<u64>(&mut primary.connection, &next).await, 1);
    assert_eq!(primary.wait("1", "60000").await, 1);
    replica.network.go_dark();
    assert_eq!(ask::<u64>(&mut primary.connection, &next).await, 2, "A's token");
    primary.fails_over_to(&mut replica).await;
    assert_eq!(ask::<u64>(&mut replica.connection, &next).await, 2, "and B's");
}

#[tokio::test]
async fn marks_in_a_redis_are_lost_by_its_failover_as_locks_are() {
    let mut primary = Primary::start().await;
    marks().install(&mut primary.connection).await.expect("an empty server");
    let mut replica = primary.replica().await;
    replica.network.go_dark();
    assert_eq!(write(&mut primary.connection, "B", Some(34)).await, "accepted");
    let refused = write(&mut primary.connection, "A", Some(33)).await;
    assert_eq!(refused, "stale fence: token 33 is below the mark 34 of job/7");
    primary.fails_over_to(&mut replica).await;
    assert_eq!(write(&mut replica.connection, "A", Some(33)).await, "accepted");
    let ledger: Vec<String> = ask(&mut replica.connection, &["LRANGE", LEDGER, "0", "-1"]).await;
    assert_eq!(ledger, ["A"], "what B wrote is lost with its mark");
}
