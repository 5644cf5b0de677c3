//! Against real nodes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::cluster::Cluster;
use crate::run::{Done, Lock, done, eventually, finish, ringfence, runs};

const TTL: Duration = Duration::from_secs(3);
const STUBBORN: &str = "trap 'echo > $D/term' TERM; echo $$ > $D/pid; while :; do sleep 0.02; done";

/// A way to a node that can be cut: nothing is refused or reset, bytes just stop.
struct Cable {
    address: String,
    cut: Arc<AtomicBool>,
}

impl Cable {
    fn to(there: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cut = Arc::new(AtomicBool::new(false));
        let (there, is_cut) = (there.to_owned(), Arc::clone(&cut));
        // The threads end with the test's process.
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(&there) else { continue };
                pass(near.try_clone().unwrap(), far.try_clone().unwrap(), Arc::clone(&is_cut));
                pass(far, near, Arc::clone(&is_cut));
            }
        });
        Self { address, cut }
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            while cut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
            if to.write_all(&bytes[..n]).is_err() {
                return;
            }
        }
    });
}

/// Queues for the resource, and says whether this process runs when it gets it.
fn rival(endpoint: &str, pid: u32) -> Done {
    let script = format!("grep -s '^State' /proc/{pid}/status; echo $RINGFENCE_TOKEN");
    let arguments = ["--endpoints", endpoint, "lock", "-q", "job/7", "--wait", "30s", "--"];
    finish(ringfence(&arguments).args(["sh", "-c", &script]).spawn().unwrap())
}

#[tokio::test]
async fn scenario_g1_when_a_real_node_grants_anew_the_cut_off_command_is_dead() {
    let cluster = Cluster::start(1).await;
    let cable = Cable::to(cluster.address(1));
    let options = ["--endpoints", &cable.address, "job/7", "--ttl", "3s", "--grace", "600ms"];
    let lock = Lock::run(ringfence(&["lock"]), &options, STUBBORN);
    let command = lock.pid("pid");
    cable.cut();
    let granted = rival(cluster.address(1), command);
    assert_eq!((granted.code, granted.out.as_str()), (0, "2\n"), "the command is dead");
    assert!(lock.has_written("term"));
    assert_eq!(lock.done().code, 76);
}

#[tokio::test]
async fn scenario_g2_a_real_node_frees_what_a_killed_wrapper_held_after_its_ttl() {
    let cluster = Cluster::start(1).await;
    let options = ["--endpoints", cluster.address(1), "job/7", "--ttl", "3s"];
    let lock = Lock::run(ringfence(&["lock"]), &options, STUBBORN);
    let command = lock.pid("pid");
    lock.signal(Signal::SIGKILL);
    let killed = Instant::now();
    let granted = rival(cluster.address(1), command);
    let took = killed.elapsed();
    assert_eq!((granted.code, granted.out.as_str()), (0, "2\n"));
    assert!(took < TTL + Duration::from_secs(3), "{took:?}");
    assert!(!runs(command));
}

#[tokio::test]
async fn scenario_g5_after_a_crash_the_holder_and_its_token_are_shown() {
    let cluster = Cluster::start(1).await;
    let options = ["--endpoints", cluster.address(1), "job/7", "--ttl", "1m"];
    let lock = Lock::run(ringfence(&["lock"]), &options, STUBBORN);
    lock.pid("pid");
    let pid = lock.wrapper.as_ref().unwrap().id().to_string();
    lock.signal(Signal::SIGKILL);
    let shown = done(ringfence(&["--endpoints", cluster.address(1), "get", "job/7"])).out;
    let holder: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (holder[..3].join(" "), holder[5], holder[6]),
        ("held (exclusive) 1".into(), &*pid, "sh")
    );
    assert!(holder[7].ends_with('Z'), "{shown}");
}

#[tokio::test]
async fn status_follows_a_real_cluster_from_well_to_without_a_majority() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let all = cluster.endpoints().join(",");
    let status = || done(ringfence(&["--endpoints", &all, "status"]));
    eventually("all is well", || status().code == 0);
    let mut followers = cluster.ids();
    followers.retain(|id| *id != leader);
    let [first, second] = followers[..] else { panic!("three nodes: {followers:?}") };
    cluster.kill(first);
    let one_down = status();
    assert_eq!(one_down.code, 1);
    let told = format!("problem: node {first} ({}) does not answer -> ", cluster.address(first));
    assert!(one_down.out.contains(&told), "{}", one_down.out);
    cluster.kill(second);
    let told = "problem: no majority: 1 of 3 voters answer, 2 are needed -> nothing is granted";
    let cut_off = format!("problem: leader {leader} has not heard a majority for");
    eventually("no majority is told", || {
        let out = status().out;
        out.contains(told) || out.contains(&cut_off)
    });
    let refused = done(ringfence(&[
        "--endpoints",
        &all,
        "--timeout",
        "2s",
        "lock",
        "n",
        "--",
        "echo",
        "never",
    ]));
    assert_eq!((refused.code, refused.out.as_str()), (69, ""), "{}", refused.err);
}
