//! An example is run by a real cluster whose leader is killed in the middle of it. It rests at
//! the beginning of a scene until that is done, so that nothing is left to chance.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::cluster::{Cluster, PATIENCE};
use crate::example;

/// Runs an example on three nodes to its good end. At the beginning of this scene the leader
/// gets SIGKILL, and another one leads before the scene goes on. What it printed before, and
/// after.
pub async fn at_scene(scene: &str, name: &str, environment: &[(&str, &str)]) -> (String, String) {
    let mut cluster = Cluster::start(3).await;
    let mut process = Command::new(example(name))
        .env("RINGFENCE_ENDPOINTS", cluster.endpoints().join(","))
        .env("STEP", "1")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut enter = process.stdin.take().expect("piped");
    let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let (mut told, mut before) = (String::new(), None);
    let story = async {
        while let Some(line) = lines.next_line().await.expect("it speaks UTF-8") {
            told += &line;
            told.push('\n');
            if line.starts_with(scene) {
                assert!(before.is_none(), "{scene:?} comes twice");
                before = Some(std::mem::take(&mut told));
                replace_the_leader(&mut cluster).await;
            }
            // Scenes begin at the margin; what stands there in the end is not waited for.
            if !line.starts_with(' ') {
                let _heard = enter.write_all(b"\n").await;
            }
        }
        process.wait().await.expect("it is our child")
    };
    let ended = tokio::time::timeout(PATIENCE * 2, story).await;
    let before = before.unwrap_or_default();
    assert!(ended.is_ok_and(|status| status.success()), "no good end:\n{before}{told}");
    assert!(!before.is_empty(), "no scene {scene:?}:\n{told}");
    (before, told)
}

async fn replace_the_leader(cluster: &mut Cluster) {
    let leader = cluster.leader().await;
    let term = cluster.status(leader).await.expect("it was asked just now").term;
    cluster.kill(leader);
    let next = cluster.leader_but(Some(leader)).await;
    let after = cluster.status(next).await.expect("it was asked just now").term;
    assert!(after > term, "node {next} leads in term {after}, node {leader} led in {term}");
}

/// These lines came, in this order: each begins so.
pub fn in_order(told: &str, expected: &[&str]) {
    let mut lines = told.lines().map(str::trim_start);
    for line in expected {
        assert!(lines.any(|said| said.starts_with(line)), "{line:?} is missing in\n{told}");
    }
}
