//! What administrators do by hand, against real nodes.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::run::{Done, Lock, PATIENT, done, eventually, finish, go, json, on, runs};

fn run(cluster: &Cluster, arguments: &[&str]) -> Done {
    done(on(cluster, arguments))
}

/// The fence without its cluster, which is drawn at random.
fn bare(fence: &Value) -> Value {
    let mut fence = fence.clone();
    let cluster = fence.as_object_mut().unwrap().remove("cluster").unwrap();
    assert_eq!(cluster.as_str().unwrap().len(), 32);
    fence
}

fn held(cluster: &Cluster, ttl: &str, options: &[&str]) -> Lock {
    let lock = Lock::run(on(cluster, &["lock", "--ttl", ttl]), options, PATIENT);
    lock.wrote("up");
    lock
}

#[tokio::test]
async fn scenario_g5_a_break_needs_the_exact_token_and_cannot_hit_a_newer_holder() {
    let cluster = Cluster::start(1).await;
    let crashed = held(&cluster, "1m", &["job/7"]);
    let pid = crashed.wrapper.as_ref().unwrap().id();
    crashed.signal(Signal::SIGKILL);
    eventually("it is dead", || !runs(pid));
    let told = run(&cluster, &["explain", "job/7"]).out;
    assert!(told.starts_with("job/7 is held by host "), "{told}");
    let owner = format!(" pid {pid} (sh, session s");
    assert!(told.contains(&owner) && told.contains("with token 1, exclusive, active"), "{told}");
    assert!(told.contains("; its lease ends in ") && told.contains("\n  started 20"), "{told}");
    let advice = "ringfence revoke job/7 --token 1 --reason …\n";
    assert!(told.ends_with(advice), "{told}");

    let guessed = run(&cluster, &["revoke", "job/7", "--token", "9", "--reason", "a guess"]);
    assert_eq!((guessed.code, guessed.out.as_str()), (77, ""));
    assert!(guessed.err.contains("nothing was changed"), "{}", guessed.err);
    assert!(guessed.err.contains("It is held with token 1 by host "), "{}", guessed.err);
    let exact = ["revoke", "job/7", "--token", "1", "--reason", "web-3 is gone"];
    let revoked = run(&cluster, &exact);
    assert_eq!((revoked.code, revoked.err.as_str()), (0, ""));
    assert!(revoked.out.starts_with("the grant on job/7 with token 1 has ended\n"));
    assert!(revoked.out.contains("\njob/7      -      2       2\n"), "{}", revoked.out);
    assert!(revoked.out.contains(", 'job/7', NULL, 2, 2);\n"), "{}", revoked.out);

    let next = held(&cluster, "1m", &["job/7"]);
    let late = run(&cluster, &exact);
    assert_eq!(late.code, 77);
    assert!(late.err.contains("It is held with token 3 by host "), "{}", late.err);
    assert_eq!(run(&cluster, &["check", "job/7", "3"]).code, 0, "the newer holder is left alone");
    go(&next);
    assert_eq!(next.done().code, 3);
}

#[tokio::test]
async fn scenario_g6_who_is_asked_ends_in_time_and_the_successor_starts_only_then() {
    let cluster = Cluster::start(1).await;
    // Told to end, it finishes the write that is under way.
    let writing = "trap 'sleep 0.5; echo > $D/written; exit 0' TERM; echo > $D/up;
        while :; do sleep 0.02; done";
    let options = ["job/7", "--ttl", "2s", "--on-ask", "TERM"];
    let holder = Lock::run(on(&cluster, &["lock"]), &options, writing);
    holder.wrote("up");
    let written = holder.folder.path().join("written").to_str().unwrap().to_owned();
    let next = ["lock", "job/7", "--", "test", "-e", &written];
    let next = on(&cluster, &next).spawn().unwrap();
    let waiting = || json(on(&cluster, &["queue", "job/7", "-o", "json"]))["waiting"] == 1;
    eventually("the next one waits", waiting);
    let ask = ["ask", "job/7", "--token", "1", "--within", "30s", "--actor", "alice", "--reason"];
    let asked = run(&cluster, &[&ask[..], &["cutover"]].concat());
    assert_eq!(asked.code, 0, "{}", asked.err);
    assert!(asked.out.starts_with("the holder of job/7 with token 1 is asked at "));
    assert!(asked.out.ends_with("ringfence revoke job/7 --token 1 --reason …\n"), "{}", asked.out);
    let successor = finish(next);
    assert_eq!(successor.code, 0, "the write was open: {}", successor.err);
    let ended = holder.done();
    assert_eq!(ended.code, 0, "it ended by itself: {}", ended.err);
    let told = "ringfence: job/7: alice asks for it within 30s, until 20";
    assert!(ended.err.contains(told), "{}", ended.err);
    assert!(ended.err.contains(": cutover; SIGTERM is sent to the command\n"), "{}", ended.err);

    let answer = json(on(&cluster, &["explain", "job/7", "-o", "json"]));
    let events = answer["events"].as_array().unwrap();
    let of = |kind: &str, token: u64| {
        events.iter().position(|event| event["kind"] == kind && event["token"] == token).unwrap()
    };
    let order = [of("granted", 1), of("asked", 1), of("ended", 1), of("granted", 2)];
    assert!(order.is_sorted(), "{events:?}");
    assert_eq!(events[of("ended", 1)]["cause"], "released");
    let stale = run(&cluster, &[&ask[..], &["again"]].concat());
    assert_eq!(stale.code, 77, "{}", stale.err);
}

