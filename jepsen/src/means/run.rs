//! One run of the suite on this machine, and the end of everything that it made.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};

use super::made::{self, Made};

/// Where runs are written down; gone after a boot, as is what they made.
pub const ROOT: &str = "/run/ringfence-jepsen";

/// The file that a living run holds locked.
const OWNER: &str = "owner";

/// The file that lists what a run has made, one [`Made`] a line.
const LIST: &str = "made.jsonl";

/// A run: its id, its folder and the list of what it has made. When the last owner lets go of
/// it, everything on the list is taken away.
#[derive(Debug)]
pub struct Run {
    id: String,
    folder: PathBuf,
    list: Mutex<File>,
    /// Locked as long as the run lives: a lock ends with its process, however that ends.
    _owner: File,
}

impl Run {
    /// Takes away what killed runs have left, and begins a run.
    ///
    /// # Errors
    /// Not root; or something that an earlier run left cannot be taken away (then says what).
    pub fn start() -> Result<Arc<Self>> {
        Self::start_in(Path::new(ROOT))
    }

    /// As [`Run::start`], written down under another folder than [`ROOT`].
    ///
    /// # Errors
    /// As [`Run::start`].
    pub fn start_in(root: &Path) -> Result<Arc<Self>> {
        if !nix::unistd::geteuid().is_root() {
            bail!("namespaces, mounts and loop devices need root: run this as root");
        }
        fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
        let _turn = turn(root)?;
        sweep_in_turn(root)?;
        let id = format!("{:08x}", rand::random::<u32>());
        let folder = root.join(&id);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let owner = File::create(folder.join(OWNER)).context("cannot name the run's owner")?;
        owner.try_lock().context("a run's owner is new, yet locked")?;
        let list = OpenOptions::new().create(true).append(true).open(folder.join(LIST));
        let list = Mutex::new(list.context("cannot begin the run's list")?);
        let run = Self { id, folder, list, _owner: owner };
        run.record(&Made::Processes { run: run.id.clone() })?;
        run.make_disks()?;
        Ok(Arc::new(run))
    }

    /// Eight hexadecimal digits, in the name of everything that the run makes.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The run's own folder, gone after the run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// In turn: a folder that has lost its owner's file, but not all of itself, looks like that
    /// of a killed run.
    fn forget(&self) -> Result<()> {
        let _turn = turn(self.folder.parent().context("a run lies in a folder")?)?;
        remove(&self.folder)
    }

    /// Where volumes are mounted. Mounted itself, and shared: what is unmounted there is also
    /// unmounted in the mount namespaces that `ip netns exec` and systemd make, which would
    /// else keep a volume alive over a power cut.
    pub(super) fn disks(&self) -> PathBuf {
        self.folder.join("disks")
    }

    fn make_disks(&self) -> Result<()> {
        let disks = self.disks();
        self.record(&Made::Mount { path: disks.clone() })?;
        fs::create_dir(&disks).with_context(|| format!("cannot make {}", disks.display()))?;
        let none = None::<&str>;
        mount(Some(&disks), &disks, none, MsFlags::MS_BIND, none)
            .and_then(|()| mount(none, &disks, none, MsFlags::MS_SHARED, none))
            .context("cannot mount a folder for the volumes")
    }

    /// Writes down what is about to be made, so that it is taken away whatever happens next.
    pub(super) fn record(&self, thing: &Made) -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(thing).context("cannot record")?);
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.write_all(line.as_bytes()).context("cannot write the run's list")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = take_away(&self.folder).and_then(|()| self.forget()) {
            eprintln!("run {}: {error:#}; the next run tries again", self.id);
        }
    }
}

/// Takes away what killed runs have left under `root`, and returns their ids. Runs that live,
/// of this process or of others, are left alone.
///
/// # Errors
/// Something cannot be taken away; the rest is.
pub fn sweep(root: &Path) -> Result<Vec<String>> {
    if !root.exists() {
        return Ok(Vec::new());
    }
    let _turn = turn(root)?;
    sweep_in_turn(root)
}

/// One at a time begins a run or sweeps, so that none sees a run half begun.
fn turn(root: &Path) -> Result<File> {
    let lock = File::create(root.join("lock")).context("cannot open the lock of the runs")?;
    lock.lock().context("cannot lock the runs")?;
    Ok(lock)
}

fn sweep_in_turn(root: &Path) -> Result<Vec<String>> {
    let mut swept = Vec::new();
    for entry in fs::read_dir(root).context("cannot list the runs")? {
        let folder = entry.context("cannot list the runs")?.path();
        if !folder.is_dir() || lives(&folder)? {
            continue;
        }
        let id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tear_down(&folder).with_context(|| format!("run {id} was killed and left something"))?;
        swept.push(id);
    }
    Ok(swept)
}

fn lives(folder: &Path) -> Result<bool> {
    let Ok(owner) = File::open(folder.join(OWNER)) else { return Ok(false) };
    match owner.try_lock() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error).context("cannot ask whether a run lives"),
    }
}

fn tear_down(folder: &Path) -> Result<()> {
    take_away(folder)?;
    remove(folder)
}

/// Takes away what the folder's list names. The folder stays, so that the next start tries
/// again if this fails.
fn take_away(folder: &Path) -> Result<()> {
    let list = fs::read_to_string(folder.join(LIST)).unwrap_or_default();
    // A killed run may have left half a last line: what it names was not made yet.
    let things: Vec<Made> =
        list.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let failures = made::take_away(&things);
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}
