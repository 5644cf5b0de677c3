//! Exit codes, messages and the environment of the command.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use ringfence::clock::BootMoment;
use ringfence::wire::reason::Reason;

use crate::authority::Authority;
use crate::run::{SOON, at, done, eventually, ringfence};

#[test]
fn scenario_g3_the_exit_code_of_the_command_is_passed_on() {
    let authority = Authority::start();
    let ended = done(at(&authority, &["lock", "n", "--", "sh", "-c", "echo out; exit 7"]));
    assert_eq!((ended.code, ended.out.as_str()), (7, "out\n"));
    assert_eq!(ended.err, "ringfence: n is held with token 1\n");
    let signalled = done(at(&authority, &["lock", "n", "--", "sh", "-c", "kill -USR1 $$"]));
    assert_eq!(signalled.code, 128 + 10);
    let quiet = done(at(&authority, &["lock", "-q", "n", "--", "true"]));
    assert_eq!((quiet.code, quiet.out.as_str(), quiet.err.as_str()), (0, "", ""));
}

#[test]
fn the_resource_is_released_and_the_session_closed_when_the_command_has_ended() {
    let authority = Authority::start();
    assert_eq!(done(at(&authority, &["lock", "job/7", "--ttl", "1h", "--", "true"])).code, 0);
    assert_eq!((authority.holder("job/7"), authority.sessions()), (None, 0));
}

#[test]
fn what_is_held_is_not_acquired_by_a_try_or_a_short_wait() {
    let authority = Authority::start();
    let labels = [("host", "web-3"), ("pid", "12"), ("purpose", "backup")];
    let token = authority.rival_with("job/7", &labels);
    let tried = done(at(&authority, &["lock", "job/7", "--try", "--", "echo", "no"]));
    assert_eq!((tried.code, tried.out.as_str()), (75, ""));
    let holder = format!("job/7 is held with token {token} by host web-3 pid 12 (backup)");
    assert_eq!(tried.err, format!("ringfence: {holder}; 0 waiting\n"));
    let began = Instant::now();
    let waited = done(at(&authority, &["lock", "job/7", "--wait", "300ms", "--", "echo", "no"]));
    assert_eq!((waited.code, waited.out.as_str()), (75, ""));
    assert!(waited.err.ends_with("; 0 waiting, not granted in 300ms\n"), "{}", waited.err);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300) && took < SOON, "{took:?}");
    assert_eq!((authority.holder("job/7"), authority.sessions()), (Some(token), 1));
}

