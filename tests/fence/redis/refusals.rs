//! What is refused before anything is written.

use redis::RedisError;

use super::*;

#[tokio::test]
async fn an_eviction_policy_is_refused_because_it_could_drop_marks() {
    let (_redis, marks, mut connection) = installed().await;
    write(&marks, &mut connection, 5).await.expect("the first owner");
    for policy in ["allkeys-lru", "volatile-ttl"] {
        set(&mut connection, policy).await;
        for answer in [
            write(&marks, &mut connection, 6).await,
            marks.raise(&mut connection, &[exclusive("job/7", 6)]).await,
            marks.install(&mut connection).await,
        ] {
            let Err(FenceError::NotDurable { setting }) = answer else { panic!("{answer:?}") };
            assert!(setting.contains(&format!("maxmemory-policy is {policy}")), "{setting}");
        }
    }
    set(&mut connection, "noeviction").await;
    write(&marks, &mut connection, 6).await.expect("nothing drops it now");
    assert_eq!(ledger(&mut connection).await, [5, 6]);
}

async fn set(connection: &mut MultiplexedConnection, policy: &str) {
    let mut config = cmd("CONFIG");
    config.arg("SET").arg("maxmemory-policy").arg(policy);
    let _: () = config.query_async(connection).await.expect("it runs");
}

#[tokio::test]
async fn a_mark_that_would_expire_is_refused() {
    let (_redis, marks, mut connection) = installed().await;
    write(&marks, &mut connection, 5).await.expect("the first owner");
    for key in ["ringfence:{jobs}:job/7", "ringfence:{jobs}"] {
        let mut expire = cmd("EXPIRE");
        let set: bool =
            expire.arg(key).arg(600).query_async(&mut connection).await.expect("it runs");
        assert!(set, "{key}");
        let refused = write(&marks, &mut connection, 6).await;
        assert!(matches!(refused, Err(FenceError::NotDurable { .. })), "{refused:?}");
        let _: () = cmd("PERSIST").arg(key).query_async(&mut connection).await.expect("it runs");
    }
    write(&marks, &mut connection, 6).await.expect("it stays");
}

#[tokio::test]
async fn a_server_without_marks_is_refused_and_so_is_one_that_was_flushed() {
    let redis = Redis::start();
    let (marks, mut connection) = (marks(), connect(&redis).await);
    for _ in 0..2 {
        let mark = marks.mark(&mut connection, &name("job/7"), None).await;
        assert!(matches!(mark, Err(FenceError::SchemaMissing)), "{mark:?}");
        let refused = write(&marks, &mut connection, 5).await;
        assert!(matches!(refused, Err(FenceError::SchemaMissing)), "{refused:?}");
        assert!(ledger(&mut connection).await.is_empty());
        marks.install(&mut connection).await.expect("an empty server");
        write(&marks, &mut connection, 6).await.expect("the first owner");
        let _: () = cmd("FLUSHALL").query_async(&mut connection).await.expect("it runs");
    }
}

#[tokio::test]
async fn installing_again_changes_nothing_and_a_newer_version_is_left_alone() {
    let (_redis, marks, mut connection) = installed().await;
    write(&marks, &mut connection, 5).await.expect("the first owner");
    marks.install(&mut connection).await.expect("installed already");
    assert_eq!(job_mark(&marks, &mut connection).await, Some(5));
    let mut later = cmd("SET");
    let _: () =
        later.arg("ringfence:{jobs}").arg(2).query_async(&mut connection).await.expect("it runs");
    for answer in [
        marks.install(&mut connection).await,
        write(&marks, &mut connection, 6).await,
        marks.mark(&mut connection, &name("job/7"), None).await.map(drop),
    ] {
        let newer = matches!(answer, Err(FenceError::SchemaNewer { found: 2, known: 1 }));
        assert!(newer, "{answer:?}");
    }
    assert_eq!(ledger(&mut connection).await, [5]);
}

