//! Nodes that must not start, or cannot go on: each says in one line why, and what to
//! do; and the others go on.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ringfence::wire::v1;

use crate::cluster::{Cluster, PATIENCE, ended, free_address};
use crate::wire::{Wire, insist, owner};

const LONG: Duration = Duration::from_secs(600);

/// Runs a node that is to end by itself; answers what it printed.
async fn refused(mut command: Command, log: &Path) -> String {
    let file = fs::File::create(log).expect("the log can be written");
    let child = command.stderr(file).spawn().expect("ringfence starts");
    let status = ended(child).await;
    let told = fs::read_to_string(log).expect("its log");
    let status = status.unwrap_or_else(|| panic!("it runs on:\n{told}"));
    assert!(!status.success(), "{told}");
    told
}

/// One line tells it all.
fn check_line(told: &str, words: &[&str]) {
    let mut lines = told.lines().filter(|line| line.starts_with("ringfence: "));
    assert!(lines.any(|line| words.iter().all(|word| line.contains(word))), "{words:?} in: {told}");
}

/// The cluster without this node, or with it, grants and releases.
async fn check_works(cluster: &Cluster, number: u64) {
    let nodes: Vec<Wire> = cluster.endpoints().iter().map(|at| Wire::to(at)).collect();
    let me = insist(&nodes, |node| async move { node.open(owner(number), LONG).await });
    let me = me.await.expect("a session");
    let header = me.next();
    let name = format!("works/{number}");
    let granted = insist(&nodes, |node| {
        let (header, name) = (header.clone(), name.clone());
        async move { node.acquire(header, &name, Duration::ZERO).await }
    });
    granted.await.expect("free");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for file in fs::read_dir(from).expect("a folder") {
        let file = file.expect("an entry");
        let target = to.join(file.file_name());
        match file.file_type().expect("a type").is_dir() {
            true => copy(&file.path(), &target),
            false => drop(fs::copy(file.path(), target).expect("copied")),
        }
    }
}

#[tokio::test]
async fn another_nodes_folder_is_refused() {
    let mut cluster = Cluster::start(3).await;
    cluster.terminate(2).await;
    cluster.terminate(3).await;
    fs::remove_dir_all(cluster.data(3)).expect("its folder");
    copy(&cluster.data(2), &cluster.data(3));
    let told = refused(cluster.command(3), &cluster.folder().join("told")).await;
    let folder = cluster.data(3).display().to_string();
    check_line(&told, &[&folder, "folder of node 2, not of node 3", "give the folder of node 3"]);
    cluster.run(2);
    check_works(&cluster, 1).await;
}

#[tokio::test]
async fn another_clusters_folder_is_refused() {
    let mut cluster = Cluster::start(3).await;
    let mut other = Cluster::start(3).await;
    other.terminate(3).await;
    for id in [3, 1] {
        cluster.terminate(id).await;
        let own = cluster.folder().join("own");
        fs::rename(cluster.data(id), &own).expect("its folder");
        if id == 1 {
            other.terminate(1).await;
        }
        copy(&other.data(id), &cluster.data(id));
        let told = refused(cluster.command(id), &cluster.folder().join("told")).await;
        check_line(&told, &["belongs to cluster", "data folder"]);
        check_works(&cluster, id).await;
        fs::remove_dir_all(cluster.data(id)).expect("the copy");
        fs::rename(&own, cluster.data(id)).expect("its folder");
        cluster.run(id);
        cluster.caught_up(id).await;
    }
}

/// It could vote twice. Also the node that would form the cluster if all were new.
#[tokio::test]
async fn a_wiped_node_under_its_old_number_is_refused() {
    let mut cluster = Cluster::start(3).await;
    for id in [1, 2] {
        cluster.kill(id);
        let own = cluster.folder().join("own");
        fs::rename(cluster.data(id), &own).expect("its folder");
        let told = refused(cluster.command(id), &cluster.folder().join("told")).await;
        let node = format!("node {id} starts on");
        check_line(&told, &[&node, "wiped or replaced", "vote twice", "under a new number"]);
        check_works(&cluster, id).await;
        fs::remove_dir_all(cluster.data(id)).expect("the new one");
        fs::rename(&own, cluster.data(id)).expect("its folder");
        cluster.run(id);
        cluster.caught_up(id).await;
    }
}

#[tokio::test]
async fn a_folder_that_is_in_use_is_refused() {
    let cluster = Cluster::start(1).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.args(["serve", "--node-id", "1", "--listen", &free_address(), "--data"]);
    command.arg(cluster.data(1));
    let told = refused(command, &cluster.folder().join("told")).await;
    check_line(&told, &["the data folder is in use by another process"]);
    check_works(&cluster, 1).await;
}

#[tokio::test]
async fn a_busy_port_is_refused() {
    let cluster = Cluster::start(1).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.args(["serve", "--node-id", "1", "--listen", cluster.address(1), "--data"]);
    command.arg(cluster.folder().join("another"));
    let told = refused(command, &cluster.folder().join("told")).await;
    check_line(&told, &["cannot listen at", cluster.address(1), "in use", "another --listen"]);
    check_works(&cluster, 1).await;
}

