//! The things that a run makes, and how each is taken away.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::command::run;
use super::proc;

/// How long one thing may take to happen.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// One thing made. Taken away in the order of the variants, so that nothing is still in use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Made {
    /// Every process that was started for a run, and whatever they have started.
    Processes {
        /// The run's id, which their environment holds.
        run: String,
    },
    /// A control group.
    Cgroup {
        /// Its folder.
        path: PathBuf,
    },
    /// A mounted file system.
    Mount {
        /// Where it is mounted.
        path: PathBuf,
    },
    /// An image with its loop devices.
    Image {
        /// The file behind the devices.
        path: PathBuf,
    },
    /// A folder with all that is in it.
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// A network namespace with its devices.
    Namespace {
        /// Its name under `/run/netns`.
        name: String,
    },
}

/// Takes everything away; what is gone already is no failure. Returns what could not be done.
pub fn take_away(things: &[Made]) -> Vec<String> {
    let mut sorted: Vec<&Made> = things.iter().collect();
    sorted.sort_by(|one, two| match (one, two) {
        // A mount within another goes first.
        (Made::Mount { path: one }, Made::Mount { path: two }) => two.cmp(one),
        (one, two) => one.cmp(two),
    });
    sorted.dedup();
    sorted.iter().filter_map(|thing| thing.take_away().err().map(|e| format!("{e:#}"))).collect()
}

impl Made {
    fn take_away(&self) -> Result<()> {
        match self {
            Self::Processes { run } => end_all(run),
            Self::Cgroup { path } => remove_cgroup(path),
            Self::Mount { path } => unmount(path),
            Self::Image { path } => remove_image(path),
            Self::Folder { path } => match fs::remove_dir_all(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("cannot remove {}", path.display()))
                }
                Ok(()) | Err(_) => Ok(()),
            },
            Self::Namespace { name } if Path::new("/run/netns").join(name).exists() => {
                run("ip", &["netns", "delete", name]).map(drop)
            }
            Self::Namespace { .. } => Ok(()),
        }
    }
}

/// Waits until `done`, or says what did not happen.
///
/// # Errors
/// `PATIENCE` is over.
pub fn wait_until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() >= deadline {
            bail!("{what} has not happened within {} s", PATIENCE.as_secs());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Looks again until there is none: they may be starting others.
fn end_all(run: &str) -> Result<()> {
    wait_until(&format!("the end of the processes of run {run}"), || {
        let found = proc::started_for(run);
        for &pid in &found {
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("cannot kill {pid}")),
            }
        }
        Ok(found.is_empty())
    })
}

fn remove_cgroup(path: &Path) -> Result<()> {
    // Empty only once the kernel is through with the last task.
    wait_until(&format!("the removal of {}", path.display()), || match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) => Ok(error.kind() == std::io::ErrorKind::NotFound),
    })
}

/// Unmounts once; mounted several times over, the next mount is unmounted as well.
///
/// # Errors
/// Somebody holds files open there; they are named.
pub fn unmount(path: &Path) -> Result<()> {
    wait_until("unmounting", || match nix::mount::umount(path) {
        Ok(()) => Ok(false),
        Err(Errno::EINVAL | Errno::ENOENT) => Ok(true),
        Err(Errno::EBUSY) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot unmount {}", path.display())),
    })
    .with_context(|| {
        let holders = proc::holders(path);
        let who = if holders.is_empty() { "nobody seen".into() } else { holders.join(", ") };
        format!("{} stays mounted; files there are held open by: {who}", path.display())
    })
}

fn remove_image(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let name = path.to_string_lossy();
    for device in run("losetup", &["-n", "-O", "NAME", "-j", &name])?.lines() {
        run("losetup", &["-d", device.trim()])?;
    }
    fs::remove_file(path).with_context(|| format!("cannot remove {name}"))
}
