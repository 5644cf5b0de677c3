//! What a subject does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};
use ringfence::clock::{BootMoment, Moment};

use super::super::disk::{MIB_MIN, Volume};
use super::super::made::wait_until;
use super::super::net::Network;
use super::super::process::{Process, Spec};
use super::super::{Run, proc};
use super::waits;

/// The commands, for whoever types a wrong one.
const COMMANDS: &str = "clocks | waits MS | wake | burn MS | leave | sync BYTES | write BYTES";

/// Answers standard input until it ends. Files are made in `folder`.
///
/// - `clocks`: wall clock, `Instant` since the start, and the two clocks of the product that
///   its leases are counted on, in nanoseconds.
/// - `waits MS`: waits in each of [`super::WAITS`] ways for so long, and answers how long each took by
///   `Instant`, in nanoseconds.
/// - `wake`: wakes nobody, with junk where a wait has its time, and answers how many it woke.
/// - `burn MS`: computes for so long, and answers how much CPU time it got, in nanoseconds.
/// - `leave`: makes some of everything in a run under the folder's `runs`, to be killed with it.
/// - `sync BYTES`: appends to `subject.written`, syncs, and answers 0 or the errno.
/// - `write BYTES`: the same without the sync.
///
/// # Errors
/// A command that it does not know, or standard output is gone.
pub fn serve(folder: &Path) -> Result<()> {
    let start = Instant::now();
    let mut log = Log { path: folder.join("subject.written"), file: None };
    for line in io::stdin().lock().lines() {
        let line = line.context("standard input")?;
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().with_context(|| format!("no number in {line:?}"))?;
        let answer = match word {
            "clocks" => clocks(start),
            "waits" => waits::each(Duration::from_millis(number)),
            "wake" => vec![waits::wake_nobody()],
            "burn" => vec![burn(Duration::from_millis(number))],
            "leave" => leave(folder).map(|()| vec![0])?,
            "sync" => vec![log.append(number, true)],
            "write" => vec![log.append(number, false)],
            _ => bail!("{line:?} is none of: {COMMANDS}"),
        };
        let text: Vec<String> = answer.iter().map(ToString::to_string).collect();
        let mut out = io::stdout().lock();
        writeln!(out, "{}", text.join(" "))
            .and_then(|()| out.flush())
            .context("standard output")?;
    }
    Ok(())
}

/// Makes some of everything in a run of its own, and then forgets about it.
fn leave(folder: &Path) -> Result<()> {
    let run = Run::start_in(&folder.join("runs"))?;
    let network = Network::make(&run, &["n1"], 0)?;
    let volume = Volume::make(&run, "n1", MIB_MIN)?;
    // The shell dies with the harness; what it has started does not.
    let script = "cd \"$0\"; sleep 1000 & wait";
    let args = vec!["-c".into(), script.into(), volume.folder().into()];
    let namespace = Some(&network.host("n1")?.namespace);
    let log = run.folder().join("left.log");
    let spec = Spec { args, namespace, ..Spec::new("left", Path::new("/bin/sh"), log) };
    let process = Process::start(&run, spec)?;
    wait_until("the start of what is left", || Ok(proc::started_for(run.id()).len() == 2))?;
    std::mem::forget((process, volume, network, run));
    Ok(())
}

pub(super) fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn clocks(start: Instant) -> Vec<i64> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, nanos);
    let monotonic = nanos(Moment::now().since(Moment::default()));
    let boot = nanos(BootMoment::now().since(BootMoment::default()));
    vec![wall, nanos(start.elapsed()), monotonic, boot]
}

fn burn(length: Duration) -> i64 {
    let used = || {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
        time.tv_sec() * 1_000_000_000 + time.tv_nsec()
    };
    let (start, before) = (Instant::now(), used());
    while start.elapsed() < length {}
    used() - before
}

/// A file that is opened at its first use, and again after an error.
struct Log {
    path: PathBuf,
    file: Option<File>,
}

impl Log {
    fn append(&mut self, bytes: u64, sync: bool) -> i64 {
        match self.try_append(bytes, sync) {
            Ok(()) => 0,
            Err(error) => {
                self.file = None;
                i64::from(error.raw_os_error().unwrap_or(-1))
            }
        }
    }

    fn try_append(&mut self, bytes: u64, sync: bool) -> io::Result<()> {
        if self.file.is_none() {
            fs::create_dir_all(self.path.parent().unwrap_or(&self.path))?;
            self.file = Some(OpenOptions::new().create(true).append(true).open(&self.path)?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(&vec![b'x'; usize::try_from(bytes).unwrap_or(0)])?;
        if sync { file.sync_data() } else { Ok(()) }
    }
}
