//! Watches and elections, against real nodes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::run::{Done, Lock, PATIENT, SOON, done, eventually, finish, go, json, on};

/// A command that goes on printing lines. Killed when dropped.
struct Stream {
    child: Option<Child>,
    lines: Receiver<String>,
}

impl Stream {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (line, lines) = mpsc::channel();
        // It ends with the command.
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|text| line.send(text))
        });
        Self { child: Some(child), lines }
    }

    fn line(&mut self) -> String {
        self.lines.recv_timeout(SOON).expect("it goes on, and soon")
    }

    fn object(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    /// The next object that is not about progress.
    fn news(&mut self) -> Value {
        loop {
            let object = self.object();
            if object["type"] != "progress" {
                return object;
            }
        }
    }

    /// Ctrl-C.
    fn interrupt(mut self) -> Done {
        let child = self.child.take().unwrap();
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
        finish(child)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[tokio::test]
async fn a_watch_tells_the_state_then_each_event_and_goes_on_from_a_revision() {
    let cluster = Cluster::start(1).await;
    let holder = Lock::run(on(&cluster, &["lock", "--value", "v1"]), &["job/7"], PATIENT);
    holder.wrote("up");
    let mut watch = Stream::start(on(&cluster, &["watch", "job/7", "-o", "json"]));
    let state = watch.news();
    assert_eq!((&state["type"], &state["last"]), (&json!("state"), &json!(true)));
    let grant = &state["resources"][0]["holders"][0];
    assert_eq!((&grant["token"], &grant["value"]), (&json!(1), &json!("v1")));
    assert_eq!(done(on(&cluster, &["lock", "other", "--", "true"])).code, 0);
    go(&holder);
    assert_eq!(holder.done().code, 3);
    assert_eq!(done(on(&cluster, &["lock", "job/7", "--", "true"])).code, 0);
    let told: Vec<Value> = (0..3).map(|_| watch.news()).collect();
    let short: Vec<_> = told.iter().map(|e| (e["kind"].as_str().unwrap(), &e["token"])).collect();
    assert_eq!(short, [("ended", &json!(1)), ("granted", &json!(3)), ("ended", &json!(3))]);
    assert_eq!((&told[0]["cause"], &told[1]["mode"]), (&json!("released"), &json!("exclusive")));
    assert_eq!(told[1]["resources"], json!(["job/7"]));
    let ended = watch.interrupt();
    assert_eq!(ended.code, 0);
    assert!(ended.err.contains("to go on from there: --from "), "{}", ended.err);

    let at = &told[0]["at"];
    let from = format!("{}.{}", at["index"], at["ordinal"]);
    let mut rest = Stream::start(on(&cluster, &["watch", "job/7", "--from", &from]));
    let (granted, over) = (rest.line(), rest.line());
    assert!(granted.contains("  job/7  granted to s"), "{granted}");
    assert!(granted.ends_with(" with token 3 (exclusive)"), "{granted}");
    assert!(over.ends_with(" ended: its holder gave it back"), "{over}");
    // The time of receipt comes first.
    assert!(granted.starts_with("20") && granted.as_bytes()[19] == b'Z', "{granted}");
}

#[tokio::test]
async fn a_watch_on_everything_tells_sessions_too_and_a_prefix_only_its_names() {
    let cluster = Cluster::start(1).await;
    let mut all = Stream::start(on(&cluster, &["watch", "--all", "-o", "json"]));
    let mut some = Stream::start(on(&cluster, &["watch", "--prefix", "job/", "-o", "json"]));
    assert_eq!(all.news()["resources"], json!([]));
    assert_eq!(some.news()["resources"], json!([]));
    for name in ["a", "job/7"] {
        assert_eq!(done(on(&cluster, &["lock", name, "--", "true"])).code, 0);
    }
    let kinds: Vec<_> = (0..8).map(|_| all.news()["kind"].as_str().unwrap().to_owned()).collect();
    let one = ["session_opened", "granted", "ended", "session_ended"];
    assert_eq!(kinds, [one, one].concat());
    let told = [some.news(), some.news()];
    assert_eq!(told.map(|event| event["resources"].clone()), [json!(["job/7"]), json!(["job/7"])]);
}

#[tokio::test]
async fn events_that_are_no_longer_kept_are_said_to_be_compacted() {
    let cluster = Cluster::start_with(1, &["--events-max", "2"]).await;
    for _ in 0..2 {
        assert_eq!(done(on(&cluster, &["lock", "n", "--", "true"])).code, 0);
    }
    let ended = done(on(&cluster, &["watch", "--all", "--from", "2"]));
    assert_eq!((ended.code, ended.out.as_str()), (77, ""));
    let told = "ringfence: COMPACTED: the events after revision 2 are no longer kept, so some were \
                missed. Watch anew, without --from";
    assert!(ended.err.starts_with(told), "{}", ended.err);
}

#[tokio::test]
async fn a_watch_whose_reader_has_gone_ends_quietly_also_when_nothing_happens() {
    let cluster = Cluster::start(1).await;
    let holder = Lock::run(on(&cluster, &["lock"]), &["job/7"], PATIENT);
    holder.wrote("up");
    for command in [&["watch", "--all"][..], &["elect", "job/7", "--observe"]] {
        let mut child = on(&cluster, command).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains("with token 1"), "{line}");
        drop(reader);
        let ended = finish(child);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(!ended.err.contains("pipe"), "{}", ended.err);
    }
}

#[tokio::test]
async fn who_observes_an_election_sees_each_leader_with_its_value_and_no_leader() {
    let cluster = Cluster::start(1).await;
    let mut seen = Stream::start(on(&cluster, &["elect", "e", "--observe", "-o", "json"]));
    let mut lines = Stream::start(on(&cluster, &["elect", "e", "--observe"]));
    assert_eq!(seen.object(), json!({"leader": null}));
    assert!(lines.line().ends_with("Z  no leader"));
    let candidate = |value: &str| {
        Lock::run(on(&cluster, &["elect", "--value", value]), &["e", "--ttl", "1m"], PATIENT)
    };
    let first = candidate("db-1:5432");
    first.wrote("up");
    let leader = seen.object()["leader"].clone();
    assert_eq!((&leader["token"], &leader["value"]), (&json!(1), &json!("db-1:5432")));
    assert_eq!(leader["labels"]["purpose"], "sh");
    let line = lines.line();
    assert!(line.ends_with(" leads with token 1, shows db-1:5432"), "{line}");
    let second = candidate("db-2:5432");
    let waiting = || json(on(&cluster, &["queue", "e", "-o", "json"]))["waiting"] == 1;
    eventually("the second is a candidate", waiting);
    assert!(!second.has_written("up"));
    go(&first);
    assert_eq!(first.done().code, 3);
    second.wrote("up");
    // Whether nobody led for a moment is not promised to be seen; that she leads is.
    let mut leader = seen.object()["leader"].clone();
    if leader.is_null() {
        leader = seen.object()["leader"].clone();
    }
    assert_eq!((&leader["token"], &leader["value"]), (&json!(2), &json!("db-2:5432")));
    let tried = done(on(&cluster, &["elect", "e", "--try", "--", "true"]));
    assert_eq!(tried.code, 75);
    assert!(tried.err.contains("e is held with token 2"), "{}", tried.err);
    go(&second);
    assert_eq!(second.done().code, 3);
    assert_eq!(seen.object(), json!({"leader": null}));
    assert_eq!(seen.interrupt().code, 0);
}
