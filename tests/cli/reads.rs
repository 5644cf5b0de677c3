//! What is printed: JSON field names are promised, tables are for people.

use ringfence::wire::v1;
use serde_json::{Value, json};

use crate::authority::Authority;
use crate::run::{Lock, at, done, json, ringfence};

/// The names of the fields, in their order.
fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn get_shows_holder_and_queue() {
    let authority = Authority::start();
    let free = json(at(&authority, &["get", "job/7", "-o", "json"]));
    assert_eq!(
        free,
        json!({
            "resource": "job/7", "holders": [], "waiters": [], "waiting": 0, "slots": 0,
            "frozen": null, "closures": [], "index": 0,
        })
    );
    let said = done(at(&authority, &["get", "job/7"])).out;
    assert_eq!(said, "job/7 is free: nobody holds it or waits for it\n");
    let labels = [("host", "web-3"), ("pid", "12"), ("purpose", "a\u{1b}[2Jb")];
    authority.rival_with("job/7", &labels);
    let held = json(at(&authority, &["-o", "json", "get", "job/7"]));
    let holder = json!({
        "token": 1, "floor": 1, "mode": "exclusive", "phase": "active", "session": 1, "request": 1,
        "granted_at": {"index": 2, "ordinal": 0},
        "labels": {"host": "web-3", "pid": "12", "purpose": "a\u{1b}[2Jb"},
        "slot": null, "slots": 0, "value": "", "lock_delay_ms": 0, "barrier_ms": 0, "asked": null,
        "set": [],
    });
    assert_eq!(held["holders"], json!([holder]));
    let table = done(at(&authority, &["get", "job/7"])).out;
    let want = "\
STATE              TOKEN   SESSION   HOST    PID   PURPOSE          STARTED
held (exclusive)   1       1         web-3   12    a\\u{1b}[2Jb     -
";
    let squeezed = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(squeezed(&table), squeezed(want), "a terminal is not sent what it would obey");
}

#[test]
fn list_reads_all_pages_and_keeps_to_its_prefix() {
    let authority = Authority::start();
    for n in 0..2_500 {
        authority.rival(&format!("job/{n:04}"));
    }
    authority.rival("other");
    let all = json(at(&authority, &["list", "-o", "json"]));
    assert_eq!(fields(&all), ["index", "resources", "stale"]);
    let resources = all["resources"].as_array().unwrap();
    assert_eq!(resources.len(), 2_501);
    assert_eq!(
        fields(&resources[0]),
        ["closures", "frozen", "holders", "resource", "slots", "waiters", "waiting"]
    );
    assert_eq!(resources[2_500]["resource"], "other");
    let table = done(at(&authority, &["list", "job/"])).out;
    assert_eq!(table.lines().count(), 1 + 2_500);
    assert!(table.starts_with("NAME       STATE       TOKEN   WAITING   HOST"), "{table:.60}");
    assert!(
        table.ends_with("\njob/2499   exclusive   2500    0         -      -     -         -\n")
    );
    let none = done(at(&authority, &["list", "none/", "--stale"])).out;
    assert_eq!(none, "nothing is held or waited for under none/\n");
}

#[test]
fn check_answers_with_its_exit_code() {
    let authority = Authority::start();
    let token = authority.rival_with("job/7", &[]).to_string();
    let current = done(at(&authority, &["check", "job/7", &token]));
    assert_eq!((current.code, current.out.as_str()), (0, "token 1 of job/7 is current\n"));
    let stale = done(at(&authority, &["check", "job/7", "9"]));
    assert_eq!((stale.code, stale.out.as_str()), (1, "token 9 of job/7 is stale\n"));
    let answer = json(at(&authority, &["check", "job/7", "9", "-o", "json"]));
    let want =
        json!({"resource": "job/7", "token": 9, "current": false, "grant": null, "index": 2});
    assert_eq!(answer, want);
    let command = "\"$0\" check \"$RINGFENCE_NAME\" \"$RINGFENCE_TOKEN\"";
    let binary = env!("CARGO_BIN_EXE_ringfence");
    let inside = done(at(&authority, &["lock", "n", "--", "sh", "-c", command, binary]));
    assert_eq!((inside.code, inside.out.as_str()), (0, "token 2 of n is current\n"));
}

#[test]
fn sessions_are_listed_with_what_they_hold() {
    let authority = Authority::start();
    assert_eq!(done(at(&authority, &["sessions"])).out, "no session is live\n");
    let lock = Lock::start(&authority, &["n", "--ttl", "1m"], "echo > $D/up; sleep 600");
    lock.wrote("up");
    let answer = json(at(&authority, &["sessions", "-o", "json"]));
    let session = &answer["sessions"][0];
    assert_eq!(fields(session), ["grants", "labels", "session", "ttl_ms", "waits"]);
    assert_eq!((&session["ttl_ms"], &session["grants"]), (&json!(60_000), &json!(1)));
    let table = done(at(&authority, &["sessions"])).out;
    assert!(table.starts_with("SESSION   TTL   GRANTS   WAITS   HOST"), "{table}");
    assert!(table.contains("\n1         1m    1        0       "), "{table}");
}

#[test]
fn explain_says_in_words_who_holds_it_who_waits_what_happened_and_what_to_do() {
    let authority = Authority::start();
    authority.explains(screen());
    let told = done(at(&authority, &["explain", "job/7"]));
    assert_eq!((told.code, told.err.as_str()), (0, ""));
    crate::texts::compare("explain.txt", &told.out);
    let answer = json(at(&authority, &["explain", "job/7", "-o", "json"]));
    let lease = json!({
        "session": 12, "ttl_ms": 10_000, "ends_in_ms": 8_299, "barrier_left_ms": 0,
    });
    assert_eq!((&answer["leases"], &answer["index"]), (&json!([lease]), &json!(91)));
    assert_eq!(answer["events"][2]["kind"], "asked");
    assert_eq!(answer["holders"][0]["value"], "db-2:5432");
}

/// A resource about which there is much to say.
fn screen() -> v1::ExplainResponse {
    let at = |index| Some(v1::Revision { index, ordinal: 0 });
    let labels = |host: &str, pid: &str| {
        let labels = [("host", host), ("pid", pid), ("purpose", "report"), ("started", "10:00")];
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    };
    let note = || Some(v1::Note { actor: "alice".into(), reason: "web-3 goes down".into() });
    let (job, exclusive) = (|| vec!["job/7".to_owned()], v1::Mode::Exclusive.into());
    let event = |index, kind: v1::EventKind, session, token| v1::Event {
        at: at(index),
        kind: kind.into(),
        resources: job(),
        session,
        token,
        mode: exclusive,
        ..v1::Event::default()
    };
    let grant = v1::Grant {
        token: 41,
        floor: 41,
        mode: exclusive,
        session: 12,
        granted_at: at(77),
        labels: labels("web-3", "9"),
        value: b"db-2:5432".to_vec().into(),
        asked: Some(v1::Asked { at: at(90), within_ms: 30_000, note: note() }),
        ..v1::Grant::default()
    };
    let shared = v1::Mode::Shared.into();
    let alone = v1::Waiter {
        session: 80,
        mode: shared,
        labels: labels("web-4", "7"),
        ..Default::default()
    };
    let set = ["a", "job/7"].map(str::to_owned).into();
    let both = v1::Waiter { session: 83, set, labels: labels("web-5", "8"), ..Default::default() };
    let asked =
        v1::Event { within_ms: 30_000, note: note(), ..event(90, v1::EventKind::Asked, 12, 41) };
    let lease =
        v1::HolderLease { session: 12, ttl_ms: 10_000, ends_in_ms: 8_299, barrier_left_ms: 0 };
    v1::ExplainResponse {
        resource: Some(v1::ResourceView {
            holders: vec![grant],
            waiters: vec![alone, both],
            waiting: 2,
            ..v1::ResourceView::default()
        }),
        leases: vec![lease],
        events: vec![
            event(77, v1::EventKind::Granted, 12, 41),
            v1::Event { mode: shared, ..event(81, v1::EventKind::Queued, 80, 0) },
            asked,
        ],
        events_since: at(1),
        closures_left_ms: vec![],
        index: 91,
    }
}

fn member(node_id: u64, address: &str) -> v1::Member {
    let address = address.to_owned();
    v1::Member { node_id, address, voter: true, matched: 0, last_ack_ms: 0 }
}

fn report(node_id: u64, role: &str, members: &[v1::Member]) -> v1::StatusResponse {
    v1::StatusResponse {
        cluster_id: vec![0xab; 16].into(),
        node_id,
        version: "0.1.0".to_owned(),
        role: role.to_owned(),
        term: 4,
        leader_id: 1,
        committed: 90,
        applied: 90,
        last_log: 90,
        token: 41,
        members: members.to_vec(),
        ..v1::StatusResponse::default()
    }
}

#[test]
fn status_asks_the_members_too_and_is_1_with_advice_when_one_is_down() {
    let nodes = [Authority::start(), Authority::start()];
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let members = [
        member(1, &nodes[0].address),
        member(2, &nodes[1].address),
        member(3, &closed.to_string()),
    ];
    nodes[0].report(report(1, "leader", &members));
    nodes[1].report(v1::StatusResponse { applied: 88, ..report(2, "follower", &members) });
    let told = done(at(&nodes[1], &["status"]));
    assert_eq!(told.code, 1, "{}", told.err);
    let lines: Vec<&str> = told.out.lines().collect();
    assert_eq!(lines.len(), 6, "{}", told.out);
    assert!(lines[0].starts_with("NODE   ADDRESS"));
    assert!(lines[1].starts_with("1 ") && lines[1].contains("leader"));
    let squeezed = lines[2].split_whitespace().collect::<Vec<_>>();
    assert_eq!(squeezed, ["2", &nodes[1].address, "follower", "yes", "4", "1", "88", "2", "0.1.0"]);
    assert!(lines[3].contains("no answer"));
    assert!(lines[4].starts_with(&format!("cluster {}: 0 sessions", "ab".repeat(16))));
    let advice = format!(
        "problem: node 3 ({closed}) does not answer -> start or reach it: 0 more may fail before \
         nothing is granted"
    );
    assert_eq!(lines[5], advice);
}

#[test]
fn status_as_json_has_stable_names() {
    let node = Authority::start();
    node.report(report(1, "leader", &[member(1, &node.address)]));
    let answer = json(at(&node, &["status", "-o", "json"]));
    let names = [
        "cluster_id",
        "grants",
        "healthy",
        "leader",
        "nodes",
        "problems",
        "sessions",
        "token",
        "waits",
    ];
    assert_eq!(fields(&answer), names);
    assert_eq!(answer["healthy"], true);
    let leader = json!({"node_id": 1, "address": node.address, "term": 4, "quorum_ack_age_ms": 0});
    assert_eq!(answer["leader"], leader);
    let names = [
        "address",
        "applied",
        "committed",
        "error",
        "lag",
        "last_log",
        "leader_id",
        "node_id",
        "purged",
        "reachable",
        "role",
        "state_hash",
        "state_hash_index",
        "term",
        "version",
        "voter",
    ];
    assert_eq!(fields(&answer["nodes"][0]), names);
    assert_eq!(done(at(&node, &["status"])).code, 0);
}

#[test]
fn status_of_nobody_is_69_and_says_where_it_asked() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = closed.to_string();
    let told = done(ringfence(&["status", "--endpoints", &closed]));
    assert_eq!(told.code, 69);
    let advice = format!("problem: no node answers at {closed} -> start the nodes");
    assert!(told.out.contains(&advice), "{}", told.out);
}
