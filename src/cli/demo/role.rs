//! What a worker is told, and what it answers: a line of JSON each.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};

use crate::cli::local::{PATIENCE, Process, itself};

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Ask for this resource and wait until it is granted.
    Take(String),
    /// Raise the mark at the destination.
    Raise,
    /// Write this result, with the fence and whatever the guard may say.
    Publish(String),
    /// Write this result to the table that has no fence.
    PublishUnguarded(String),
    /// Ask the guard.
    Look,
    /// Wait until the guard is lost.
    AwaitLoss,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The token of the grant.
    Granted(u64),
    /// It is done.
    Done,
    /// The destination refused it, by this mark.
    Refused {
        /// The destination's own words.
        message: String,
        /// The mark.
        mark: u64,
    },
    /// What the guard says: held, suspended or lost.
    Guard {
        /// In words.
        state: String,
        /// How long the owner may act.
        valid_for_ms: u64,
    },
    /// It could not be done.
    Failed(String),
}

/// The conductor's side of one worker.
pub struct Role {
    process: Process,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Role {
    /// Starts a worker of this name.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(
        name: &str,
        endpoints: &[String],
        destination: &str,
        ttl: Duration,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = itself("demo-worker")?;
        command.args(["--name", name, "--endpoints", &endpoints.join(",")]);
        command.args(["--destination", destination]);
        command.args(["--ttl", &humantime::format_duration(ttl).to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let log = folder.join(format!("worker-{name}.log"));
        let mut process = Process::start(&format!("worker {name}"), command, &log)?;
        let (stdin, stdout) = process.pipes().expect("both are piped");
        let orders = ChildStdin::from_std(stdin)?;
        let answers = BufReader::new(ChildStdout::from_std(stdout)?).lines();
        Ok(Self { process, orders, answers })
    }

    /// Tells it what to do, and does not wait for it.
    ///
    /// # Errors
    /// It has ended.
    pub async fn tell(&mut self, order: &Order) -> anyhow::Result<()> {
        let line = serde_json::to_string(order)? + "\n";
        let told = self.orders.write_all(line.as_bytes()).await;
        told.map_err(|error| self.process.gone(&error.to_string()))
    }

    /// What came of the oldest order that was not answered yet.
    ///
    /// # Errors
    /// It has ended, takes too long, or could not do it.
    pub async fn answer(&mut self) -> anyhow::Result<Answer> {
        let line = tokio::time::timeout(PATIENCE, self.answers.next_line()).await;
        let line = line.with_context(|| self.process.gone("or is stuck"))??;
        let line = line.ok_or_else(|| self.process.gone("it says nothing any more"))?;
        match serde_json::from_str(&line)? {
            Answer::Failed(message) => Err(self.process.gone(&message)),
            answer => Ok(answer),
        }
    }

    /// Tells it what to do and waits for what comes of it.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub async fn ask(&mut self, order: &Order) -> anyhow::Result<Answer> {
        self.tell(order).await?;
        self.answer().await
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.process.signal(signal)
    }
}
