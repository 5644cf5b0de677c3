//! When the lease ends, or cannot be kept.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::authority::Authority;
use crate::run::{Lock, eventually, runs, sleep_until};

const TTL: Duration = Duration::from_secs(3);
const OPTIONS: [&str; 5] = ["job/7", "--ttl", "3s", "--grace", "600ms"];

/// Writes its own pid and that of a process it started, and when it was told to end,
/// but does not.
const STUBBORN: &str = "trap 'date +%s%N > $D/term' TERM; sleep 600 & echo $! > $D/inner;
    echo $$ > $D/pid; while :; do sleep 0.02; done";

#[test]
fn scenario_g1_in_the_dark_the_command_gets_term_and_kill_before_a_new_grant() {
    let authority = Authority::start();
    let lock = Lock::start(&authority, &OPTIONS, STUBBORN);
    let (command, inner) = (lock.pid("pid"), lock.pid("inner"));
    authority.falls_silent();
    let free_at = authority.free_at("job/7");
    let before = free_at.saturating_duration_since(Instant::now());
    let term = lock.wrote("term").parse::<u128>().unwrap();
    assert!(runs(command), "the grace is not over");
    // The sleep is never early: what runs now ran when a new grant was possible.
    sleep_until(free_at);
    assert!(!runs(command) && !runs(inner), "it runs beyond its lease");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(term < now.as_nanos() - 500_000_000, "half a second of grace at least");
    assert!(before > Duration::from_millis(500), "the test came too late: {before:?}");
    assert_eq!(authority.holder("job/7"), None);
    let ended = lock.done();
    assert_eq!(ended.code, 76);
    let told = "ringfence: job/7: the authority does not answer and the lease runs out; \
                SIGTERM is sent, SIGKILL follows in 600ms\n";
    assert!(ended.err.contains(told), "{}", ended.err);
}

#[test]
fn a_command_that_obeys_term_still_ends_in_76() {
    let authority = Authority::start();
    let obedient = "trap 'echo > $D/term; exit 0' TERM; echo > $D/up; while :; do sleep 0.02; done";
    let lock = Lock::start(&authority, &OPTIONS, obedient);
    lock.wrote("up");
    authority.falls_silent();
    assert_eq!(lock.done().code, 76);
}

#[test]
fn scenario_g2_when_the_wrapper_is_killed_all_of_the_command_dies_and_the_lease_runs_out() {
    let authority = Authority::start();
    let lock = Lock::start(&authority, &OPTIONS, STUBBORN);
    let (command, inner) = (lock.pid("pid"), lock.pid("inner"));
    lock.signal(Signal::SIGKILL);
    let killed = Instant::now();
    eventually("the command is dead", || !runs(command) && !runs(inner));
    assert!(authority.holder("job/7").is_some(), "nobody has released it");
    let free_at = authority.free_at("job/7");
    assert!(free_at <= killed + TTL, "the renewals have ended with the wrapper");
    sleep_until(free_at);
    assert_eq!(authority.holder("job/7"), None);
    assert!(!lock.has_written("term"));
}

#[test]
fn a_wrapper_that_is_stopped_does_not_let_its_command_outlive_the_lease() {
    let authority = Authority::start();
    let lock = Lock::start(&authority, &OPTIONS, STUBBORN);
    let (command, inner) = (lock.pid("pid"), lock.pid("inner"));
    lock.signal(Signal::SIGSTOP);
    lock.wrote("term");
    // Stopped, it renews nothing.
    sleep_until(authority.free_at("job/7"));
    assert!(!runs(command) && !runs(inner), "it runs beyond its lease");
    lock.signal(Signal::SIGCONT);
    assert_eq!(lock.done().code, 76);
}

#[test]
fn a_loss_that_is_told_is_term_at_once_and_kill_after_the_grace() {
    let authority = Authority::start();
    let options = ["job/7", "--ttl", "3s", "--grace", "1500ms"];
    for revoked in [false, true] {
        let lock = Lock::start(&authority, &options, STUBBORN);
        let (command, inner) = (lock.pid("pid"), lock.pid("inner"));
        if revoked {
            authority.revoke("job/7");
        } else {
            authority.end_session_of("job/7");
        }
        lock.wrote("term");
        let told = Instant::now();
        let ended = lock.done();
        let took = told.elapsed();
        assert!(!runs(command) && !runs(inner));
        assert_eq!(ended.code, 76);
        let what = if revoked { "grant" } else { "session" };
        let told = format!("job/7: the authority has ended the {what}; SIGTERM is sent");
        assert!(ended.err.contains(&told), "{}", ended.err);
        assert!(took > Duration::from_millis(1_000), "grace of {took:?}");
    }
    assert_eq!(authority.sessions(), 0);
}

#[test]
fn what_ignores_term_in_the_background_does_not_outlive_a_command_that_obeys() {
    let authority = Authority::start();
    let script =
        "(trap '' TERM; echo > $D/deaf; while :; do sleep 0.02; done) & echo $! > $D/inner;
        trap 'exit 0' TERM; while :; do sleep 0.02; done";
    let lock = Lock::start(&authority, &OPTIONS, script);
    let inner = lock.pid("inner");
    lock.wrote("deaf");
    authority.end_session_of("job/7");
    assert_eq!(lock.done().code, 76);
    eventually("it is dead", || !runs(inner));
}

#[test]
fn what_is_left_in_the_background_goes_on_after_an_end_of_its_own() {
    let authority = Authority::start();
    let script = "sleep 600 > /dev/null 2>&1 & echo $! > $D/inner";
    let lock = Lock::start(&authority, &OPTIONS, script);
    let inner = lock.pid("inner");
    let folder = lock.folder.path().to_owned();
    assert_eq!(lock.done().code, 0, "{}", folder.display());
    assert_eq!(authority.holder("job/7"), None);
    assert!(runs(inner));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(inner.cast_signed()), Signal::SIGKILL)
        .unwrap();
}

#[test]
fn renewals_keep_a_command_running_well_beyond_the_ttl() {
    let authority = Authority::start();
    let options = ["job/7", "--ttl", "1s", "--grace", "300ms"];
    let script = "trap 'echo > $D/term' TERM; sleep 4; echo done";
    let lock = Lock::start(&authority, &options, script);
    assert!(!lock.has_written("term"));
    let ended = lock.done();
    assert_eq!((ended.code, ended.out.as_str()), (0, "done\n"), "{}", ended.err);
}

#[test]
fn a_short_silence_is_survived() {
    let authority = Authority::start();
    let lock = Lock::start(
        &authority,
        &OPTIONS,
        "trap 'echo > $D/term' TERM; echo > $D/up; while :; do sleep 0.02; done",
    );
    lock.wrote("up");
    authority.falls_silent();
    std::thread::sleep(Duration::from_millis(800));
    authority.speaks();
    let free_at = authority.free_at("job/7");
    eventually("it is renewed", || authority.free_at("job/7") > free_at + TTL / 2);
    assert!(!lock.has_written("term"));
}
