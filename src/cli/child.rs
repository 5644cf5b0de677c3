//! The command that `lock` runs.

use std::ffi::OsString;
use std::io::ErrorKind;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::exit::{Exit, Failure};

/// A process group that is ours to signal, for its leader lives.
#[derive(Debug, Clone, Copy)]
pub struct Group(Pid);

impl Group {
    /// The group of this leader.
    pub fn led_by(leader: Pid) -> Self {
        Self(leader)
    }

    /// Its number.
    pub fn id(self) -> Pid {
        self.0
    }

    /// Signals every process of it. That none is left to take it is fine.
    pub fn signal(self, signal: Signal) {
        let _ = killpg(self.0, signal);
    }
}

/// Starts the command in this group; it dies with the thread that calls this. A variable
/// without a value is taken from its environment.
///
/// # Errors
/// [`Exit::NotFound`], [`Exit::CannotRun`].
pub fn start(
    line: &[OsString],
    variables: Vec<(&'static str, Option<String>)>,
    group: Group,
    has_terminal: bool,
) -> Result<Child, Failure> {
    let (program, arguments) = line.split_first().expect("clap asks for one word at least");
    let mut command = Command::new(program);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(arguments).process_group(group.id().as_raw()).kill_on_drop(true);
    bind(&mut command, has_terminal);
    command.spawn().map_err(|error| {
        let exit = match error.kind() {
            ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::CannotRun,
        };
        Failure::new(exit, format!("cannot run {}: {error}", program.display()))
    })
}

/// Binds the command's life to ours, and keeps Ctrl-Z from stopping it: a stopped
/// owner would look alive to the authority, and the shell would not get the terminal
/// back.
#[allow(unsafe_code, reason = "there is no other way to ask for the parent-death signal")]
pub fn bind(command: &mut Command, has_terminal: bool) {
    let parent = Pid::this();
    let bound = move || {
        #[cfg(target_os = "linux")]
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // If we died before the line above, nobody will ever send the signal.
        if Pid::parent() != parent {
            return Err(std::io::Error::from(ErrorKind::BrokenPipe));
        }
        if has_terminal {
            use nix::sys::signal::{SigHandler, signal};
            // SAFETY: it installs no handler, and the process has one thread.
            unsafe { signal(Signal::SIGTSTP, SigHandler::SigIgn)? };
        }
        Ok(())
    };
    // SAFETY: between fork and exec only what is async-signal-safe may be called.
    // These are system calls and comparisons: no allocation, no lock, and the errors
    // carry numbers only.
    unsafe { command.pre_exec(bound) };
}
