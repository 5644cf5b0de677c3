//! The process that ends a command whose lease runs out.
//!
//! It leads the command's process group and does nothing but count down. So what
//! `lock` promises holds also when `lock` itself is stopped, starved or killed: a
//! lease that is not renewed in time ends the group, and so does the end of the
//! pipe from `lock`. All of the group, for the command may be a shell that runs
//! others. While it lives, nobody else is given the group's number.
//!
//! The two speak in lines: `until <boot nanoseconds>`, `lost` and `done` go in,
//! `ready`, `term` and `kill` come out.

use std::io::{BufRead, Write};
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::child::Group;
use super::countdown::{Countdown, Step};
use super::exit::{Exit, Failure};
use crate::clock::BootMoment;

/// The longest sleep: the timers stand still in suspend, the lease does not.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// How long the warden may take to read a line before it counts as gone.
const FEED_WITHIN: Duration = Duration::from_millis(500);

/// Two deadlines that differ by no more are one.
const ALIKE: Duration = Duration::from_millis(1);

/// Watch over the command of a `lock`; started by it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Between SIGTERM and SIGKILL
    #[arg(long)]
    grace_ms: u64,
}

/// Counts down until `lock` says that it is done, or ends the group.
///
/// # Errors
/// [`Exit::Usage`] unless it leads a group.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    if getpgrp() != Pid::this() {
        return Err(Failure::new(Exit::Usage, "the warden is started by `lock` only"));
    }
    // What is sent to the group is meant for the command.
    SigSet::all().thread_block().map_err(std::io::Error::from)?;
    let heard = listen();
    tell("ready");
    let group = Group::led_by(Pid::this());
    let mut countdown = Countdown::new(Duration::from_millis(args.grace_ms));
    loop {
        let pause = match countdown.step(BootMoment::now()) {
            Step::Wait(pause) => pause,
            Step::Terminate => {
                // Told first, so that `lock` has heard of it when the command ends.
                tell("term");
                group.signal(Signal::SIGTERM);
                // A stopped process takes its SIGTERM when it goes on.
                group.signal(Signal::SIGCONT);
                continue;
            }
            Step::Kill => {
                tell("kill");
                break;
            }
        };
        match heard.recv_timeout(pause.min(SLEEP_MAX)) {
            Ok(Heard::Until(kill_at)) => countdown.renewed(kill_at),
            Ok(Heard::Lost) => countdown.lost(BootMoment::now()),
            Ok(Heard::Done) => return Ok(Exit::Done),
            Err(RecvTimeoutError::Timeout) => {}
            // `lock` is gone, and the renewals with it.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // The warden is of the group: nothing of it runs beyond this.
    group.signal(Signal::SIGKILL);
    Ok(Exit::Lost)
}

/// What `lock` says.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Until(BootMoment),
    Lost,
    Done,
}

impl Heard {
    fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            Some(("until", nanos)) => {
                nanos.parse().ok().map(BootMoment::from_nanos).map(Self::Until)
            }
            Some(_) => None,
            None => match line {
                "lost" => Some(Self::Lost),
                "done" => Some(Self::Done),
                _ => None,
            },
        }
    }

    fn line(&self) -> String {
        match self {
            Self::Until(kill_at) => format!("until {}\n", kill_at.as_nanos()),
            Self::Lost => "lost\n".to_owned(),
            Self::Done => "done\n".to_owned(),
        }
    }
}

/// Reads on a thread of its own; the channel ends with the pipe.
fn listen() -> mpsc::Receiver<Heard> {
    let (send, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        for heard in lines.map_while(|line| Heard::parse(&line)) {
            if send.send(heard).is_err() {
                return;
            }
        }
    });
    heard
}

fn tell(word: &str) {
    // Whether `lock` still reads changes nothing here.
    let _ = writeln!(std::io::stdout(), "{word}");
}

/// What the warden did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It counts down.
    Ready,
    /// It sent SIGTERM.
    Terminated,
    /// It sends SIGKILL.
    Killed,
    /// It ended.
    Gone,
}

/// `lock`'s side. Dropped, what is left of the group is killed.
#[derive(Debug)]
pub struct Warden {
    /// Never waited for while it is of use: so its number stays its own.
    _process: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
    group: Group,
    told: Option<BootMoment>,
}

impl Warden {
    /// Starts one, in a process group of its own.
    ///
    /// # Errors
    /// [`Exit::Broken`] if it does not start.
    pub async fn start(grace: Duration) -> Result<Self, Failure> {
        let mut command = Command::new(this_program()?);
        command.arg("warden").arg("--grace-ms").arg(grace.as_millis().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let broken =
            |why: &str| Failure::new(Exit::Broken, format!("cannot start the warden: {why}"));
        let mut process = command.process_group(0).spawn().map_err(|e| broken(&e.to_string()))?;
        let to = process.stdin.take().expect("stdin is piped");
        let from = process.stdout.take().expect("stdout is piped");
        let id = process.id().expect("nobody has waited for it yet");
        let group = Group::led_by(Pid::from_raw(id.cast_signed()));
        let from = BufReader::new(from).lines();
        let mut warden = Self { _process: process, to, from, group, told: None };
        match warden.event().await {
            Event::Ready => Ok(warden),
            Event::Terminated | Event::Killed | Event::Gone => Err(broken("it ended at once")),
        }
    }

    /// The group that the command is to join.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The command must not run beyond `kill_at` without another renewal.
    pub async fn renewed(&mut self, kill_at: BootMoment) {
        // Readings of one deadline differ by a little.
        if self.told.is_none_or(|told| kill_at.since(told) > ALIKE) {
            self.told = Some(kill_at);
            self.say(&Heard::Until(kill_at)).await;
        }
    }

    /// The authority has ended the grant.
    pub async fn lost(&mut self) {
        self.say(&Heard::Lost).await;
    }

    /// The command has ended: what it left running is not the warden's concern. True
    /// if the warden had told the group to end, and nobody has heard of it yet.
    pub async fn dismiss(&mut self) -> bool {
        self.say(&Heard::Done).await;
        let last_words = async {
            let mut told = false;
            loop {
                match self.event().await {
                    Event::Terminated | Event::Killed => told = true,
                    Event::Ready => {}
                    Event::Gone => return told,
                }
            }
        };
        tokio::time::timeout(FEED_WITHIN, last_words).await.unwrap_or(false)
    }

    /// What it does next. Dropping the future loses nothing.
    pub async fn event(&mut self) -> Event {
        match self.from.next_line().await.ok().flatten().as_deref() {
            Some("ready") => Event::Ready,
            Some("term") => Event::Terminated,
            Some("kill") => Event::Killed,
            Some(_) | None => Event::Gone,
        }
    }

    /// A warden that does not read any more is known by its [`Event::Gone`].
    async fn say(&mut self, what: &Heard) {
        let line = what.line();
        let _ = tokio::time::timeout(FEED_WITHIN, self.to.write_all(line.as_bytes())).await;
    }
}

/// The file this process runs, also when another version has taken its place.
fn this_program() -> std::io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        for said in [Heard::Until(BootMoment::from_nanos(7)), Heard::Lost, Heard::Done] {
            assert_eq!(Heard::parse(said.line().trim_end()), Some(said));
        }
        assert_eq!(Heard::parse("until soon"), None);
        assert_eq!(Heard::parse(""), None);
    }
}