#[tokio::test]
async fn who_is_asked_in_vain_is_revoked_when_the_time_is_over() {
    let cluster = Cluster::start(1).await;
    let options = ["job/7", "--ttl", "2s", "--grace", "100ms"];
    let deaf = Lock::run(on(&cluster, &["lock"]), &options, PATIENT);
    deaf.wrote("up");
    let ask = ["ask", "job/7", "--token", "1", "--within", "3s", "--reason", "now"];
    let asked = run(&cluster, &[&ask[..], &["--revoke-after"]].concat());
    assert_eq!(asked.code, 0, "{}", asked.err);
    assert!(asked.err.contains("job/7: not given back in time"), "{}", asked.err);
    assert!(asked.out.starts_with("the grant on job/7 with token 1 has ended\nRESOURCE"));
    let ended = deaf.done();
    assert_eq!(ended.code, 76, "{}", ended.err);
    assert!(ended.err.contains(": now; the command goes on, for there is no --on-ask\n"));

    // Given back in time, nothing is revoked.
    let ready = ["job/7", "--ttl", "2s", "--on-ask", "USR1"];
    let script = "trap 'exit 5' USR1; echo > $D/up; while :; do sleep 0.02; done";
    let ready = Lock::run(on(&cluster, &["lock"]), &ready, script);
    ready.wrote("up");
    let ask = ["ask", "job/7", "--token", "3", "--within", "1m", "--reason", "now", "-o", "json"];
    let answer = json(on(&cluster, &[&ask[..], &["--revoke-after"]].concat()));
    assert_eq!((&answer["ended"], &answer["fences"]), (&json!(true), &json!([])));
    assert_eq!(ready.done().code, 5);
}

#[tokio::test]
async fn what_is_frozen_is_closed_to_all_until_exactly_this_freeze_is_over() {
    let cluster = Cluster::start(1).await;
    let holder = held(&cluster, "2s", &["db"]);
    let by = ["--actor", "alice", "--reason", "move to db-2"];
    let freeze = [&["freeze", "db", "-o", "json"], &by[..]].concat();
    let frozen = json(on(&cluster, &freeze));
    let want = json!({"resource": "db", "slot": null, "token": 2, "floor": 2});
    assert_eq!(bare(&frozen["fence"]), want);
    eventually("the holder knows", || !runs(holder.wrapper.as_ref().unwrap().id()));
    assert_eq!(holder.done().code, 76);

    let again = run(&cluster, &freeze);
    assert_eq!(again.code, 77);
    assert!(again.err.contains("FROZEN: db is frozen"), "{}", again.err);
    let tried = run(&cluster, &["lock", "db", "--try", "--", "true"]);
    assert_eq!(tried.code, 77, "{}", tried.err);
    let by_alice = "frozen by alice since ";
    for shown in [&["get", "db"][..], &["explain", "db"], &["queue", "db"]] {
        let out = run(&cluster, shown).out;
        assert!(out.contains(by_alice) && out.contains("token 2: move to db-2"), "{out}");
    }
    let list = run(&cluster, &["list"]).out;
    assert!(list.contains("\ndb     frozen   -       0  "), "{list}");
    let waiter = on(&cluster, &["lock", "db", "--", "echo", "ran"]).spawn().unwrap();
    let waiting = || json(on(&cluster, &["queue", "db", "-o", "json"]))["waiting"] == 1;
    eventually("it waits", waiting);

    let wrong = run(&cluster, &["thaw", "db", "--token", "1", "--reason", "done"]);
    assert_eq!(wrong.code, 77);
    assert!(wrong.err.contains("nothing was changed") && wrong.err.contains(by_alice));
    let thawed = run(&cluster, &["thaw", "db", "--token", "2", "--reason", "done"]);
    assert_eq!(thawed.code, 0, "{}", thawed.err);
    assert!(thawed.out.starts_with("db is open again since "), "{}", thawed.out);
    let ran = finish(waiter);
    assert_eq!((ran.code, ran.out.as_str()), (0, "ran\n"), "{}", ran.err);
}

#[tokio::test]
async fn a_slot_that_is_no_more_has_a_fence_and_is_not_granted_again() {
    let cluster = Cluster::start(1).await;
    let none = run(&cluster, &["resize", "seat", "--slots", "2", "--reason", "x"]);
    assert_eq!(none.code, 77);
    assert!(none.err.contains("nobody holds or awaits a slot of seat. It is free"), "{}", none.err);
    let seat = || held(&cluster, "1m", &["seat", "--slots", "2"]);
    let [first, second] = [seat(), seat()];
    let resize = ["resize", "seat", "--slots", "1", "--reason", "one less", "-o", "json"];
    let resized = json(on(&cluster, &resize));
    assert_eq!((&resized["slots"], &resized["token"]), (&json!(1), &json!(3)));
    assert_eq!((&resized["removed_from"], &resized["removed_to"]), (&json!(1), &json!(2)));
    let want = json!({"resource": "seat", "slot": 1, "token": 3, "floor": 1});
    assert_eq!(bare(&resized["removed"][0]), want);
    let script = ["sh", "-c", "echo $RINGFENCE_SLOT"];
    let third = [&["lock", "--slots", "1", "seat", "--"], &script[..]].concat();
    let third = on(&cluster, &third).spawn().unwrap();
    let waiting = || json(on(&cluster, &["queue", "seat", "-o", "json"]))["waiting"] == 1;
    eventually("it waits", waiting);
    go(&second);
    assert_eq!(second.done().code, 3);
    assert!(waiting(), "slot 1 is no more");
    go(&first);
    assert_eq!(first.done().code, 3);
    let ran = finish(third);
    assert_eq!((ran.code, ran.out.as_str()), (0, "0\n"), "{}", ran.err);
}
