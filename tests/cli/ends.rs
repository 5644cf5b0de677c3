//! How the resource is given back.

use std::time::{Duration, Instant};

use crate::authority::Authority;
use crate::run::{Lock, PATIENT, at, done, go, sleep_until};

#[test]
fn a_release_that_is_not_answered_is_told_and_the_code_passed_on() {
    let authority = Authority::start();
    let options = ["--timeout", "500ms", "job/7", "--ttl", "30s"];
    let lock = Lock::start(&authority, &options, PATIENT);
    lock.wrote("up");
    authority.falls_silent();
    go(&lock);
    let began = Instant::now();
    let ended = lock.done();
    assert_eq!(ended.code, 3);
    let told = "ringfence: job/7 is not released: no answer from the authority in time";
    assert!(ended.err.contains(told), "{}", ended.err);
    assert!(ended.err.ends_with("it is free 30s from now at most\n"), "{}", ended.err);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_lease_that_had_ended_unheard_is_76_whatever_the_command_says() {
    let authority = Authority::start();
    // The next renewal, which would tell, is a long time off.
    let lock = Lock::start(&authority, &["job/7", "--ttl", "1h"], PATIENT);
    lock.wrote("up");
    authority.end_session_of("job/7");
    go(&lock);
    let ended = lock.done();
    assert_eq!(ended.code, 76);
    assert!(ended.err.ends_with("its code is 3\n"), "{}", ended.err);
}

#[test]
fn the_next_one_gets_a_greater_token() {
    let authority = Authority::start();
    let token =
        |command: &[&str]| -> u64 { done(at(&authority, command)).out.trim().parse().unwrap() };
    let command = ["lock", "job/7", "--", "sh", "-c", "echo $RINGFENCE_TOKEN"];
    let first = token(&command);
    assert!(token(&command) > first);
}

#[test]
fn a_lock_under_a_lock_speaks_to_the_same_authority_and_has_its_own_fence() {
    let authority = Authority::start();
    let inner = "echo $RINGFENCE_NAME; ringfence=$0; \
                 $ringfence -q lock inner -- sh -c 'echo $RINGFENCE_NAME $RINGFENCE_TOKEN'";
    let binary = env!("CARGO_BIN_EXE_ringfence");
    let inner = inner.replace("-q lock", "lock -q");
    let ended = done(at(&authority, &["lock", "outer", "--", "sh", "-c", &inner, binary]));
    assert_eq!((ended.code, ended.out.as_str()), (0, "outer\ninner 2\n"), "{}", ended.err);
}

#[test]
fn a_free_resource_is_granted_at_once_after_a_lease_ran_out() {
    let authority = Authority::start();
    let lock = Lock::start(&authority, &["job/7", "--ttl", "1s"], "echo > $D/up; sleep 600");
    lock.wrote("up");
    lock.signal(nix::sys::signal::Signal::SIGKILL);
    sleep_until(authority.free_at("job/7"));
    assert_eq!(done(at(&authority, &["lock", "job/7", "--try", "--", "true"])).code, 0);
}