#[tokio::test]
async fn a_corrupt_folder_is_refused_and_the_others_go_on() {
    let mut cluster = Cluster::start(3).await;
    for number in 0..50 {
        check_works(&cluster, number).await;
    }
    let leader = cluster.leader().await;
    cluster.kill(leader);
    let (largest, bytes) = largest_wal(&cluster.data(leader));
    let file = OpenOptions::new().read(true).write(true).open(&largest).expect("a file");
    let mut byte = [0];
    // In an early record, not at the torn end.
    file.read_exact_at(&mut byte, bytes / 4).expect("within it");
    file.write_all_at(&[byte[0] ^ 0x10], bytes / 4).expect("written");
    drop(file);
    let told = refused(cluster.command(leader), &cluster.folder().join("told")).await;
    let folder = cluster.data(leader).display().to_string();
    check_line(&told, &[&folder, "corrupt", "remove this node from the cluster"]);
    check_works(&cluster, 50).await;
}

fn largest_wal(data: &Path) -> (PathBuf, u64) {
    let files = fs::read_dir(data.join("db")).expect("a database");
    let logs = files.map(|file| file.expect("an entry").path());
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let sized = logs.map(|path| (fs::metadata(&path).expect("there").len(), path));
    let (bytes, path) = sized.max().expect("a write-ahead log");
    (path, bytes)
}

fn serve(folder: &Path, toml: &str, flags: &[&str]) -> Output {
    let config = folder.join("node.toml");
    fs::write(&config, toml).expect("the folder is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.args(["serve", "--config"]).arg(config).args(flags);
    command.output().expect("ringfence starts")
}

#[test]
fn unknown_keys_and_bad_settings_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let base = "node-id = 1\ndata = '/nowhere/at/all'\n";
    let cases = [
        ("hearbeat-ms = 100", vec!["node.toml", "unknown field `hearbeat-ms`", "heartbeat-ms"]),
        ("heartbeat-ms = 'soon'", vec!["node.toml", "heartbeat-ms", "expected u64"]),
        ("heartbeat-ms = 5", vec!["heartbeat-ms must be 10 to 10000, not 5"]),
        ("election-ms = 100", vec!["election-ms must be three heartbeats (300)"]),
        ("members = { 2 = '127.0.0.1:1' }", vec!["members", "names this node, 1"]),
        ("node-id = 2", vec!["node.toml", "duplicate key"]),
    ];
    for (line, words) in cases {
        let output = serve(folder.path(), &format!("{base}{line}\n"), &[]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{told}");
        assert!(told.starts_with("ringfence: "), "{told}");
        for word in words {
            assert!(told.contains(word), "{word:?} in: {told}");
        }
    }
    let output = serve(folder.path(), "node-id = 1\n", &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("data is not set"));
    let output = serve(folder.path(), base, &["--data", "/proc/nowhere"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be used as a data folder"));
}

/// A file system of its own, for as long as it lives. Needs root.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&at).expect("a folder");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&at)
            .output();
        mount.is_ok_and(|mount| mount.status.success()).then_some(Self(at))
    }

    /// Takes room away, or gives it back.
    fn ballast(&self, bytes: usize) {
        let file = self.0.join("ballast");
        fs::write(file, vec![0; bytes]).expect("there is room for it");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a failed test may still have files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Opens and closes sessions with long labels until the node has ended by itself.
async fn fill(cluster: &mut Cluster, id: u64) {
    let node = Wire::to(cluster.address(cluster.leader_but(Some(id)).await));
    let label = |number: u32| (format!("label-{number}"), "x".repeat(256));
    let until = Instant::now() + PATIENCE * 2;
    for number in 1_000.. {
        assert!(Instant::now() < until, "node {id} runs on:\n{}", cluster.log(id));
        let labels = (0..16).map(label).collect();
        let message = v1::OpenSessionRequest {
            owner_id: owner(number).to_vec().into(),
            ttl_ms: 60_000,
            labels,
        };
        // The node that leads may be the one that ends.
        drop(node.sessions().open(message).await);
        if cluster.has_ended(id) {
            return;
        }
    }
}

/// Where a disk of its own cannot be had, a limit on the size of files stands in.
fn run_limited(cluster: &mut Cluster, id: u64) {
    let command = cluster.command(id);
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""]);
    limited.arg(command.get_program()).args(command.get_args());
    cluster.run_as(id, limited);
}

#[tokio::test]
async fn a_full_disk_stops_its_node_and_the_others_go_on() {
    let full = 3;
    let mut cluster = Cluster::prepare(3, &[]);
    let disk = SmallDisk::mount(cluster.data(full), "200m");
    for id in [1, 2] {
        cluster.run(id);
    }
    match &disk {
        Some(_) => cluster.run(full),
        None => run_limited(&mut cluster, full),
    }
    cluster.leader().await;
    check_works(&cluster, 1).await;
    if let Some(disk) = &disk {
        disk.ballast(110 << 20);
    }
    fill(&mut cluster, full).await;
    let status = cluster.ended(full).await;
    let told = cluster.log(full);
    assert!(!status.success(), "{told}");
    let words = if disk.is_some() { "disk almost full" } else { "cannot write" };
    check_line(&told, &[words, "restart", "nothing acknowledged is lost"]);
    check_works(&cluster, 2).await;
    if let Some(disk) = &disk {
        disk.ballast(0);
    }
    cluster.run(full);
    cluster.caught_up(full).await;
    check_works(&cluster, 3).await;
}
