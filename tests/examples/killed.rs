//! An example is run by a real cluster whose leader is killed in the middle of it.

use std::fs::File;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::cluster::{Cluster, PATIENCE};
use crate::example;

/// Runs an example to its good end, with `store` (a variable and its value) in its
/// environment. When it asks for it, the leader gets SIGKILL, and another one leads before the
/// example goes on. What it printed.
pub async fn run(name: &str, store: (&str, &str)) -> String {
    let mut cluster = Cluster::start(3).await;
    let log = cluster.folder().join("example.log");
    let mut example = Command::new(example(name))
        .arg("--kill-leader")
        .env("RINGFENCE_ENDPOINTS", cluster.endpoints().join(","))
        .env(store.0, store.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).expect("the folder is ours"))
        .kill_on_drop(true)
        .spawn()
        .expect("it was built");
    let told = tokio::time::timeout(PATIENCE * 2, story(&mut example, &mut cluster)).await;
    let told = told.expect("it ends");
    let status = example.wait().await.expect("it is ours");
    let errors = std::fs::read_to_string(log).unwrap_or_default();
    assert!(status.success(), "{told}\n{errors}");
    told
}

async fn story(example: &mut Child, cluster: &mut Cluster) -> String {
    let mut to = example.stdin.take().expect("piped");
    let mut from = BufReader::new(example.stdout.take().expect("piped")).lines();
    let (mut told, mut killed) = (String::new(), 0);
    while let Some(line) = from.next_line().await.expect("it speaks UTF-8") {
        if line.starts_with("Kill the leader now") {
            let leader = cluster.leader().await;
            let term = cluster.status(leader).await.expect("it was asked just now").term;
            cluster.kill(leader);
            let next = cluster.leader_but(Some(leader)).await;
            let after = cluster.status(next).await.expect("it was asked just now").term;
            assert!(after > term, "node {next} leads in term {after}, before it was {term}");
            killed += 1;
            to.write_all(b"\n").await.expect("it waits for this");
        }
        told += &line;
        told += "\n";
    }
    // It may as well have failed before: its status tells.
    assert!(killed <= 1, "the leader was killed {killed} times\n{told}");
    told
}

/// These lines came, in this order: each begins so.
pub fn in_order(told: &str, expected: &[&str]) {
    let mut lines = told.lines().map(str::trim_start);
    for line in expected {
        assert!(lines.any(|said| said.starts_with(line)), "{line:?} is missing in\n{told}");
    }
}
