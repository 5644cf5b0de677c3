//! Signals that the wrapper is sent.

use std::io::Write;
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::authority::Authority;
use crate::run::{Lock, at, eventually, finish};

const ALL: &str = "for s in INT HUP QUIT USR1 USR2 WINCH; do trap \"echo $s > $D/$s\" $s; done;
    trap 'echo > $D/TERM; exit 42' TERM; echo > $D/up; while :; do sleep 0.02; done";

#[test]
fn signals_are_passed_on_to_the_command_which_decides() {
    let authority = Authority::start();
    let lock = Lock::start(&authority, &["n", "--ttl", "30s"], ALL);
    lock.wrote("up");
    for signal in [
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGWINCH,
    ] {
        lock.signal(signal);
        lock.wrote(signal.as_str().trim_start_matches("SIG"));
    }
    lock.signal(Signal::SIGTERM);
    lock.wrote("TERM");
    assert_eq!(lock.done().code, 42);
    assert_eq!(authority.holder("n"), None);
}

#[test]
fn a_command_that_a_passed_on_signal_ends_is_128_and_its_number() {
    let authority = Authority::start();
    let lock = Lock::start(&authority, &["n", "--ttl", "30s"], "echo > $D/up; sleep 600; exit 1");
    lock.wrote("up");
    lock.signal(Signal::SIGTERM);
    // The shell and what it runs: the signal goes to the whole group.
    assert_eq!(lock.done().code, 128 + 15);
    assert_eq!(authority.holder("n"), None);
}

#[test]
fn who_is_interrupted_while_waiting_leaves_the_queue() {
    let authority = Authority::start();
    let token = authority.rival("n");
    let lock = Lock::start(&authority, &["n", "--ttl", "1h"], "echo no");
    eventually("it waits", || authority.waiting("n") == 1);
    lock.signal(Signal::SIGINT);
    let ended = lock.done();
    assert_eq!((ended.code, ended.out.as_str()), (128 + 2, ""));
    eventually("it is gone", || authority.sessions() == 0 && authority.waiting("n") == 0);
    assert_eq!(authority.holder("n"), Some(token));
}

#[test]
fn what_was_ignored_from_the_start_stays_ignored() {
    let authority = Authority::start();
    let binary = env!("CARGO_BIN_EXE_ringfence");
    let folder = tempfile::tempdir().unwrap();
    let script =
        "trap '' HUP; exec \"$0\" lock n -- sh -c 'kill -HUP $PPID; kill -HUP $$; echo on'";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, binary]).env("RINGFENCE_ENDPOINTS", &authority.address);
    command.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = finish(command.spawn().unwrap());
    assert_eq!((ended.code, ended.out.as_str()), (0, "on\n"), "{}", ended.err);
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let authority = Authority::start();
    for n in 0..3_000 {
        authority.rival(&format!("job/{n}"));
    }
    let mut list = at(&authority, &["list"]).spawn().unwrap();
    drop(list.stdout.take());
    let ended = finish(list);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
}

#[test]
fn the_command_has_the_terminal() {
    let authority = Authority::start();
    let lock = "lock -q n -- sh -c 'read -r word; echo got $word; exit 5'";
    let lock = format!("{} {lock}", env!("CARGO_BIN_EXE_ringfence"));
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &lock, "/dev/null"]).env("RINGFENCE_ENDPOINTS", &authority.address);
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut script = script.spawn().unwrap();
    let mut keyboard = script.stdin.take().unwrap();
    keyboard.write_all(b"hello\n").unwrap();
    let ended = finish(script);
    assert!(ended.out.contains("got hello"), "{ended:?}");
    assert_eq!(ended.code, 5);
}
