//! What a run makes goes with it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ringfence_jepsen::means::disk::{IN_MEMORY, MIB_MIN, Volume};
use ringfence_jepsen::means::net::Network;
use ringfence_jepsen::means::process::Process;
use ringfence_jepsen::means::run::sweep;
use ringfence_jepsen::means::starve::{How, Starved};
use ringfence_jepsen::means::subject::Subject;
use ringfence_jepsen::means::{Run, proc};

use super::{shell, start};

/// Everything on this machine that bears the id of a run.
fn left_of(id: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut named = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path().display().to_string());
        found.extend(paths.filter(|path| path.contains(id)));
    };
    ["/run/netns", IN_MEMORY, "/sys/fs/cgroup/cpu"].into_iter().for_each(&mut named);
    let losetup = Command::new("losetup").args(["-n", "-O", "BACK-FILE"]).output().unwrap();
    let loops = String::from_utf8(losetup.stdout).unwrap();
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let lines = loops.lines().chain(mounts.lines()).filter(|line| line.contains(id));
    found.extend(lines.map(str::to_owned));
    found.extend(proc::started_for(id).iter().map(|pid| format!("process {pid}")));
    found
}

#[test]
fn a_run_leaves_nothing() {
    let (run, _) = start();
    let (id, folder) = (run.id().to_owned(), run.folder().to_owned());
    let network = Network::make(&run, &["n1", "n2"], 0).unwrap();
    let volume = Volume::make(&run, "n1", MIB_MIN).unwrap();
    let process = Process::start(&run, shell(&run, "n1", "sleep 1000 & wait")).unwrap();
    let starved = Starved::start(&run, &process, 50).unwrap();
    let made = left_of(&id);
    let wanted = if starved.how() == How::Quota { 7 } else { 6 };
    assert!(made.len() >= wanted, "2 namespaces, images, loop, mount, process, group: {made:?}");
    drop((starved, process, volume, network));
    assert_eq!(Arc::strong_count(&run), 1);
    drop(run);
    assert_eq!(left_of(&id), [""; 0]);
    assert!(!folder.exists());
}

#[test]
fn what_a_killed_run_left_is_taken_away_and_a_living_run_is_not() {
    let (run, program) = start();
    let mut subject = Subject::start(&run, program, None).unwrap();
    assert_eq!(subject.ask("leave").unwrap(), [0]);
    let root = run.folder().join("runs");
    let id = only_run(&root);
    assert_eq!(sweep(&root).unwrap(), [""; 0], "it lives");
    assert!(left_of(&id).len() >= 5, "{:?}", left_of(&id));

    // The kernel ends the shell with its parent; the shell's own child goes on.
    let shells = proc::started_for(&id);
    subject.process.kill().unwrap();
    super::until("the shell has died with the harness", || {
        proc::started_for(&id).len() < shells.len()
    });
    let left = left_of(&id);
    assert!(left.iter().any(|line| line.starts_with("process")), "{left:?}");
    assert!(left.iter().any(|line| line.contains("ext4")), "{left:?}");

    let next = Run::start_in(&root).unwrap();
    assert_eq!(left_of(&id), [""; 0]);
    assert_eq!(only_run(&root), next.id());
}

fn only_run(root: &Path) -> String {
    let entries = fs::read_dir(root).unwrap().flatten();
    let runs: Vec<_> = entries.filter(|entry| entry.path().is_dir()).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs[0].file_name().into_string().unwrap()
}