#[test]
fn who_waits_is_told_for_whom_and_runs_when_it_is_free() {
    let authority = Authority::start();
    let token = authority.rival_with("job/7", &[("host", "web-3")]);
    let mut waiting = at(&authority, &["lock", "job/7", "--", "echo", "ran"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let told = format!(
        "waiting for job/7: held with token {token} by host web-3; 1 waiting, next in the queue"
    );
    assert_eq!(line, format!("ringfence: {told}\n"));
    authority.revoke("job/7");
    let ended = crate::run::finish(waiting);
    assert_eq!((ended.code, ended.out.as_str()), (0, "ran\n"));
}

#[test]
fn a_mistake_in_usage_is_64_and_says_what_is_wrong() {
    let authority = Authority::start();
    let cases: &[(&[&str], &str)] = &[
        (&["lock", "", "--", "true"], "resource must be"),
        (&["lock", "a\nb", "--", "true"], "resource must be"),
        (&["lock", "n"], "<COMMAND>"),
        (&["lock", "n", "true"], "<COMMAND>"),
        (&["lock", "a", "a", "--", "true"], "resources must be different names"),
        (&["lock", "a", "b", "--shared", "--", "true"], "--shared goes with one NAME"),
        (&["lock", "a", "b", "--slots", "2", "--", "true"], "--slots goes with one NAME"),
        (&["lock", "n", "--slots", "0", "--", "true"], "slots must be 1 to 65536"),
        (&["lock", "n", "--slots", "2", "--shared", "--", "true"], "cannot be used with"),
        (&["lock", "n", "--lock-delay", "61s", "--", "true"], "lock_delay_ms must be"),
        (&["lock", "n", "--on-ask", "END", "--", "true"], "such as TERM"),
        (&["elect", "n"], "<COMMAND>"),
        (&["elect", "n", "--observe", "--", "true"], "cannot be used with"),
        (&["watch"], "--prefix"),
        (&["watch", "n", "--all"], "cannot be used with"),
        (&["watch", "n", "--from", "soon"], "such as 77.1"),
        (&["revoke", "n", "--token", "0", "--reason", "x"], "token must be"),
        (&["revoke", "n", "--token", "1"], "--reason"),
        (&["freeze", "n", "--reason", " "], "--reason must say why"),
        (&["freeze", "n", "--reason", "x", "--actor", ""], "actor must be 1 to 128 bytes"),
        (&["thaw", "", "--token", "1", "--reason", "x"], "resource must be"),
        (&["ask", "n", "--token", "1", "--within", "0s", "--reason", "x"], "more than nothing"),
        (&["lock", "n", "--ttl", "10", "--", "true"], "say 500ms, 10s or 1m30s"),
        (&["lock", "n", "--ttl", "10s", "--grace", "6s", "--", "true"], "half of the ttl: 5s"),
        (&["lock", "n", "--ttl", "50ms", "--", "true"], "ttl_ms must be 100 to 86400000"),
        (&["lock", "n", "--label", "x", "--", "true"], "KEY=VALUE"),
        (&["lock", "n", "--try", "--wait", "1s", "--", "true"], "cannot be used with"),
        (&["--endpoints", "nowhere", "list"], "--endpoints nowhere: endpoint must be host:port"),
        (&["--timeout", "0s", "list"], "more than nothing"),
        (&["check", "n", "0"], "token must be"),
        (&["get", "a\u{7f}"], "resource must be"),
        (&["nonsense"], "unrecognized subcommand"),
        (&["warden", "--grace-ms", "1"], "started by `lock` only"),
    ];
    for (arguments, why) in cases {
        let ended = done(at(&authority, arguments));
        assert_eq!((ended.code, ended.out.as_str()), (64, ""), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(why), "{arguments:?}: {}", ended.err);
    }
    assert_eq!(authority.sessions(), 0);
}

#[test]
fn an_authority_that_is_not_there_or_silent_is_unreachable_within_the_timeout() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let silent = Authority::start();
    silent.falls_silent();
    for endpoint in [closed, silent.address.clone()] {
        let commands: [&[&str]; 4] =
            [&["lock", "n", "--", "true"], &["get", "n"], &["list"], &["check", "n", "1"]];
        for command in commands {
            let began = Instant::now();
            let mut arguments = vec!["--endpoints", &endpoint, "--timeout", "600ms"];
            arguments.extend(command);
            let ended = done(ringfence(&arguments));
            let took = began.elapsed();
            assert_eq!((ended.code, ended.out.as_str()), (69, ""), "{command:?}: {}", ended.err);
            assert!(ended.err.starts_with("ringfence: no answer from the authority in time"));
            assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
            assert!(took >= Duration::from_millis(600), "{took:?}");
            assert!(took < Duration::from_millis(5_000), "{command:?} took {took:?}");
        }
    }
}

#[test]
fn another_refusal_is_77_with_its_reason() {
    let authority = Authority::start();
    authority.refuse_acquires(Reason::QueueFull);
    let ended = done(at(&authority, &["lock", "n", "--", "echo", "no"]));
    assert_eq!((ended.code, ended.out.as_str()), (77, ""));
    assert_eq!(ended.err, "ringfence: n: QUEUE_FULL: as the script says\n");
    for (reason, why) in [
        (Reason::Frozen, "n: FROZEN: "),
        (Reason::Deadlock, "n: DEADLOCK: this wait would never end"),
        (Reason::CapacityMismatch, "n: CAPACITY_MISMATCH: "),
    ] {
        authority.refuse_acquires(reason);
        let ended = done(at(&authority, &["lock", "n", "--", "echo", "no"]));
        assert_eq!((ended.code, ended.out.as_str()), (77, ""));
        assert!(ended.err.starts_with(&format!("ringfence: {why}")), "{}", ended.err);
    }
}

#[test]
fn a_command_that_is_not_there_or_not_executable_gives_the_resource_back() {
    let authority = Authority::start();
    let missing = done(at(&authority, &["lock", "-q", "n", "--", "/nowhere/at-all"]));
    assert_eq!(missing.code, 127, "{}", missing.err);
    assert!(missing.err.starts_with("ringfence: cannot run /nowhere/at-all: No such file"));
    let plain = tempfile::NamedTempFile::new().unwrap();
    let plain = plain.path().to_str().unwrap();
    assert_eq!(done(at(&authority, &["lock", "-q", "n", "--", plain])).code, 126);
    assert_eq!((authority.holder("n"), authority.sessions()), (None, 0));
}

#[test]
fn the_command_is_given_its_fence_and_until_when_it_is_safe() {
    let authority = Authority::start();
    authority.rival("other");
    let before = BootMoment::now();
    let ended = done(at(&authority, &["lock", "job/7", "--ttl", "20s", "--", "env"]));
    let after = BootMoment::now();
    let environment: BTreeMap<&str, &str> =
        ended.out.lines().filter_map(|line| line.split_once('=')).collect();
    assert_eq!(environment["RINGFENCE_TOKEN"], "2");
    assert_eq!(environment["RINGFENCE_FLOOR"], "2");
    assert_eq!(environment["RINGFENCE_NAME"], "job/7");
    assert_eq!(environment["RINGFENCE_CLUSTER"], "ab".repeat(16));
    assert_eq!(environment["RINGFENCE_TTL_MS"], "20000");
    assert_eq!(environment["RINGFENCE_ENDPOINTS"], authority.address);
    assert!(environment["RINGFENCE_SESSION"].parse::<u64>().is_ok());
    let safe_until = environment["RINGFENCE_SAFE_UNTIL_BOOTTIME_NS"].parse().unwrap();
    let safe_until = BootMoment::from_nanos(safe_until);
    // The allowance and the margin are off.
    let ttl = Duration::from_millis(20_000 - 200 - 400);
    assert!(safe_until >= before.plus(ttl), "{safe_until:?} {before:?}");
    assert!(safe_until <= after.plus(ttl), "{safe_until:?} {after:?}");
    let shown = environment["RINGFENCE_SAFE_UNTIL"];
    assert!(shown.len() == 20 && shown.ends_with('Z'), "{shown}");
}

#[test]
fn operators_see_who_holds_it_and_not_its_arguments() {
    let authority = Authority::start();
    let script = "echo; cat";
    let options = ["lock", "n", "--label", "team=db", "--", "/bin/sh", "-c", script, "secret"];
    let mut command = at(&authority, &options);
    let mut wrapper = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    eventually("it is held", || authority.holder("n").is_some());
    let labels = authority.labels_of("n");
    assert_eq!((labels["purpose"].as_str(), labels["team"].as_str()), ("sh", "db"));
    assert_eq!(labels["pid"], wrapper.id().to_string());
    assert!(labels["started"].ends_with('Z') && !labels["host"].is_empty());
    assert!(labels.values().all(|value| !value.contains("secret")), "{labels:?}");
    drop(wrapper.stdin.take());
    assert_eq!(crate::run::finish(wrapper).code, 0);
}
