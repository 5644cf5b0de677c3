//! Clocks and disk errors of one process.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_jepsen::means::Run;
use ringfence_jepsen::means::process::{Process, Spec};
use ringfence_jepsen::means::shim::{DiskError, RATE_MAX_PPM, Shim, library};
use ringfence_jepsen::means::subject::{Subject, WAIT_BY_WALL, WAITS};

use super::{MS, output, shell, start, until};

const EIO: i64 = libc::EIO as i64;
const ENOSPC: i64 = libc::ENOSPC as i64;
const HOUR_NS: i64 = 3_600_000_000_000;

fn subject() -> (Shim, Subject, Arc<Run>) {
    let (run, program) = start();
    let shim = Shim::make(&run, "subject", run.folder()).unwrap();
    let subject = Subject::start(&run, program, Some(&shim)).unwrap();
    (shim, subject, run)
}

/// How long the subject took for each wait of so many ms, by its own monotonic clock.
fn told_waits(subject: &mut Subject, ms: u64) -> Vec<Duration> {
    let told = subject.ask(&format!("waits {ms}")).unwrap();
    assert_eq!(told.len(), WAITS);
    told.iter().map(|nanos| Duration::from_nanos(u64::try_from(*nanos).unwrap())).collect()
}

/// Whatever the offsets are: no wait ends early, which a runtime's timers may by a millisecond,
/// and none hangs. A busy machine ends any wait late.
#[track_caller]
fn all_take_200_ms(subject: &mut Subject) {
    let told = told_waits(subject, 200);
    assert!(told.iter().all(|took| (MS(198)..MS(1_000)).contains(took)), "{told:?}");
}

#[test]
fn without_faults_clocks_are_right_and_waits_end_in_time() {
    let (_shim, mut subject, run) = subject();
    let plain = Subject::start_in(&run, super::jepsen(), None, run.folder());
    let real = plain.unwrap().ask("clocks").unwrap();
    let seen = subject.ask("clocks").unwrap();
    for clock in [0, 2, 3] {
        assert!((0..5_000_000_000).contains(&(seen[clock] - real[clock])), "{seen:?} {real:?}");
    }
    all_take_200_ms(&mut subject);
}

#[test]
fn a_wake_is_not_taken_for_a_wait() {
    let (shim, mut subject, _run) = subject();
    shim.set_origin(Duration::from_secs(1));
    assert_eq!(subject.ask("wake").unwrap(), [0]);
}

#[test]
fn a_step_of_the_wall_clock_moves_no_other_clock_and_no_wait() {
    let (shim, mut subject, _run) = subject();
    let before = subject.ask("clocks").unwrap();
    for offset_ns in [-HOUR_NS, HOUR_NS] {
        shim.set_wall_offset_ns(offset_ns);
        let after = subject.ask("clocks").unwrap();
        let moved = after[0] - before[0] - offset_ns;
        assert!((0..10_000_000_000).contains(&moved), "{before:?} {after:?}");
        for clock in 1..4 {
            assert!((0..10_000_000_000).contains(&(after[clock] - before[clock])), "{after:?}");
        }
        all_take_200_ms(&mut subject);
    }
}

#[test]
fn each_start_has_an_origin_of_its_own_and_waits_still_end() {
    let (run, program) = start();
    let shim = Shim::make(&run, "subject", run.folder()).unwrap();
    let mut origins = Vec::new();
    for days in [3_000, 1] {
        shim.set_origin(Duration::from_secs(days * 24 * 3600));
        let mut subject = Subject::start(&run, program, Some(&shim)).unwrap();
        origins.push(subject.ask("clocks").unwrap());
        all_take_200_ms(&mut subject);
    }
    assert_eq!(shim.counts().loads, 2);
    assert!(shim.counts().clock_reads > 0);
    for clock in [2, 3] {
        assert!(origins[0][clock] > 2_000 * 24 * HOUR_NS, "{origins:?}");
        assert!(origins[1][clock] < 1_000 * 24 * HOUR_NS, "{origins:?}");
        assert!(origins[1][clock] > 24 * HOUR_NS, "{origins:?}");
    }
}

