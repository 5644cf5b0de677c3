//! Tries every means on this machine. One that does not work is a failure, not a reason to go
//! on without: a run that could make no power cut would say nothing about power cuts.

use std::fs::{self, File};
use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Run;
use super::disk::{Volume, damage};
use super::made::wait_until;
use super::net::{Host, Network, Rule};
use super::shim::{DiskError, Shim};
use super::starve::{How, Starved};
use super::subject::{Subject, WAITS};

/// One means, tried.
#[derive(Debug)]
pub struct Attempt {
    /// What it is for.
    pub means: &'static str,
    /// What was seen of it; or why it does not work, and what to do.
    pub seen: Result<String>,
}

type Try = fn(&Arc<Run>, &Path) -> Result<String>;

const TRIES: [(&str, Try); 10] = [
    ("one-way cut between namespaces", cut),
    ("delay between namespaces", delay),
    ("loss, duplicates, reordering, corruption", chances),
    ("power cut", power_cut),
    ("full and read-only disk", full_and_read_only),
    ("damage to files", damaged),
    ("clocks of a process", clocks),
    ("disk errors of a process", disk_errors),
    ("pause and kill", pause_and_kill),
    ("CPU starvation", starvation),
];

/// Tries every means. `program` is the `jepsen` binary, whose `subject` they are tried on.
#[must_use]
pub fn attempts(program: &Path) -> Vec<Attempt> {
    TRIES.map(|(means, attempt)| Attempt { means, seen: alone(attempt, program) }).into()
}

/// Tries every means and prints what was seen: exit status 0 if all work, 1 if not.
///
/// # Errors
/// Standard output is gone.
pub fn print(program: &Path) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let mut failed = 0;
    for attempt in attempts(program) {
        match attempt.seen {
            Ok(seen) => writeln!(out, "works   {}: {seen}", attempt.means)?,
            Err(error) => {
                failed += 1;
                writeln!(out, "FAILS   {}: {error:#}", attempt.means)?;
            }
        }
    }
    let works = TRIES.len() - failed;
    writeln!(out, "{works} of {} means work here", TRIES.len())?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Each in a run of its own, so that what it makes is seen to go again.
fn alone(attempt: Try, program: &Path) -> Result<String> {
    let run = Run::start()?;
    let folder = run.folder().to_owned();
    let seen = attempt(&run, program)?;
    drop(run);
    ensure!(!folder.exists(), "what it made could not all be taken away");
    Ok(seen)
}

fn cut(run: &Arc<Run>, _: &Path) -> Result<String> {
    let network = Network::make(run, &["n1", "n2"], 1)?;
    let (one, two) = (network.host("n1")?, network.host("n2")?);
    ensure!(passes(one, two)?.is_some(), "nothing passes although nothing is cut");
    network.set("n1", "n2", Rule::cut())?;
    ensure!(passes(one, two)?.is_none(), "a datagram passed a cut link");
    ensure!(passes(two, one)?.is_some(), "the way back was cut as well");
    network.heal();
    ensure!(passes(one, two)?.is_some(), "nothing passes after the cut has healed");
    Ok(format!("{} frames swallowed", network.counts("n1", "n2")?.cut))
}

fn delay(run: &Arc<Run>, _: &Path) -> Result<String> {
    let network = Network::make(run, &["n1", "n2"], 1)?;
    let (one, two) = (network.host("n1")?, network.host("n2")?);
    let wanted = Duration::from_millis(30);
    network.set("n1", "n2", Rule::delay(wanted))?;
    let took = passes(one, two)?.context("a delayed datagram did not arrive")?;
    ensure!(took >= wanted, "a datagram took {took:?} instead of {wanted:?}");
    Ok(format!("{took:?} for {wanted:?}"))
}

fn chances(run: &Arc<Run>, _: &Path) -> Result<String> {
    let network = Network::make(run, &["n1", "n2"], 1)?;
    let (one, two) = (network.host("n1")?, network.host("n2")?);
    let hold = Duration::from_millis(1);
    let rule =
        Rule { loss: 0.2, duplicate: 0.2, reorder: 0.2, hold, corrupt: 0.2, ..Rule::default() };
    network.set("n1", "n2", rule)?;
    let (sender, receiver) = (socket(one)?, socket(two)?);
    for _ in 0..200 {
        sender.send_to(b"probe", receiver.local_addr()?)?;
    }
    wait_until("the way of 200 frames", || Ok(network.counts("n1", "n2")?.entered >= 200))?;
    let counts = network.counts("n1", "n2")?;
    let each = [counts.lost, counts.duplicated, counts.reordered, counts.corrupted];
    ensure!(each.iter().all(|count| (10..80).contains(count)), "of 200 frames: {counts:?}");
    Ok(format!("{each:?} of 200 frames"))
}

fn socket(host: &Host) -> Result<UdpSocket> {
    Ok(host.namespace.within(|| UdpSocket::bind((host.address, 0)))??)
}

/// How long a datagram takes from one host to another, if it arrives.
fn passes(from: &Host, to: &Host) -> Result<Option<Duration>> {
    let (sender, receiver) = (socket(from)?, socket(to)?);
    receiver.set_read_timeout(Some(Duration::from_millis(300)))?;
    let start = Instant::now();
    sender.send_to(b"probe", receiver.local_addr()?)?;
    Ok(receiver.recv(&mut [0; 8]).is_ok().then(|| start.elapsed()))
}

