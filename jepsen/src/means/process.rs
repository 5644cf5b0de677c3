//! Processes under faults: started in a namespace, stopped, continued, killed.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Run;
use super::made::wait_until;
use super::net::Namespace;
use super::proc::{self, RUN_VARIABLE};
use super::shim::Shim;

/// How a process is to be started.
#[derive(Debug)]
pub struct Spec<'a> {
    /// What the process is called in errors, `n1` say.
    pub name: &'a str,
    /// The program's file.
    pub program: &'a Path,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// What is added to its environment.
    pub environment: Vec<(&'a str, OsString)>,
    /// The namespace it lives in; the harness's own if none.
    pub namespace: Option<&'a Namespace>,
    /// The faults of its clocks and disk; none can be made if none.
    pub shim: Option<&'a Shim>,
    /// Gets its standard error, and its standard output unless that is a pipe. Appended to.
    pub log: PathBuf,
    /// Whether the harness speaks to it through standard input and output.
    pub pipes: bool,
}

impl<'a> Spec<'a> {
    /// A program without arguments or faults, on the harness's own network.
    #[must_use]
    pub fn new(name: &'a str, program: &'a Path, log: PathBuf) -> Self {
        Self {
            name,
            program,
            args: Vec::new(),
            environment: Vec::new(),
            namespace: None,
            shim: None,
            log,
            pipes: false,
        }
    }
}

/// A process of the run and whatever it starts itself: one group, which gets every signal.
///
/// It dies with the harness, however that ends: the kernel kills it, and the next run what it
/// has started.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    started: u64,
    ended: Option<ExitStatus>,
    _run: Arc<Run>,
}

impl Process {
    /// Starts a process.
    ///
    /// # Errors
    /// The program or the log's folder is not there, or the namespace is gone.
    pub fn start(run: &Arc<Run>, spec: Spec<'_>) -> Result<Self> {
        let name = spec.name.to_owned();
        let failed = format!("cannot start {name}: {}", spec.program.display());
        let mut command = command(spec)?;
        command.env(RUN_VARIABLE, run.id());
        let child = fork(command).context(failed)?;
        let started = proc::stat(child.id())
            .with_context(|| format!("{name} was started but is not in /proc"))?
            .started;
        Ok(Self { name, child, started, ended: None, _run: Arc::clone(run) })
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pipes to it, once.
    pub fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        self.child.stdin.take().zip(self.child.stdout.take())
    }

    /// How it ended by itself, if it has; reaps it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            let name = &self.name;
            self.ended = self.child.try_wait().with_context(|| format!("asking for {name}"))?;
        }
        Ok(self.ended)
    }

    /// Stops every thread of it, and returns when they stand still.
    ///
    /// # Errors
    /// It has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        wait_until(&format!("the pause of {}", self.name), || {
            ensure!(self.ended()?.is_none(), "{} ended instead of pausing", self.name);
            Ok(self.is_paused())
        })
    }

    /// Lets it go on, and returns when it does.
    ///
    /// # Errors
    /// It has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)?;
        wait_until(&format!("{} going on", self.name), || {
            ensure!(self.ended()?.is_none(), "{} ended instead of going on", self.name);
            Ok(proc::threads(self.pid()).iter().any(|thread| thread.state != 'T'))
        })
    }

    /// Whether it stands still.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        let threads = proc::threads(self.pid());
        !threads.is_empty() && threads.iter().all(|thread| thread.state == 'T')
    }

    /// Ends it as a crash does, with all that it has started, and reaps it. A pause is no
    /// hindrance.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        self.signal(Signal::SIGKILL)?;
        let status = self.child.wait().with_context(|| format!("reaping {}", self.name))?;
        self.ended = Some(status);
        Ok(status)
    }

    /// Asks it to end by itself (SIGTERM); see [`Process::ended`].
    ///
    /// # Errors
    /// It has ended.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Only before it is reaped does its pid belong to it.
    fn signal(&mut self, signal: Signal) -> Result<()> {
        let name = self.name.clone();
        if let Some(status) = self.ended()? {
            return Err(anyhow!("{name} has ended ({status}), so it gets no {signal}"));
        }
        let group = i32::try_from(self.pid()).context("a pid has 31 bits")?;
        match killpg(Pid::from_raw(group), signal) {
            Ok(()) => Ok(()),
            // It has just ended: the next question reaps it.
            Err(Errno::ESRCH) if signal == Signal::SIGKILL => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot send {signal} to {name}")),
        }
    }

    /// Its pid and start, which name it for good.
    pub(super) fn identity(&self) -> (u32, u64) {
        (self.child.id(), self.started)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("{}: {error:#}", self.name);
        }
    }
}

fn command(spec: Spec<'_>) -> Result<Command> {
    let mut log = OpenOptions::new();
    let log = log.create(true).append(true).open(&spec.log);
    let log = log.with_context(|| format!("cannot open the log {}", spec.log.display()))?;
    let mut command = Command::new(spec.program);
    command.args(spec.args).envs(spec.environment).process_group(0);
    if let Some(shim) = spec.shim {
        command.envs(shim.environment());
    }
    let copy = log.try_clone().context("cannot share the log")?;
    command.stderr(log);
    if spec.pipes {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    } else {
        command.stdin(Stdio::null()).stdout(copy);
    }
    prepare(&mut command, spec.namespace.map(Namespace::descriptor));
    Ok(command)
}

/// What the new process does between fork and exec. The namespace outlives the start: the
/// caller of [`Process::start`] holds it.
#[allow(unsafe_code, reason = "code between fork and exec")]
fn prepare(command: &mut Command, namespace: Option<RawFd>) {
    let harness = std::process::id();
    let ready = move || {
        // SAFETY: system calls only, which may follow a fork; each is checked.
        unsafe {
            if let Some(namespace) = namespace
                && libc::setns(namespace, libc::CLONE_NEWNET) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The harness may have ended before it was asked for.
            if libc::getppid().cast_unsigned() != harness {
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: `ready` neither allocates nor locks.
    unsafe { command.pre_exec(ready) };
}

type Start = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Starts a process from a thread that lives as long as the harness: what the kernel takes for
/// the parent, whose end kills the child, is the thread that forked and not its process.
fn fork(command: Command) -> Result<Child> {
    static STARTER: OnceLock<mpsc::Sender<Start>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (starts, queue) = mpsc::channel::<Start>();
        thread::spawn(move || {
            for (mut command, answer) in queue {
                // Whoever no longer waits for the answer has lost the child: it is killed.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn())
                    && child.kill().is_ok()
                {
                    child.wait().ok();
                }
            }
        });
        starts
    });
    let (answer, answered) = mpsc::channel();
    starter.send((command, answer)).map_err(|_| anyhow!("the starting thread has ended"))?;
    Ok(answered.recv().context("the starting thread has ended")??)
}
