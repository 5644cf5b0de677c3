//! One process of our own. It does not outlive us: it is killed and reaped when it is
//! dropped, and the system kills it if we end without doing so.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use super::{PATIENCE, POLL};
use crate::cli::child;
use crate::clock::Moment;

/// Linux counts processor time in hundredths of a second, whatever its own clock.
const MS_PER_TICK: u64 = 10;

/// A process, its name for people, and where it writes its messages.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it, in a process group of its own: a Ctrl-C is for us alone. Its messages
    /// are added to `log`. To be called by the first thread.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(name: &str, mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot start {name}");
        let stderr = File::options().create(true).append(true).open(log).with_context(cannot)?;
        command.stderr(stderr).process_group(0);
        child::bind(&mut command, false);
        let child = command.as_std_mut().spawn().with_context(cannot)?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The processor time that it has taken so far, all its threads together.
    ///
    /// # Errors
    /// It has ended, or this system does not tell.
    pub fn processor_time(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // The name, in parentheses, may hold anything; user and system time are the
        // 14th and 15th fields, the 12th and 13th after it.
        let fields = stat.rsplit(')').next().map(str::split_whitespace);
        let ticks = fields.map(|fields| fields.skip(11).take(2).map(str::parse::<u64>));
        let ticks: Vec<u64> = ticks.context("no fields")?.collect::<Result<_, _>>()?;
        let [user, system] = ticks[..] else { anyhow::bail!("too few fields") };
        Ok(Duration::from_millis((user + system) * MS_PER_TICK))
    }

    /// Its stdin and stdout; they must have been piped, and can be taken once.
    pub fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let name = &self.name;
        kill(Pid::from_raw(self.id().cast_signed()), signal)
            .with_context(|| format!("cannot send {signal} to {name}"))
    }

    /// That it runs.
    ///
    /// # Errors
    /// It has ended; with the last line that it wrote.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.gone(&status.to_string())),
        }
    }

    /// It has ended, or does not speak any more: what it wrote last.
    pub fn gone(&self, how: &str) -> anyhow::Error {
        let name = &self.name;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        match log.lines().rfind(|line| !line.trim().is_empty()) {
            Some(line) => anyhow::anyhow!("{name} ended ({how}): {line}"),
            None => anyhow::anyhow!("{name} ended ({how})"),
        }
    }

    /// Ends it with this signal, or with SIGKILL if it takes too long, and waits until it
    /// is gone.
    pub fn end(&mut self, signal: Signal) {
        if !self.is_running() {
            return;
        }
        let _ = self.signal(signal);
        let until = Moment::now().plus(PATIENCE);
        while signal != Signal::SIGKILL && self.is_running() && Moment::now() < until {
            std::thread::sleep(POLL);
        }
        // One that is reaped has no number to be signalled by.
        if self.is_running() {
            let _ = self.child.kill();
            // Only a process that is not ours cannot be waited for.
            let _ = self.child.wait();
        }
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(Signal::SIGKILL);
    }
}

/// This program, to be run by itself: without what the environment says to it, and
/// with nothing to read or to say.
///
/// # Errors
/// The program has no name.
pub fn itself(subcommand: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("RINGFENCE_")) {
        command.env_remove(name);
    }
    command.arg(subcommand).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}
