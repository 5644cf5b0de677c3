//! Every means does what it says, on this machine, as root.

#![allow(clippy::unwrap_used, reason = "in a test a failed unwrap is the report")]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_jepsen::means::Run;
use ringfence_jepsen::means::process::{Process, Spec};

mod disk;
mod net;
mod probe;
mod process;
mod run;
mod shim;
mod starve;

/// The `jepsen` binary, with the preload library beside it.
fn jepsen() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_jepsen"));
        // Cargo builds no library for a test that does not link it.
        let target = program.ancestors().nth(2).expect("target/debug/jepsen");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "-p", "ringfence-fault-shim", "--target-dir"])
            .arg(target)
            .status()
            .unwrap();
        assert!(status.success(), "the preload library does not build: {status}");
        program
    })
}

/// A run for one test, and the binary that subjects are started from.
fn start() -> (Arc<Run>, &'static Path) {
    let program = jepsen();
    (Run::start().unwrap(), program)
}

/// A shell that runs a script, as process `name` of the run.
fn shell<'a>(run: &Run, name: &'a str, script: &str) -> Spec<'a> {
    let args = ["-c", script].map(OsString::from).to_vec();
    let log = run.folder().join(format!("{name}.log"));
    Spec { args, ..Spec::new(name, Path::new("/bin/sh"), log) }
}

/// Waits until something is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < deadline, "after 10 s still not: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of a process, and returns what it printed.
#[track_caller]
fn output(run: &Run, name: &str, mut process: Process) -> String {
    until("the process has ended", || process.ended().unwrap().is_some());
    std::fs::read_to_string(run.folder().join(format!("{name}.log"))).unwrap()
}

const MS: fn(u64) -> Duration = Duration::from_millis;
