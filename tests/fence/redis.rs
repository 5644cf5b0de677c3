//! Marks in a real Redis.

mod crashes;
mod refusals;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use ringfence::fence::redis::{CHECK_LUA, Durability, Marks, Write};
use ringfence::fence::{Fence, FenceError};

use crate::redis_server::Redis;
use crate::stories::{exclusive, name, shared};

const LEDGER: &str = "{jobs}:ledger";

/// A server with marks.
async fn installed() -> (Redis, Marks, MultiplexedConnection) {
    let redis = Redis::start();
    let (marks, mut connection) = (marks(), connect(&redis).await);
    marks.install(&mut connection).await.expect("an empty server");
    (redis, marks, connection)
}

fn marks() -> Marks {
    Marks::new("jobs").expect("a valid tag")
}

async fn connect(redis: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(redis.url()).expect("it is an address");
    client.get_multiplexed_async_connection().await.expect("it runs")
}

/// One guarded write of the owner with this token.
async fn write(
    marks: &Marks,
    connection: &mut MultiplexedConnection,
    number: u64,
) -> Result<(), FenceError> {
    let mut push = cmd("RPUSH");
    push.arg(LEDGER).arg(number);
    let write = Write::commands(&[push]).key(LEDGER);
    let _: Vec<usize> = marks.guarded(connection, &[exclusive("job/7", number)], &write).await?;
    Ok(())
}

async fn ledger(connection: &mut MultiplexedConnection) -> Vec<u64> {
    cmd("LRANGE").arg(LEDGER).arg(0).arg(-1).query_async(connection).await.expect("it runs")
}

async fn job_mark(marks: &Marks, connection: &mut MultiplexedConnection) -> Option<u64> {
    let mark = marks.mark(connection, &name("job/7"), None).await.expect("installed");
    mark.map(ringfence::locks::Token::get)
}

#[tokio::test]
async fn scenario_e5_redis_applies_the_write_and_its_check_together_or_not_at_all() {
    let (_redis, marks, mut connection) = installed().await;
    let mut answers = Vec::new();
    for number in [5, 6, 5, 6, 7, 6] {
        answers.push(match write(&marks, &mut connection, number).await {
            Ok(()) => None,
            Err(FenceError::Stale { resource, token, mark, slot }) => {
                assert_eq!((resource, token.get(), slot), (name("job/7"), number, None));
                Some(mark.get())
            }
            Err(other) => panic!("{other}"),
        });
    }
    assert_eq!(answers, [None, None, Some(6), None, None, Some(7)]);
    assert_eq!(ledger(&mut connection).await, [5, 6, 6, 7]);
}

#[tokio::test]
async fn the_callers_own_lua_runs_behind_the_check_with_its_own_keys_and_arguments() {
    let (_redis, marks, mut connection) = installed().await;
    let body = "local balance = redis.call('INCRBY', KEYS[1], ARGV[1])
        redis.call('RPUSH', KEYS[2], balance)
        return { balance, #KEYS, #ARGV }";
    let transfer = Write::script(body).key("{jobs}:balance").key(LEDGER).argument(40);
    let set = [exclusive("job/8", 6), shared("job/7", 6, 2)];
    let answer: Vec<u64> = marks.guarded(&mut connection, &set, &transfer).await.expect("first");
    assert_eq!(answer, [40, 2, 1]);
    let stale: Result<Vec<u64>, _> =
        marks.guarded(&mut connection, &[exclusive("job/8", 5)], &transfer).await;
    assert!(matches!(stale, Err(FenceError::Stale { mark, .. }) if mark.get() == 6), "{stale:?}");
    assert_eq!(ledger(&mut connection).await, [40]);
    assert_eq!(job_mark(&marks, &mut connection).await, Some(2));
}

#[tokio::test]
async fn a_write_that_fails_half_way_leaves_what_it_did_and_its_mark() {
    let (_redis, marks, mut connection) = installed().await;
    let _: () =
        cmd("SET").arg("{jobs}:text").arg("x").query_async(&mut connection).await.expect("it runs");
    let mut push = cmd("RPUSH");
    push.arg(LEDGER).arg(9);
    let mut wrong = cmd("INCR");
    wrong.arg("{jobs}:text");
    let orders = [([wrong.clone(), push.clone()], 8, vec![]), ([push, wrong], 9, vec![9])];
    for (commands, number, left) in orders {
        let write = Write::commands(&commands).key(LEDGER).key("{jobs}:text");
        let fence = exclusive("job/7", number);
        let failed: Result<Vec<usize>, _> = marks.guarded(&mut connection, &[fence], &write).await;
        assert!(matches!(failed, Err(FenceError::Store(_))), "{failed:?}");
        assert_eq!(ledger(&mut connection).await, left);
        assert_eq!(job_mark(&marks, &mut connection).await, Some(number));
    }
}

#[tokio::test]
async fn get_and_then_set_is_a_hole_and_the_script_is_none() {
    let (redis, marks, mut new) = installed().await;
    let mut old = connect(&redis).await;
    let _: () = cmd("SET").arg("mark").arg(1).query_async(&mut old).await.expect("it runs");
    let mark: u64 = cmd("GET").arg("mark").query_async(&mut old).await.expect("it runs");
    assert!(mark <= 1, "the old owner's check is passed; now it is paused");
    let _: () = cmd("SET").arg("mark").arg(2).query_async(&mut new).await.expect("it runs");
    let _: () = cmd("RPUSH").arg(LEDGER).arg(2).query_async(&mut new).await.expect("it runs");
    let _: () = cmd("RPUSH").arg(LEDGER).arg(1).query_async(&mut old).await.expect("it runs");
    assert_eq!(ledger(&mut new).await, [2, 1], "the hole: a stale write after the raise");

    write(&marks, &mut old, 1).await.expect("the owner");
    marks.raise(&mut new, &[exclusive("job/7", 2)]).await.expect("the new owner");
    let stale = write(&marks, &mut old, 1).await;
    assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
    assert_eq!(ledger(&mut new).await, [2, 1, 1]);
}

#[tokio::test]
async fn the_script_is_sent_again_to_a_server_that_has_forgotten_it() {
    let (_redis, marks, mut connection) = installed().await;
    write(&marks, &mut connection, 1).await.expect("the first owner");
    let _: () = cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.expect("it runs");
    write(&marks, &mut connection, 2).await.expect("loaded again");
    assert_eq!(ledger(&mut connection).await, [1, 2]);
}

#[tokio::test]
async fn two_tags_are_two_destinations() {
    let (_redis, marks, mut connection) = installed().await;
    let other = Marks::new("queue").expect("a valid tag");
    other.install(&mut connection).await.expect("an empty tag");
    write(&marks, &mut connection, 9).await.expect("the first owner");
    other.raise(&mut connection, &[exclusive("job/7", 5)]).await.expect("no mark under this tag");
    assert_eq!(job_mark(&marks, &mut connection).await, Some(9));
    for wrong in ["", "a}b", "{a}", "a b", "*", &"a".repeat(65)] {
        assert!(Marks::new(wrong).is_err(), "{wrong}");
    }
}
