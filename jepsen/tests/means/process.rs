//! Processes: paused, continued, killed.

use std::fs;
use std::thread;

use ringfence_jepsen::means::process::{Process, Spec};
use ringfence_jepsen::means::subject::Subject;
use ringfence_jepsen::means::{Run, proc};

use super::{MS, output, shell, start, until};

fn used(process: &Process) -> u64 {
    proc::stat(process.pid()).unwrap().used
}

#[test]
fn a_paused_process_does_nothing_until_it_goes_on() {
    let (run, _) = start();
    let mut process = Process::start(&run, shell(&run, "n1", "while :; do :; done")).unwrap();
    until("it uses CPU", || used(&process) > 2);
    process.pause().unwrap();
    assert!(process.is_paused());
    let before = used(&process);
    thread::sleep(MS(300));
    assert_eq!(used(&process), before);
    process.resume().unwrap();
    assert!(!process.is_paused());
    until("it uses CPU again", || used(&process) > before);
}

#[test]
fn a_paused_subject_answers_only_when_it_goes_on() {
    let (run, program) = start();
    let mut subject = Subject::start(&run, program, None).unwrap();
    let before = subject.ask("clocks").unwrap();
    subject.process.pause().unwrap();
    subject.tell("clocks").unwrap();
    thread::sleep(MS(300));
    subject.process.resume().unwrap();
    let after = subject.answer().unwrap();
    // Its clocks have gone on meanwhile.
    assert!(after[3] - before[3] >= 300_000_000, "{before:?} {after:?}");
}

#[test]
fn a_kill_ends_a_paused_process_with_all_that_it_has_started() {
    let (run, _) = start();
    let script = "sleep 1000 & sleep 1000 & wait";
    let mut process = Process::start(&run, shell(&run, "n1", script)).unwrap();
    until("it has started two", || proc::started_for(run.id()).len() == 3);
    process.pause().unwrap();
    let status = process.kill().unwrap();
    assert_eq!(status.to_string(), "signal: 9 (SIGKILL)");
    until("all three are gone", || proc::started_for(run.id()).is_empty());
    assert_eq!(process.kill().unwrap(), status, "a second kill has nothing to do");
    let error = process.pause().unwrap_err().to_string();
    assert!(error.contains("n1 has ended"), "{error}");
}

#[test]
fn a_process_outlives_the_thread_that_asked_for_it() {
    let (run, _) = start();
    let ask = |run: &std::sync::Arc<Run>| Process::start(run, shell(run, "n1", "sleep 1000"));
    let mut process = thread::scope(|scope| scope.spawn(|| ask(&run)).join()).unwrap().unwrap();
    thread::sleep(MS(200));
    assert_eq!(process.ended().unwrap(), None);
}

#[test]
fn what_a_process_says_is_in_its_log_over_all_its_starts() {
    let (run, _) = start();
    for word in ["one", "two"] {
        let script = "echo said $WORD; echo warned $WORD >&2";
        let spec = Spec { environment: vec![("WORD", word.into())], ..shell(&run, "n1", script) };
        output(&run, "n1", Process::start(&run, spec).unwrap());
    }
    let log = fs::read_to_string(run.folder().join("n1.log")).unwrap();
    assert_eq!(log, "said one\nwarned one\nsaid two\nwarned two\n");
}

#[test]
fn a_process_that_is_asked_to_may_end_by_itself() {
    let (run, _) = start();
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let mut process = Process::start(&run, shell(&run, "n1", script)).unwrap();
    until("it is ready", || {
        fs::read_to_string(run.folder().join("n1.log")).is_ok_and(|log| log == "ready\n")
    });
    process.terminate().unwrap();
    until("it has ended", || process.ended().unwrap().is_some());
    assert_eq!(process.ended().unwrap().unwrap().code(), Some(7));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let (run, _) = start();
    let spec = Spec { program: "/no/such/program".as_ref(), ..shell(&run, "n1", "") };
    let error = format!("{:#}", Process::start(&run, spec).unwrap_err());
    assert!(error.contains("n1: /no/such/program"), "{error}");
}
