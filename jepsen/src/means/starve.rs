//! Taking the CPU from a process.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;

use super::Run;
use super::made::{Made, wait_until};
use super::process::{Process, Spec};

/// Where the kernel's first kind of control groups keeps its CPU quotas.
const QUOTAS: &str = "/sys/fs/cgroup/cpu";

/// How often a quota is given anew, in microseconds.
const PERIOD_US: u64 = 100_000;

/// The way in which the CPU is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// A quota: exact, and nobody else is touched.
    Quota,
    /// Lowest priority beside busy loops on every core: the share is not exact, and the rest of
    /// the machine feels the loops.
    BusyLoops,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quota => "cgroup v1 CPU quota",
            Self::BusyLoops => "lowest priority beside busy loops (no cgroup v1 CPU quota here)",
        })
    }
}

/// What can be done on this machine.
#[must_use]
pub fn best() -> How {
    if Path::new(QUOTAS).join("cpu.cfs_quota_us").exists() { How::Quota } else { How::BusyLoops }
}

/// A process that gets little CPU, until this is dropped.
#[derive(Debug)]
pub struct Starved {
    how: How,
    pid: u32,
    started: u64,
    group: Option<Group>,
    loops: Vec<Process>,
}

/// A control group of the run, and where its tasks came from.
#[derive(Debug)]
struct Group {
    path: PathBuf,
    home: PathBuf,
}

impl Starved {
    /// Leaves the process so many percent of one core, by the [`best`] way.
    ///
    /// # Errors
    /// As [`Starved::by`].
    pub fn start(run: &Arc<Run>, process: &Process, percent: u64) -> Result<Self> {
        Self::by(best(), run, process, percent)
    }

    /// Leaves the process about so many percent of one core, in the given way. Busy loops know
    /// no percentage.
    ///
    /// # Errors
    /// Not 1 to 100 percent; the process has ended; the kernel refuses.
    pub fn by(how: How, run: &Arc<Run>, process: &Process, percent: u64) -> Result<Self> {
        ensure!((1..=100).contains(&percent), "{percent} percent of a core: from 1 to 100");
        let (pid, started) = process.identity();
        let mut starved = Self { how, pid, started, group: None, loops: Vec::new() };
        match how {
            How::Quota => starved.group = Some(Group::make(run, pid, percent)?),
            How::BusyLoops => {
                set_priority(pid, 19)?;
                let cores = available_parallelism().map_or(1, usize::from);
                for core in 0..cores * 2 {
                    starved.loops.push(busy_loop(run, core)?);
                }
            }
        }
        Ok(starved)
    }

    /// The way it is done.
    #[must_use]
    pub fn how(&self) -> How {
        self.how
    }

    /// How often the quota has run out so far: the proof that it acted. None for busy loops.
    #[must_use]
    pub fn throttled(&self) -> Option<u64> {
        let text = fs::read_to_string(self.group.as_ref()?.path.join("cpu.stat")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("nr_throttled "))?.parse().ok()
    }

    fn end(&mut self) -> Result<()> {
        self.loops.clear();
        if let Some(group) = self.group.take() {
            group.dissolve()?;
        } else if super::proc::runs(self.pid, self.started) {
            set_priority(self.pid, 0)?;
        }
        Ok(())
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("process {} may still be starved: {error:#}", self.pid);
        }
    }
}

impl Group {
    fn make(run: &Arc<Run>, pid: u32, percent: u64) -> Result<Self> {
        let path = Path::new(QUOTAS).join(format!("ringfence-{}-{pid}", run.id()));
        run.record(&Made::Cgroup { path: path.clone() })?;
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let home = home(pid)?;
        write(&path.join("cpu.cfs_period_us"), PERIOD_US)?;
        write(&path.join("cpu.cfs_quota_us"), PERIOD_US * percent / 100)?;
        write(&path.join("cgroup.procs"), u64::from(pid))?;
        Ok(Self { path, home })
    }

    /// Sends the tasks home and removes the group.
    fn dissolve(self) -> Result<()> {
        let inside = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            // It may have ended meanwhile.
            fs::write(self.home.join("cgroup.procs"), pid).ok();
        }
        wait_until("the end of a control group", || Ok(fs::remove_dir(&self.path).is_ok()))
    }
}

/// The group that the process is in by itself.
fn home(pid: u32) -> Result<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).context("the process ended")?;
    let own = text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "cpu").then_some(path)
    });
    let own = own.context("the process is in no CPU group")?;
    Ok(Path::new(QUOTAS).join(own.trim_start_matches('/')))
}

fn write(path: &Path, number: u64) -> Result<()> {
    fs::write(path, number.to_string()).with_context(|| format!("cannot write {}", path.display()))
}

/// Of every thread: the kernel knows the priority of threads only.
#[allow(unsafe_code, reason = "nix has no wrapper for setpriority")]
fn set_priority(pid: u32, nice: i32) -> Result<()> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).context("the process ended")?;
    for thread in threads.flatten() {
        let Ok(id) = thread.file_name().to_string_lossy().parse::<u32>() else { continue };
        // SAFETY: takes three numbers.
        let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, id, nice) };
        match Errno::result(result) {
            Ok(_) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error).context("cannot change a priority"),
        }
    }
    Ok(())
}

fn busy_loop(run: &Arc<Run>, number: usize) -> Result<Process> {
    let name = format!("busy loop {number}");
    let args = ["-c", "while :; do :; done"].map(Into::into).to_vec();
    let log = run.folder().join("busy-loops.log");
    let spec = Spec { args, ..Spec::new(&name, Path::new("/bin/sh"), log) };
    Process::start(run, spec)
}
