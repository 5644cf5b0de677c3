//! A mount namespace that holds a dead volume. Alone here: it would hold those of other tests.

#![allow(clippy::unwrap_used, reason = "in a test a failed unwrap is the report")]

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_jepsen::means::Run;
use ringfence_jepsen::means::disk::{MIB_MIN, Volume};
use ringfence_jepsen::means::process::{Process, Spec};

#[test]
fn a_mount_namespace_that_holds_a_dead_volume_is_found() {
    let run = Run::start().unwrap();
    let volume = Volume::make(&run, "n1", MIB_MIN).unwrap();
    let log = run.folder().join("pin.log");
    let script = "exec unshare --mount sh -c 'echo in; exec sleep 1000'";
    let args = ["-c", script].map(Into::into).to_vec();
    let spec = Spec { args, ..Spec::new("pin", Path::new("/bin/sh"), log.clone()) };
    let mut pin = Process::start(&run, spec).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while fs::read_to_string(&log).unwrap() != "in\n" {
        assert!(Instant::now() < deadline, "no mount namespace within 10 s");
        thread::sleep(Duration::from_millis(5));
    }
    volume.power_cut().unwrap();
    let error = volume.restore().unwrap_err().to_string();
    assert!(error.contains("a mount namespace of its own"), "{error}");
    pin.kill().unwrap();
    volume.restore().unwrap();
    volume.check_healthy().unwrap();
}
