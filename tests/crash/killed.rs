//! A process that is killed while it writes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::kit::open;
use crate::story::{Line, Said, live};

/// Set for the child process: the folder it lives in, and its seed.
const CHILD_DIR: &str = "RINGFENCE_CRASH_CHILD_DIR";
const CHILD_SEED: &str = "RINGFENCE_CRASH_CHILD_SEED";

const ROUNDS_MIN: u64 = 8;
const TIME: Duration = Duration::from_secs(15);

/// This test is also the child's way in: it runs itself with the variables set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_sigkill() {
    if let (Ok(dir), Ok(seed)) = (std::env::var(CHILD_DIR), std::env::var(CHILD_SEED)) {
        live(&PathBuf::from(dir), seed.parse().expect("a number")).await;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let began = Instant::now();
    let mut random = StdRng::seed_from_u64(3);
    let mut said = Said::default();
    let (mut rounds, mut lines) = (0, 0);
    while rounds < ROUNDS_MIN || began.elapsed() < TIME {
        rounds += 1;
        lines += live_and_die(dir.path(), rounds, random.random_range(1..2000), &mut said);
        let storage = open(dir.path());
        said.check(&storage).await;
        said.found(&storage).await;
        storage.close().await;
    }
    println!("{rounds} kills, {lines} lines");
}

/// Lets a child live until it has said so many lines, kills it, and hears all it
/// said.
fn live_and_die(dir: &Path, seed: u64, until: usize, said: &mut Said) -> usize {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "killed::what_was_acknowledged_survives_sigkill", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child process");
    let mut heard = 0;
    let output = BufReader::new(child.stderr.take().expect("piped"));
    for line in output.lines() {
        let line = line.expect("text");
        match line.parse::<Line>() {
            Ok(line) => said.hear(line),
            // The kill may tear the last line; any other is a panic of the child.
            Err(error) => assert!(heard >= until, "{error}"),
        }
        heard += 1;
        if heard == until {
            child.kill().expect("it was alive");
        }
    }
    child.wait().expect("ended");
    assert!(heard >= until, "the child ended by itself");
    heard
}