/// As a caller in another language would, and gets it wrong.
#[tokio::test]
async fn malformed_arguments_are_refused_and_leave_no_mark() {
    const CLUSTER: &str = "07070707070707070707070707070707";
    let (_redis, marks, mut connection) = installed().await;
    let code = format!(
        "local function write(KEYS, ARGV) return redis.call('RPUSH', KEYS[1], ARGV[1]) end {CHECK_LUA}"
    );
    let mut offered = async |cluster: &str, slot: &str, token: &str, floor: &str| {
        let mut eval = cmd("EVAL");
        eval.arg(&code).arg(3).arg("ringfence:{jobs}").arg("ringfence:{jobs}:job/7").arg(LEDGER);
        eval.arg(1).arg(cluster).arg(slot).arg(token).arg(floor).arg(5);
        let answer: Result<u64, RedisError> = eval.query_async(&mut connection).await;
        answer.map_err(|error| error.code().unwrap_or_default().to_owned())
    };
    let numbers =
        ["0", "", "-1", "+5", "05", " 5", "5 ", "5.0", "5e0", "0x5", "five", "9007199254740992"];
    for wrong in numbers {
        assert_eq!(offered(CLUSTER, "", wrong, "1").await, Err("RFBAD".into()), "token {wrong:?}");
        let answer = offered(CLUSTER, "", "9007199254740991", wrong).await;
        assert_eq!(answer, Err("RFBAD".into()), "floor {wrong:?}");
    }
    for wrong in ["-1", "00", "4294967296", "none", "1.0"] {
        assert_eq!(offered(CLUSTER, wrong, "5", "5").await, Err("RFBAD".into()), "slot {wrong:?}");
    }
    for wrong in ["", "07", &CLUSTER.replace("07", "0G"), &CLUSTER.replace("07", "0A")] {
        assert_eq!(offered(wrong, "", "5", "5").await, Err("RFBAD".into()), "cluster {wrong:?}");
    }
    // Compared as text, 10 would be below 9.
    assert_eq!(offered(CLUSTER, "", "9", "10").await, Err("RFFLOOR".into()));
    assert_eq!(offered(CLUSTER, "", "10", "9").await, Ok(1));
    assert_eq!(offered(CLUSTER, "4294967295", "9", "9").await, Ok(2));
    assert_eq!(offered(CLUSTER, "0", "8", "8").await, Err("RFSTALE".into()));
    assert_eq!(job_mark(&marks, &mut connection).await, Some(9));
    let malformed: Vec<Fence> = vec![exclusive("job/6", 5), shared("job/7", 50, 60)];
    let refused = marks.raise(&mut connection, &malformed).await;
    assert!(matches!(refused, Err(FenceError::FloorAboveToken { .. })), "{refused:?}");
    let untouched = marks.mark(&mut connection, &name("job/6"), None).await;
    assert_eq!(untouched.expect("installed"), None);
}

/// Judged by the marks as they were before, a resource that is named twice could end below
/// what was accepted; and what comes without a fence is not guarded.
#[tokio::test]
async fn a_write_comes_with_one_fence_or_more_each_of_another_resource() {
    let (_redis, marks, mut connection) = installed().await;
    write(&marks, &mut connection, 5).await.expect("the first owner");
    let push = Write::script("return redis.call('RPUSH', KEYS[1], 99)").key(LEDGER);
    let twice = [exclusive("job/7", 9), exclusive("job/7", 5)];
    for fences in [&twice[..], &[]] {
        let refused: Result<i64, _> = marks.guarded(&mut connection, fences, &push).await;
        assert!(matches!(refused, Err(FenceError::Set)), "{fences:?}");
        let refused = marks.raise(&mut connection, fences).await;
        assert!(matches!(refused, Err(FenceError::Set)), "{fences:?}");
    }
    assert_eq!(ledger(&mut connection).await, [5]);
    assert_eq!(job_mark(&marks, &mut connection).await, Some(5));
}

/// The script is for other languages too: it checks for itself.
#[tokio::test]
async fn the_script_refuses_no_fence_and_a_resource_twice() {
    let (_redis, marks, mut connection) = installed().await;
    write(&marks, &mut connection, 5).await.expect("the first owner");
    let body = "return redis.call('RPUSH', KEYS[1], 99)";
    let code = format!("local function write(KEYS, ARGV)\n{body}\nend\n{CHECK_LUA}");
    let script = redis::Script::new(&code);
    let cluster = exclusive("job/7", 5).cluster.to_string();
    let (version, job) = ("ringfence:{jobs}", "ringfence:{jobs}:job/7");
    for count in ["0", "-1", "0.5", "", "many"] {
        let mut call = script.key(version);
        call.key(LEDGER).arg(count);
        let refused = call.invoke_async::<i64>(&mut connection).await.expect_err("refused");
        assert_eq!(refused.code(), Some("RFBAD"), "{count}: {refused}");
    }
    let mut call = script.key(version);
    call.key(job).key(job).key(LEDGER).arg(2);
    call.arg(&cluster).arg("").arg(9).arg(9).arg(&cluster).arg("").arg(5).arg(5);
    let refused = call.invoke_async::<i64>(&mut connection).await.expect_err("refused");
    assert_eq!(refused.code(), Some("RFBAD"), "{refused}");
    assert_eq!(ledger(&mut connection).await, [5]);
    assert_eq!(job_mark(&marks, &mut connection).await, Some(5));
}