fn power_cut(run: &Arc<Run>, _: &Path) -> Result<String> {
    let volume = Volume::make(run, "probe", 32)?;
    let (kept, lost) = (volume.folder().join("synced"), volume.folder().join("written"));
    let file = File::create(&kept)?;
    (&file).write_all(b"kept")?;
    file.sync_all()?;
    drop(file);
    File::open(volume.folder())?.sync_all()?;
    fs::write(&lost, "lost")?;
    let start = Instant::now();
    volume.power_cut()?;
    volume.restore()?;
    let took = start.elapsed();
    ensure!(fs::read(&kept).is_ok_and(|bytes| bytes == b"kept"), "a synced file was lost");
    ensure!(!lost.exists(), "a file that nobody synced survived the power cut");
    volume.check_healthy()?;
    Ok(format!("synced kept, unsynced lost, mounted again after {took:?}"))
}

fn full_and_read_only(run: &Arc<Run>, _: &Path) -> Result<String> {
    let volume = Volume::make(run, "probe", 32)?;
    volume.fill()?;
    let refused = fs::write(volume.folder().join("more"), vec![0; 1 << 16]).err();
    let refused = refused.context("a full disk took a write")?;
    ensure!(refused.raw_os_error() == Some(libc::ENOSPC), "full, but: {refused}");
    volume.unfill()?;
    let open = File::create(volume.folder().join("open"))?;
    volume.read_only()?;
    let refused = (&open).write_all(b"more").and_then(|()| open.sync_all()).err();
    let refused = refused.context("a read-only disk took a write")?;
    drop(open);
    volume.restore()?;
    volume.check_healthy()?;
    Ok(format!("ENOSPC when full; with a file open, read-only: {refused}"))
}

fn damaged(run: &Arc<Run>, _: &Path) -> Result<String> {
    let volume = Volume::make(run, "probe", 32)?;
    fs::write(volume.folder().join("000001.log"), "old")?;
    fs::write(volume.folder().join("000002.log"), [1, 2, 3])?;
    let newest = damage::newest(volume.folder(), ".log")?;
    damage::truncate(&newest, 1)?;
    damage::flip(&newest, 0)?;
    let bytes = fs::read(volume.folder().join("000002.log"))?;
    ensure!(bytes == [!1, 2], "a torn and flipped file holds {bytes:?}");
    Ok("newest log torn, one byte flipped".into())
}

fn clocks(run: &Arc<Run>, program: &Path) -> Result<String> {
    let shim = Shim::make(run, "probe", run.folder())?;
    let origin = Duration::from_secs(1_000_000);
    shim.set_origin(origin);
    let mut subject = Subject::start(run, program, Some(&shim))?;
    let before = subject.ask("clocks")?;
    ensure!(shim.counts().loads == 1, "the library was not loaded");
    let hour_ns = 3_600_000_000_000;
    shim.set_wall_offset_ns(-hour_ns);
    shim.set_rate_ppm(1_000_000);
    let waits = subject.ask("waits 50")?;
    ensure!(waits.len() == WAITS, "not all kinds of waits have ended: {waits:?}");
    let after = subject.ask("clocks")?;
    ensure!(after[0] - before[0] < 0, "the wall clock was not set back");
    let ahead_ns = i64::try_from(origin.as_nanos())?;
    for (name, at) in [("CLOCK_MONOTONIC", 2), ("CLOCK_BOOTTIME", 3)] {
        ensure!(before[at] > ahead_ns, "the product reads the real {name}, past the library");
    }
    Ok(format!("wall, monotonic and boot time, in {WAITS} kinds of waits"))
}

fn disk_errors(run: &Arc<Run>, program: &Path) -> Result<String> {
    let shim = Shim::make(run, "probe", run.folder())?;
    let mut subject = Subject::start(run, program, Some(&shim))?;
    ensure!(subject.ask("sync 10")? == [0], "a sync failed without a fault");
    shim.fail_syncs(Some(DiskError::Io));
    ensure!(subject.ask("sync 10")? == [i64::from(libc::EIO)], "a sync did not fail with EIO");
    shim.fail_syncs(None);
    shim.fail_writes(Some(DiskError::NoSpace));
    ensure!(subject.ask("write 10")? == [i64::from(libc::ENOSPC)], "a write did not find it full");
    shim.fail_writes(None);
    shim.delay_syncs(Duration::from_millis(50));
    let start = Instant::now();
    ensure!(subject.ask("sync 10")? == [0], "a held sync failed");
    let took = start.elapsed();
    ensure!(took >= Duration::from_millis(50), "a sync was not held: {took:?}");
    Ok(format!("EIO, ENOSPC, and a sync held for {took:?}"))
}

fn pause_and_kill(run: &Arc<Run>, program: &Path) -> Result<String> {
    let mut subject = Subject::start(run, program, None)?;
    subject.process.pause()?;
    subject.process.resume()?;
    ensure!(subject.ask("clocks")?.len() == 4, "no answer after a pause");
    subject.process.pause()?;
    let status = subject.process.kill()?;
    Ok(format!("stopped, went on, stopped, and ended by {status}"))
}

fn starvation(run: &Arc<Run>, program: &Path) -> Result<String> {
    let mut subject = Subject::start(run, program, None)?;
    let starved = Starved::start(run, &subject.process, 5)?;
    let used_ns = subject.ask("burn 500")?[0];
    let how = starved.how();
    if how == How::Quota {
        ensure!(starved.throttled() > Some(0), "the quota of 5 % has never run out");
        ensure!(used_ns < 250_000_000, "{used_ns} ns of CPU in 500 ms, with a quota of 5 %");
    }
    Ok(format!("{} ms of CPU in 500 ms, by {how}", used_ns / 1_000_000))
}
