//! A small program to try the means on, `jepsen subject`, and its end of the line. It does what
//! it is told, a word and a number a line, and answers each line with one of numbers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Run;
use super::process::{Process, Spec};
use super::shim::Shim;

mod served;
mod waits;

pub use served::serve;
pub use waits::{WAIT_BY_WALL, WAITS};

/// How long an answer may take: a subject that waits by a wrong clock may wait for ever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running `jepsen subject`.
#[derive(Debug)]
pub struct Subject {
    /// The process itself.
    pub process: Process,
    tell: ChildStdin,
    answers: mpsc::Receiver<String>,
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
        let args = vec!["subject".into(), folder.into()];
        let spec = Spec { args, shim, pipes: true, ..Spec::new("subject", program, log.clone()) };
        let mut process = Process::start(run, spec)?;
        let (tell, answers) = process.take_pipes().context("a subject has pipes")?;
        Ok(Self { process, tell, answers: lines(answers), log })
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
    /// It has ended, or does not answer in time.
    pub fn answer(&mut self) -> Result<Vec<i64>> {
        let line = match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                bail!("the subject has not answered for {} s", PATIENCE.as_secs());
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let said = fs::read_to_string(&self.log).unwrap_or_default();
                bail!("the subject ended without an answer; it said: {}", said.trim());
            }
        };
        line.split_whitespace().map(|word| Ok(word.parse()?)).collect()
    }
}

/// The lines that come out of a pipe, until it closes or nobody wants them.
fn lines(pipe: ChildStdout) -> mpsc::Receiver<String> {
    let (line, lines) = mpsc::channel();
    thread::spawn(move || {
        for read in BufReader::new(pipe).lines().map_while(Result::ok) {
            if line.send(read).is_err() {
                return;
            }
        }
    });
    lines
}
