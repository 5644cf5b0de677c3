//! A small program to try the means on, `jepsen subject`, and its end of the line. It does what
//! it is told, a word and a number a line, and answers each line with one of numbers.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};
use ringfence::clock::{BootMoment, Moment};

use super::disk::{MIB_MIN, Volume};
use super::made::wait_until;
use super::net::Network;
use super::process::{Process, Spec};
use super::shim::Shim;
use super::{Run, proc};

mod waits;

pub use waits::{WAIT_BY_WALL, WAITS};

/// A running `jepsen subject`.
#[derive(Debug)]
pub struct Subject {
    /// The process itself.
    pub process: Process,
    tell: ChildStdin,
    answers: BufReader<ChildStdout>,
    log: PathBuf,
}

impl Subject {
    /// Starts one whose files lie in the run's folder.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start(run: &Arc<Run>, program: &Path, shim: Option<&Shim>) -> Result<Self> {
        Self::start_in(run, program, shim, run.folder())
    }

    /// Starts one whose files lie in another folder.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start_in(
        run: &Arc<Run>,
        program: &Path,
        shim: Option<&Shim>,
        folder: &Path,
    ) -> Result<Self> {
        let log = run.folder().join("subject.log");
        let spec = Spec {
            name: "subject",
            program,
            args: vec!["subject".into(), folder.into()],
            environment: Vec::new(),
            namespace: None,
            shim,
            log: log.clone(),
            pipes: true,
        };
        let mut process = Process::start(run, spec)?;
        let (tell, answers) = process.take_pipes().context("a subject has pipes")?;
        Ok(Self { process, tell, answers: BufReader::new(answers), log })
    }

    /// Tells it something, and returns its answer.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask(&mut self, command: &str) -> Result<Vec<i64>> {
        self.tell(command)?;
        self.answer()
    }

    /// Tells it something. The answer is yet to be read.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, command: &str) -> Result<()> {
        writeln!(self.tell, "{command}").with_context(|| format!("cannot tell {command:?}"))
    }

    /// Reads its next answer.
    ///
    /// # Errors
    /// It has ended.
    pub fn answer(&mut self) -> Result<Vec<i64>> {
        let mut line = String::new();
        let length = self.answers.read_line(&mut line).context("reading an answer")?;
        if length == 0 {
            let said = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the subject ended without an answer; it said: {}", said.trim());
        }
        line.split_whitespace().map(|word| Ok(word.parse()?)).collect()
    }
}

/// The commands, for whoever types a wrong one.
const COMMANDS: &str = "clocks | waits MS | burn MS | leave | sync BYTES | write BYTES";

/// Answers standard input until it ends. Files are made in `folder`.
///
/// - `clocks`: wall clock, `Instant` since the start, and the two clocks of the product that
///   its leases are counted on, in nanoseconds.
/// - `waits MS`: waits in each of [`WAITS`] ways for so long, and answers how long each took by
///   `Instant`, in nanoseconds.
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
    let spec = Spec {
        name: "left",
        program: Path::new("/bin/sh"),
        // The shell dies with the harness; what it has started does not.
        args: ["-c", "cd \"$0\"; sleep 1000 & wait"]
            .map(Into::into)
            .into_iter()
            .chain([volume.folder().into()])
            .collect(),
        environment: Vec::new(),
        namespace: Some(&network.host("n1")?.namespace),
        shim: None,
        log: run.folder().join("left.log"),
        pipes: false,
    };
    let process = Process::start(&run, spec)?;
    wait_until("the start of what is left", || Ok(proc::started_for(run.id()).len() == 2))?;
    std::mem::forget((process, volume, network, run));
    Ok(())
}

fn nanos(duration: Duration) -> i64 {
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
