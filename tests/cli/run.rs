//! Runs the real binary.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::Pid;

use serde_json::Value;

use crate::authority::Authority;
use crate::cluster::Cluster;

/// Long enough for anything that is not meant to wait.
pub const SOON: Duration = Duration::from_secs(20);

/// The binary with these arguments, and no settings from outside.
pub fn ringfence(arguments: &[&str]) -> Command {
    hear_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RINGFENCE_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What ignores a signal when it starts goes on to ignore it, and so does all that it
/// starts: a test run in the background of a script would not be interrupted.
#[allow(unsafe_code, reason = "the one way to set what a signal does")]
fn hear_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
            // SAFETY: no handler is installed; the default action runs none of our code.
            unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }.unwrap();
        }
    });
}

/// As [`ringfence`], with this authority's endpoint.
pub fn at(authority: &Authority, arguments: &[&str]) -> Command {
    let mut command = ringfence(arguments);
    command.env("RINGFENCE_ENDPOINTS", &authority.address);
    command
}

/// As [`ringfence`], with the endpoints of these real nodes.
pub fn on(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = ringfence(arguments);
    command.env("RINGFENCE_ENDPOINTS", cluster.endpoints().join(","));
    command
}

/// What a run has printed, as JSON.
pub fn json(command: Command) -> Value {
    let Done { out, err, .. } = done(command);
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e} in {out:?}, stderr {err:?}"))
}

/// For a [`Lock`]: waits for the file `go`, and ends with 3.
pub const PATIENT: &str = "echo > $D/up; while [ ! -e $D/go ]; do sleep 0.02; done; exit 3";

/// Lets a [`PATIENT`] command end.
pub fn go(lock: &Lock) {
    std::fs::write(lock.folder.path().join("go"), "").unwrap();
}

/// A finished run.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn done(mut command: Command) -> Done {
    finish(command.spawn().unwrap())
}

pub fn finish(child: Child) -> Done {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let code = status.code().expect("the wrapper itself is not ended by a signal");
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    Done { code, out, err }
}

/// A `lock` under way, with a folder for what its command writes. Killed when dropped.
pub struct Lock {
    pub wrapper: Option<Child>,
    pub folder: tempfile::TempDir,
}

impl Lock {
    /// Runs this shell script under the lock; `$D` is the folder.
    pub fn start(authority: &Authority, options: &[&str], script: &str) -> Self {
        Self::run(at(authority, &["lock"]), options, script)
    }

    /// As [`Lock::start`], with options for this `lock`.
    pub fn run(mut command: Command, options: &[&str], script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        command.args(options).args(["--", "sh", "-c", script]);
        let wrapper = Some(command.env("D", folder.path()).spawn().unwrap());
        Self { wrapper, folder }
    }

    pub fn signal(&self, signal: Signal) {
        let wrapper = self.wrapper.as_ref().unwrap();
        kill(Pid::from_raw(wrapper.id().cast_signed()), signal).unwrap();
    }

    /// Waits until the command has written the file, and reads it.
    pub fn wrote(&self, file: &str) -> String {
        let path = self.folder.path().join(file);
        let mut text = String::new();
        eventually(&format!("{file} is written"), || {
            text = std::fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n')
        });
        text.trim_end().to_owned()
    }

    pub fn has_written(&self, file: &str) -> bool {
        self.folder.path().join(file).exists()
    }

    /// A process id that the command has written.
    pub fn pid(&self, file: &str) -> u32 {
        self.wrote(file).parse().unwrap()
    }

    pub fn done(mut self) -> Done {
        finish(self.wrapper.take().unwrap())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(mut wrapper) = self.wrapper.take() {
            let _ = wrapper.kill();
            let _ = wrapper.wait();
        }
    }
}

/// Whether the process runs: a zombie does not.
pub fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    let state = stat.ok().and_then(|stat| stat.rsplit(") ").next()?.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
}

/// Waits for it.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sleeps until then.
pub fn sleep_until(then: Instant) {
    std::thread::sleep(then.saturating_duration_since(Instant::now()));
}