#[test]
fn at_another_rate_every_wait_is_as_long_as_its_own_clock_says() {
    let (shim, mut subject, _run) = subject();
    let waits = u32::try_from(WAITS).unwrap();
    for (rate_ppm, real) in [(1_000_000, MS(100)), (-500_000, MS(400))] {
        shim.set_rate_ppm(rate_ppm);
        let start = Instant::now();
        let mut told = told_waits(&mut subject, 200);
        let took = start.elapsed();
        // The wall clock keeps its rate, so a wait by it really takes 200 ms.
        let by_wall = told.remove(WAIT_BY_WALL);
        let expected = MS(200).mul_f64(200.0 / real.as_secs_f64() / 1_000.0);
        assert!(by_wall + MS(2) >= expected, "{by_wall:?} {expected:?}");
        assert!(told.iter().all(|wait| *wait >= MS(198)), "{told:?}");
        assert!(took >= (real - MS(2)) * (waits - 1), "{took:?}");
        if rate_ppm > 0 {
            // At the real rate they would take this long at least.
            assert!(took < MS(198) * waits, "{took:?}");
        }
    }
}

#[test]
fn a_clock_that_runs_ten_times_as_fast_takes_every_timer_along() {
    let (shim, mut subject, _run) = subject();
    shim.set_rate_ppm(RATE_MAX_PPM);
    let mut told = told_waits(&mut subject, 2_000);
    told.remove(WAIT_BY_WALL);
    // A timer by the real clock would end after 2 s, which this clock tells as 20.
    assert!(told.iter().all(|wait| (MS(1_980)..MS(12_000)).contains(wait)), "{told:?}");
}

#[test]
fn a_change_of_rate_or_its_end_does_not_move_the_clocks() {
    let (shim, mut subject, _run) = subject();
    let start = Instant::now();
    let first = subject.ask("clocks").unwrap();
    let mut last = first.clone();
    for rate_ppm in [9_000_000, -900_000, 0, 77_000, -77_000, 0] {
        shim.set_rate_ppm(rate_ppm);
        let next = subject.ask("clocks").unwrap();
        assert!((1..4).all(|clock| next[clock] >= last[clock]), "{last:?} {next:?}");
        last = next;
    }
    let most = i64::try_from(start.elapsed().as_nanos()).unwrap() * 10;
    assert!((1..4).all(|clock| last[clock] - first[clock] <= most), "{first:?} {last:?} {most}");
}

#[test]
fn rates_within_the_contract_are_kept_to() {
    let (shim, mut subject, _run) = subject();
    shim.set_rate_ppm(100_000);
    let (start, before) = (Instant::now(), subject.ask("clocks").unwrap());
    let inner = Instant::now();
    std::thread::sleep(MS(500));
    let least = inner.elapsed();
    let after = subject.ask("clocks").unwrap();
    let most = start.elapsed();
    let fast = |real: Duration| i64::try_from((real + real / 10).as_nanos()).unwrap();
    for clock in [2, 3] {
        let went = after[clock] - before[clock];
        assert!((fast(least)..=fast(most)).contains(&went), "{went} {least:?} {most:?}");
    }
}

#[test]
fn a_jump_moves_the_monotonic_clocks_and_not_the_wall_clock() {
    let (shim, mut subject, _run) = subject();
    let before = subject.ask("clocks").unwrap();
    shim.jump_monotonic(Duration::from_secs(3600));
    let after = subject.ask("clocks").unwrap();
    for clock in 1..4 {
        assert!(after[clock] - before[clock] >= HOUR_NS, "{before:?} {after:?}");
    }
    assert!(after[0] - before[0] < HOUR_NS, "{before:?} {after:?}");
}

