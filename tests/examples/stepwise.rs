//! An example whose leader is killed in the midst of it: it rests at the beginning of a
//! scene until that is done, so that nothing is left to chance.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};

use crate::cluster::{Cluster, PATIENCE};
use crate::example;

/// What stands in an example's output where the leader was killed.
pub const KILLED: &str = "(the leader is killed)\n";

/// Runs an example on three nodes to its good end. While it rests at the beginning of this
/// scene, the leader is killed with SIGKILL, and another one leads. What it printed, with [`KILLED`] after the
/// scene's title.
pub async fn killing_the_leader_at(
    scene: &str,
    name: &str,
    environment: &[(&str, &str)],
) -> String {
    let mut cluster = Cluster::start(3).await;
    let mut process = Command::new(example(name))
        .process_group(0)
        .env("RINGFENCE_ENDPOINTS", cluster.endpoints().join(","))
        .env("STEP", "1")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let group = Group(process.id().expect("it was just started"));
    let mut enter = process.stdin.take().expect("piped");
    let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let mut told = String::new();
    let story = async {
        while let Some(line) = lines.next_line().await.expect("it speaks UTF-8") {
            told += &line;
            told.push('\n');
            if line.starts_with(scene) {
                replace_the_leader(&mut cluster).await;
                told += KILLED;
            }
            // Scenes begin at the margin.
            if !line.starts_with(' ') {
                go_on(&mut enter).await;
            }
        }
        process.wait().await.expect("it is our child")
    };
    // Longer than the example waits for any of its own: it knows better what is amiss.
    let ended = tokio::time::timeout(PATIENCE * 3, story).await;
    let ended = ended.unwrap_or_else(|_| panic!("it does not end:\n{told}"));
    // It has seen to its own; its number may be another's soon.
    std::mem::forget(group);
    assert!(ended.success(), "{ended}:\n{told}");
    assert_eq!(told.matches(KILLED).count(), 1, "no scene {scene:?}:\n{told}");
    told
}

/// An example and all that it has started, ended when a test fails: one of them may be
/// stopped, and would stay.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        let group = format!("-{}", self.0);
        let _none_left = std::process::Command::new("kill")
            .args(["-s", "KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
    }
}

async fn replace_the_leader(cluster: &mut Cluster) {
    let leader = cluster.leader().await;
    let term = cluster.status(leader).await.expect("it was asked just now").term;
    cluster.kill(leader);
    let next = cluster.leader_but(Some(leader)).await;
    let after = cluster.status(next).await.expect("it was asked just now").term;
    assert!(after > term, "node {next} leads in term {after}, node {leader} led in {term}");
}

async fn go_on(enter: &mut ChildStdin) {
    // What stands at the margin in the end is no scene, and nobody hears this.
    let _heard = enter.write_all(b"\n").await;
}

/// What was printed before the leader was killed, and after it.
pub fn around_the_kill(told: &str) -> (&str, &str) {
    told.split_once(KILLED).expect("it was killed")
}

/// These lines came, in this order: each begins so.
pub fn in_order(told: &str, expected: &[&str]) {
    let mut lines = told.lines().map(str::trim_start);
    for line in expected {
        assert!(lines.any(|said| said.starts_with(line)), "{line:?} is missing in\n{told}");
    }
}
