//! Network namespaces, and how threads and processes get into them.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns};

use super::super::Run;
use super::super::command::run;
use super::super::made::Made;

/// A network namespace of the run; it goes with the run.
///
/// Only ever entered by `setns(CLONE_NEWNET)`. `ip netns exec` would give the process a mount
/// namespace of its own as well, and that keeps a data folder's old mount alive over a power
/// cut.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
    /// Keeps the namespace until nothing uses it.
    _run: Arc<Run>,
}

impl Namespace {
    /// Makes a namespace named after the run and `name`, with its loopback up.
    ///
    /// # Errors
    /// iproute2 is missing or the kernel refuses.
    pub fn make(run_of: &Arc<Run>, name: &str) -> Result<Self> {
        let name = format!("rf-{}-{name}", run_of.id());
        run_of.record(&Made::Namespace { name: name.clone() })?;
        run("ip", &["netns", "add", &name])?;
        run("ip", &["-n", &name, "link", "set", "lo", "up"])?;
        let file = File::open(format!("/run/netns/{name}"))
            .with_context(|| format!("namespace {name} was made but is not there"))?;
        Ok(Self { name, file, _run: Arc::clone(run_of) })
    }

    /// Its name, for `ip -n`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `inside` on a thread of its own within the namespace, and waits for it. Sockets
    /// that it opens stay in the namespace wherever they are used.
    ///
    /// # Errors
    /// The namespace cannot be entered, or `inside` panicked.
    pub fn within<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let entered = scope.spawn(|| {
                setns(&self.file, CloneFlags::CLONE_NEWNET)
                    .with_context(|| format!("cannot enter namespace {}", self.name))?;
                Ok(inside())
            });
            entered.join().map_err(|_| anyhow!("what ran within {} panicked", self.name))?
        })
    }

    /// For `setns` between fork and exec.
    pub(in super::super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
