//! The programs in `examples/` run against a real cluster and end well.
#![cfg(feature = "server")]

#[path = "../support/cluster.rs"]
mod cluster;
mod control_plane;
mod cutover;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod queue;
#[path = "../support/redis.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod redis_server;
mod scheduler;
mod screens;
mod stepwise;

use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use cluster::{Cluster, PATIENCE};

/// `cargo test` builds the examples beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let built = test.ancestors().nth(2).expect("tests stand in deps/");
    let path = built.join("examples").join(name);
    assert!(path.exists(), "build it first: cargo build --example {name}");
    path
}

/// Runs an example to its end; what it printed.
async fn run(name: &str) -> String {
    let cluster = Cluster::start(3).await;
    let run = Command::new(example(name))
        .env("RINGFENCE_ENDPOINTS", cluster.endpoints().join(","))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE * 2, run).await.expect("it ends");
    let output = output.expect("it runs");
    let told = String::from_utf8(output.stdout).expect("it speaks UTF-8");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    told
}

#[tokio::test]
async fn example_election_the_database_refuses_the_primary_that_was_replaced() {
    let told = run("election").await;
    assert!(told.contains("ann     refused: "), "{told}");
    assert!(told.contains("election: ben leads with token"), "{told}");
    assert!(told.contains("election: no leader"), "{told}");
    assert!(told.ends_with("In the database: [(1, \"ann\"), (3, \"ben\")]\n"), "{told}");
}

#[tokio::test]
async fn example_screens_a_reused_screen_refuses_its_former_device_and_no_other() {
    let told = run("screens").await;
    assert!(told.contains("tablet  has screen 1"), "{told}");
    assert!(told.contains("phone   refused: "), "{told}");
    assert!(told.contains("tv      plays minute 2"), "{told}");
}
