//! Taking the CPU from a process.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ringfence_jepsen::means::starve::{How, Starved, best};
use ringfence_jepsen::means::subject::Subject;

use super::start;

#[test]
fn a_quota_leaves_its_share_and_ends_without_a_trace() {
    assert_eq!(best(), How::Quota, "the machines of CI have cgroup v1 CPU quotas");
    let (run, program) = start();
    let mut subject = Subject::start(&run, program, None).unwrap();
    let groups = || fs::read_to_string(format!("/proc/{}/cgroup", subject.process.pid())).unwrap();
    let home = groups();
    let starved = Starved::by(How::Quota, &run, &subject.process, 5).unwrap();
    assert_ne!(groups(), home);
    let used_ns = subject.ask("burn 1000").unwrap()[0];
    assert!(used_ns < 300_000_000, "{used_ns} ns of CPU in one second at 5 %");
    assert!(starved.throttled() > Some(2), "{:?}", starved.throttled());
    drop(starved);
    let after = fs::read_to_string(format!("/proc/{}/cgroup", subject.process.pid())).unwrap();
    assert_eq!(after, home);
    let group = format!("ringfence-{}-{}", run.id(), subject.process.pid());
    assert!(!Path::new("/sys/fs/cgroup/cpu").join(group).exists());
}

#[test]
fn busy_loops_leave_a_process_little_and_end_with_it() {
    let (run, program) = start();
    let mut subject = Subject::start(&run, program, None).unwrap();
    let starved = Starved::by(How::BusyLoops, &run, &subject.process, 10).unwrap();
    assert_eq!(starved.throttled(), None);
    let used_ns = subject.ask("burn 1000").unwrap()[0];
    assert!(used_ns < 500_000_000, "{used_ns} ns of CPU in one second beside the loops");
    drop((starved, subject));
    assert_eq!(Arc::strong_count(&run), 1, "no loop is left");
}
