//! Volumes: cut, full, read-only.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_jepsen::means::Run;
use ringfence_jepsen::means::disk::{MIB_MIN, Volume};
use ringfence_jepsen::means::net::Namespace;
use ringfence_jepsen::means::process::{Process, Spec};
use ringfence_jepsen::means::subject::Subject;

use super::{shell, start, until};

fn volume(name: &str) -> (Volume, Arc<Run>, &'static Path) {
    let (run, program) = start();
    (Volume::make(&run, name, 32).unwrap(), run, program)
}

fn subject(run: &Arc<Run>, program: &Path, volume: &Volume) -> (Subject, PathBuf) {
    let subject = Subject::start_in(run, program, None, volume.folder()).unwrap();
    (subject, volume.folder().join("subject.written"))
}

#[test]
fn a_crash_with_a_power_cut_keeps_what_was_synced_and_nothing_more() {
    let (volume, run, program) = volume("n1");
    let (mut subject, written) = subject(&run, program, &volume);
    for _ in 0..20 {
        assert_eq!(subject.ask("sync 100").unwrap(), [0]);
    }
    for _ in 0..20 {
        assert_eq!(subject.ask("write 100").unwrap(), [0]);
    }
    let unsynced = volume.folder().join("unsynced");
    fs::create_dir(&unsynced).unwrap();
    subject.process.kill().unwrap();
    assert_eq!(fs::metadata(&written).unwrap().len(), 4_000, "a kill alone loses nothing");
    volume.power_cut().unwrap();
    volume.restore().unwrap();
    volume.check_healthy().unwrap();
    assert_eq!(fs::metadata(&written).unwrap().len(), 2_000);
    assert!(!unsynced.exists());
}

#[test]
fn a_process_sees_its_disk_vanish_and_a_neighbour_does_not() {
    let (volume, run, program) = volume("n1");
    let other = Volume::make(&run, "n2", MIB_MIN).unwrap();
    let (mut subject, _) = subject(&run, program, &volume);
    assert_eq!(subject.ask("sync 100").unwrap(), [0]);
    volume.power_cut().unwrap();
    assert_eq!(subject.ask("sync 100").unwrap(), [i64::from(libc::EIO)]);
    assert!(volume.check_healthy().is_err());
    other.check_healthy().unwrap();
}

#[test]
fn a_volume_in_use_is_not_restored_and_the_error_names_who_uses_it() {
    let (volume, run, program) = volume("n1");
    let (mut subject, _) = subject(&run, program, &volume);
    assert_eq!(subject.ask("sync 100").unwrap(), [0]);
    volume.power_cut().unwrap();
    let error = format!("{:#}", volume.restore().unwrap_err());
    assert!(error.contains(&format!("{} (jepsen)", subject.process.pid())), "{error}");
    subject.process.kill().unwrap();
    volume.restore().unwrap();
    volume.check_healthy().unwrap();
}

#[test]
fn a_mount_namespace_of_ip_netns_exec_does_not_hold_a_dead_volume() {
    let (volume, run, _) = volume("n1");
    let namespace = Namespace::make(&run, "n1").unwrap();
    let script =
        format!("exec ip netns exec {} sh -c 'echo in; exec sleep 1000'", namespace.name());
    let inside = Process::start(&run, shell(&run, "in", &script)).unwrap();
    let log = run.folder().join("in.log");
    until("the namespace is there", || fs::read_to_string(&log).is_ok_and(|log| log == "in\n"));
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
    assert_ne!(of(&inside.pid().to_string()), of("self"));
    volume.power_cut().unwrap();
    volume.restore().unwrap();
    volume.check_healthy().unwrap();
}

#[test]
fn a_full_volume_has_no_room_until_it_is_given_back() {
    let (volume, run, program) = volume("n1");
    let (mut subject, _) = subject(&run, program, &volume);
    let before = volume.free_bytes().unwrap();
    volume.fill().unwrap();
    assert!(volume.free_bytes().unwrap() < 1 << 12, "{:?}", volume.free_bytes());
    assert_eq!(subject.ask("write 100000").unwrap(), [i64::from(libc::ENOSPC)]);
    volume.unfill().unwrap();
    assert!(volume.free_bytes().unwrap() > before / 2);
    assert_eq!(subject.ask("write 100000").unwrap(), [0]);
    volume.unfill().unwrap();
}

#[test]
fn a_volume_becomes_read_only_under_an_open_file_and_whole_again_when_restored() {
    let (volume, run, program) = volume("n1");
    let (mut subject, written) = subject(&run, program, &volume);
    assert_eq!(subject.ask("sync 100").unwrap(), [0]);
    volume.read_only().unwrap();
    let errno = subject.ask("sync 100").unwrap()[0];
    assert!([libc::EROFS, libc::EIO].map(i64::from).contains(&errno), "errno {errno}");
    subject.process.kill().unwrap();
    volume.restore().unwrap();
    volume.check_healthy().unwrap();
    assert_eq!(fs::metadata(written).unwrap().len(), 100);
}

#[test]
fn a_volume_that_nobody_uses_becomes_read_only_too() {
    let (volume, _run, _) = volume("n1");
    volume.read_only().unwrap();
    let error = File::create(volume.folder().join("new")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    volume.restore().unwrap();
    volume.check_healthy().unwrap();
}

#[test]
fn what_was_answered_before_a_cut_holds_however_busy_the_journal_is() {
    let (volume, run, program) = volume("n1");
    let (mut subject, written) = subject(&run, program, &volume);
    // A second writer, so that the journal is busy when the power goes.
    let noise = "while dd if=/dev/zero of=\"$0\" bs=4k count=64 conv=fsync; do :; done";
    let mut spec: Spec<'_> = shell(&run, "noise", noise);
    spec.args.push(volume.folder().join("noise").into());
    let mut noise = Process::start(&run, spec).unwrap();
    until("the noise has begun", || volume.folder().join("noise").exists());
    let mut answered = 0;
    for _ in 0..50 {
        assert_eq!(subject.ask("sync 100").unwrap(), [0]);
        answered += 100;
    }
    // The last one may or may not be answered when the machine stands still.
    subject.tell("sync 100").unwrap();
    subject.process.pause().unwrap();
    volume.power_cut().unwrap();
    subject.process.kill().unwrap();
    if subject.answer().is_ok_and(|errno| errno == [0]) {
        answered += 100;
    }
    noise.kill().unwrap();
    volume.restore().unwrap();
    let kept = fs::metadata(written).unwrap().len();
    assert!((answered..=5_100).contains(&kept), "{answered} answered, {kept} kept");
}
