//! What SIGKILL may take, and what settings let it take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_mark_falls_when_redis_is_killed_between_accept_and_answer() {
    let (mut redis, marks, connection) = installed().await;
    drop(connection);
    let answered = Arc::new(AtomicU64::new(0));
    for _ in 0..5 {
        let before = answered.load(Ordering::SeqCst);
        let (mut connection, marks_of) = (connect(&redis).await, marks.clone());
        let counter = Arc::clone(&answered);
        let (reached, twenty) = tokio::sync::oneshot::channel();
        let writer = tokio::spawn(async move {
            let (mut number, mut reached) = (before + 1, Some(reached));
            while write(&marks_of, &mut connection, number).await.is_ok() {
                counter.store(number, Ordering::SeqCst);
                if let Some(reached) = reached.take_if(|_| number == before + 20) {
                    reached.send(()).expect("somebody waits");
                }
                number += 1;
            }
        });
        twenty.await.expect("it writes until it is killed");
        redis.kill();
        writer.await.expect("it ends with its server");
        redis.restart();
        let mut connection = connect(&redis).await;
        let mark = job_mark(&marks, &mut connection).await.expect("twenty writes");
        let last = answered.load(Ordering::SeqCst);
        assert!(mark >= last, "mark {mark} fell below {last}");
        assert_eq!(
            ledger(&mut connection).await.last(),
            Some(&mark),
            "a write and its mark are one"
        );
        let stale = write(&marks, &mut connection, last - 1).await;
        assert!(matches!(stale, Err(FenceError::Stale { .. })), "{stale:?}");
        answered.store(mark, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn without_an_append_only_file_a_crash_takes_the_marks_and_writes_stop_until_installed() {
    let mut redis = Redis::start_with(&["--appendonly", "no"]);
    let (marks, mut connection) = (marks(), connect(&redis).await);
    marks.install(&mut connection).await.expect("an empty server");
    assert_eq!(marks.durability(&mut connection).await.expect("it runs"), Durability::Snapshots);
    write(&marks, &mut connection, 5).await.expect("the first owner");
    redis.kill();
    redis.restart();
    let mut connection = connect(&redis).await;
    let refused = write(&marks, &mut connection, 4).await;
    assert!(matches!(refused, Err(FenceError::SchemaMissing)), "{refused:?}");
    marks.install(&mut connection).await.expect("an empty server");
    write(&marks, &mut connection, 4).await.expect("the marks are gone: the docs say so");
}

#[tokio::test]
async fn the_server_tells_how_durable_it_is() {
    for (fsync, expected) in [
        ("always", Durability::EveryWrite),
        ("everysec", Durability::Seconds),
        ("no", Durability::Seconds),
    ] {
        let redis = Redis::start_with(&["--appendonly", "yes", "--appendfsync", fsync]);
        let mut connection = connect(&redis).await;
        assert_eq!(marks().durability(&mut connection).await.expect("it runs"), expected);
    }
    let closed = ["--appendonly", "yes", "--rename-command", "CONFIG", ""];
    let redis = Redis::start_with(&closed);
    let mut connection = connect(&redis).await;
    let unknown = marks().durability(&mut connection).await;
    assert_eq!(unknown.expect("it runs"), Durability::Unknown);
}

#[tokio::test]
async fn a_store_that_is_down_is_no_answer() {
    let (mut redis, marks, mut connection) = installed().await;
    redis.kill();
    let down = write(&marks, &mut connection, 5).await;
    assert!(matches!(down, Err(FenceError::Store(_))), "{down:?}");
}