#[test]
fn syncs_and_writes_fail_as_told_and_as_counted() {
    let (shim, mut subject, _run) = subject();
    assert_eq!(subject.ask("sync 10").unwrap(), [0]);
    assert_eq!((shim.counts().syncs, shim.counts().writes), (1, 1));
    shim.fail_syncs(Some(DiskError::Io));
    assert_eq!(subject.ask("sync 10").unwrap(), [EIO]);
    assert_eq!(subject.ask("write 10").unwrap(), [0]);
    shim.fail_syncs(None);
    shim.fail_writes(Some(DiskError::NoSpace));
    assert_eq!(subject.ask("sync 10").unwrap(), [ENOSPC]);
    shim.heal();
    assert_eq!(subject.ask("sync 10").unwrap(), [0]);
    let counts = shim.counts();
    assert_eq!((counts.syncs, counts.syncs_failed), (3, 1));
    assert_eq!((counts.writes, counts.writes_failed), (5, 1));
}

#[test]
fn a_held_sync_is_set_free_when_the_delay_is_taken_back() {
    let (shim, mut subject, _run) = subject();
    shim.delay_syncs(Duration::from_secs(600));
    subject.tell("sync 10").unwrap();
    until("the sync is held", || shim.counts().syncs_delayed == 1);
    shim.delay_syncs(Duration::ZERO);
    assert_eq!(subject.answer().unwrap(), [0]);
    shim.delay_writes(MS(100));
    let start = Instant::now();
    assert_eq!(subject.ask("write 10").unwrap(), [0]);
    assert!(start.elapsed() >= MS(100), "{:?}", start.elapsed());
    assert_eq!(shim.counts().writes_delayed, 1);
}

#[test]
fn files_outside_the_folder_are_left_alone() {
    let (run, program) = start();
    let (inside, outside) = (run.folder().join("data"), run.folder().join("data-2"));
    [&inside, &outside].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let shim = Shim::make(&run, "subject", &inside).unwrap();
    shim.fail_syncs(Some(DiskError::Io));
    let mut without = Subject::start_in(&run, program, Some(&shim), &outside).unwrap();
    assert_eq!(without.ask("sync 10").unwrap(), [0]);
    assert_eq!(shim.counts().syncs, 0);
    let mut within = Subject::start_in(&run, program, Some(&shim), &inside).unwrap();
    assert_eq!(within.ask("sync 10").unwrap(), [EIO]);
}

#[test]
fn a_program_in_another_language_is_under_the_same_faults() {
    let script = "import os, sys, threading, time\n\
        start = time.monotonic(); time.sleep(0.2); threading.Event().wait(0.2)\n\
        file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n\
        def errno(call):\n\
        \x20try: call(); return 0\n\
        \x20except OSError as error: return error.errno\n\
        print(int(time.time()), int(start), time.monotonic() - start >= 0.4,\n\
        \x20errno(lambda: os.pwrite(file, b'x', 0)), errno(lambda: os.fsync(file)),\n\
        \x20errno(lambda: os.fsync(os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY))))\n";
    let (run, _) = start();
    let shim = Shim::make(&run, "python", run.folder()).unwrap();
    shim.set_origin(Duration::from_secs(100_000_000));
    shim.set_wall_offset_ns(-1_000_000_000 * 1_000_000_000);
    shim.fail_syncs(Some(DiskError::Io));
    let spec = Spec {
        program: Path::new("/usr/bin/env"),
        args: vec!["python3".into(), "-c".into(), script.into(), run.folder().join("f").into()],
        shim: Some(&shim),
        ..shell(&run, "python", "")
    };
    let said = output(&run, "python", Process::start(&run, spec).unwrap());
    let words: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(words[2..], ["True", "0", "5", "5"], "{said}");
    assert!(words[0].parse::<u64>().unwrap() < 1_000_000_000, "{said}");
    assert!(words[1].parse::<u64>().unwrap() > 100_000_000, "{said}");
}

#[test]
fn a_process_with_a_page_of_another_build_does_not_start() {
    let (run, program) = start();
    let page = run.folder().join("old.page");
    for (bytes, why) in [(vec![0; 4096], "of another build"), (vec![0; 100], "can be mapped")] {
        fs::write(&page, bytes).unwrap();
        let output = Command::new(program)
            .arg("--version")
            .env("LD_PRELOAD", library().unwrap())
            .env("RINGFENCE_FAULT_PAGE", &page)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("ringfence-fault-shim") && said.contains(why), "{said}");
    }
}
