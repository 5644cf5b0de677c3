//! Shared, slots and sets, against real nodes.

use std::process::Child;
use std::thread;

use serde_json::json;

use crate::cluster::Cluster;
use crate::run::{Done, Lock, PATIENT, done, eventually, finish, go, json, on};

/// How many wait for it.
fn waiting(cluster: &Cluster, name: &str) -> u64 {
    json(on(cluster, &["queue", name, "-o", "json"]))["waiting"].as_u64().unwrap()
}

#[tokio::test]
async fn two_shared_commands_run_at_once_and_an_exclusive_one_after_both() {
    let cluster = Cluster::start(1).await;
    let shared = || Lock::run(on(&cluster, &["lock", "--shared"]), &["cat"], PATIENT);
    let readers = [shared(), shared()];
    for reader in &readers {
        reader.wrote("up");
    }
    let holders = json(on(&cluster, &["get", "cat", "-o", "json"]))["holders"].clone();
    let modes: Vec<_> = holders.as_array().unwrap().iter().map(|held| &held["mode"]).collect();
    assert_eq!(modes, ["shared", "shared"]);
    assert!(holders[1]["floor"].as_u64() < holders[1]["token"].as_u64(), "{holders}");
    let list = done(on(&cluster, &["list"])).out;
    assert!(list.contains("\ncat    shared 2   1       0  "), "{list}");
    let tried = done(on(&cluster, &["lock", "cat", "--try", "--", "true"]));
    assert_eq!(tried.code, 75);
    assert!(tried.err.contains("by host") && tried.err.contains("and by 1 more"), "{}", tried.err);
    let writer = on(&cluster, &["lock", "cat", "--", "echo", "ran"]).spawn().unwrap();
    eventually("the writer waits", || waiting(&cluster, "cat") == 1);
    // Nobody overtakes: a reader that comes after the writer is not let in to the others.
    assert_eq!(done(on(&cluster, &["lock", "--shared", "cat", "--try", "--", "true"])).code, 75);
    for reader in readers {
        go(&reader);
        let ended = reader.done();
        assert_eq!(ended.code, 3, "{}", ended.err);
        assert!(ended.err.contains("cat is held with token") && ended.err.contains("(shared)"));
    }
    let ended = finish(writer);
    assert_eq!((ended.code, ended.out.as_str()), (0, "ran\n"), "{}", ended.err);
}

#[tokio::test]
async fn of_three_commands_for_two_slots_the_third_waits_and_takes_the_slot_that_is_left() {
    let cluster = Cluster::start(1).await;
    let script = format!("echo $RINGFENCE_SLOT > $D/slot; {PATIENT}");
    let seat = || Lock::run(on(&cluster, &["lock", "--slots", "2"]), &["seat"], &script);
    let [first, second] = [seat(), seat()];
    let mut slots = [first.wrote("slot"), second.wrote("slot")];
    let third = seat();
    eventually("the third waits", || waiting(&cluster, "seat") == 1);
    let queue = done(on(&cluster, &["queue", "seat"])).out;
    assert!(queue.contains("\n1       a slot of 2   "), "{queue}");
    assert!(!third.has_written("slot"));
    let other = done(on(&cluster, &["lock", "--slots", "3", "seat", "--", "true"]));
    assert_eq!(other.code, 77);
    assert!(other.err.contains("CAPACITY_MISMATCH: seat is in use with 2 slots"), "{}", other.err);
    go(&second);
    assert_eq!(second.done().code, 3);
    assert_eq!(third.wrote("slot"), slots[1]);
    let free = done(on(&cluster, &["check", "seat", "3"])).out;
    assert_eq!(free, format!("token 3 of seat is current (slot {} of 2)\n", slots[1]));
    for lock in [first, third] {
        go(&lock);
        assert_eq!(lock.done().code, 3);
    }
    slots.sort();
    assert_eq!(slots, ["0", "1"]);
}

#[tokio::test]
async fn a_set_has_one_token_and_a_fence_for_each_name_in_order() {
    let cluster = Cluster::start(1).await;
    let script =
        "echo $RINGFENCE_NAME $RINGFENCE_TOKEN $RINGFENCE_FLOOR; echo \"$RINGFENCE_NAMES\";
        echo \"$RINGFENCE_FENCES\"; echo slot=$RINGFENCE_SLOT";
    let inside = ["lock", "-q", "--slots", "1", "s", "--"];
    let binary = env!("CARGO_BIN_EXE_ringfence");
    let around = [&inside[..], &[binary, "lock", "b", "a", "--", "sh", "-c", script]].concat();
    let ended = done(on(&cluster, &around));
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(ended.err, "ringfence: b, a are held with token 2\n");
    let lines: Vec<_> = ended.out.lines().collect();
    assert_eq!((&lines[..3], lines[4]), (["a 2 2", "a", "b"].as_slice(), "slot="));
    let mut fences: serde_json::Value = serde_json::from_str(lines[3]).unwrap();
    for fence in fences.as_array_mut().unwrap() {
        let cluster = fence.as_object_mut().unwrap().remove("cluster").unwrap();
        assert_eq!(cluster.as_str().unwrap().len(), 32);
    }
    let want = |name| json!({"resource": name, "slot": null, "token": 2, "floor": 2});
    assert_eq!(fences, json!([want("a"), want("b")]));
}

#[tokio::test]
async fn a_wait_for_several_says_which_of_them_is_in_the_way() {
    let cluster = Cluster::start(1).await;
    let holder = Lock::run(on(&cluster, &["lock"]), &["b"], PATIENT);
    holder.wrote("up");
    let tried = done(on(&cluster, &["lock", "a", "b", "--wait", "100ms", "--", "true"]));
    assert_eq!(tried.code, 75);
    assert!(tried.err.starts_with("ringfence: b is held with token 1 by host "), "{}", tried.err);
    assert!(tried.err.ends_with("; 0 waiting, not granted in 100ms\n"), "{}", tried.err);
    go(&holder);
    assert_eq!(holder.done().code, 3);
}

/// One after the other, so many commands under both names; each fails unless it is alone.
fn loops(commands: impl Fn() -> Child + Send + 'static) -> thread::JoinHandle<Vec<Done>> {
    thread::spawn(move || (0..15).map(|_| finish(commands())).collect())
}

#[tokio::test]
async fn scenario_g8_two_loops_that_name_two_resources_in_either_order_never_deadlock() {
    let cluster = Cluster::start(1).await;
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside").to_str().unwrap().to_owned();
    let under = |names: [&'static str; 2]| {
        let inside = inside.clone();
        let endpoints = cluster.endpoints().join(",");
        loops(move || {
            let script = format!("mkdir {inside} && rmdir {inside} && echo $RINGFENCE_TOKEN");
            let lock = ["--endpoints", &endpoints, "lock", "-q", "--wait", "60s"];
            let mut command = crate::run::ringfence(&lock);
            command.args(names).args(["--", "sh", "-c", &script]).spawn().unwrap()
        })
    };
    let both = [under(["a", "b"]), under(["b", "a"])].map(|ended| ended.join().unwrap());
    let mut tokens = vec![];
    for ended in both.iter().flatten() {
        assert_eq!((ended.code, ended.err.as_str()), (0, ""));
        tokens.push(ended.out.trim().parse::<u64>().unwrap());
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 30, "one token for each set: {tokens:?}");
}
