//! Marks beside the files that they protect: one folder `.ringfence` for a directory and all
//! that is below it.
//!
//! - [`Marks::replace`] makes the new content and the marks one step, by a record that holds
//!   both: a process that dies at any moment leaves both or neither, once the next one has
//!   taken the lock. Who reads a file without taking the lock may see the old content until
//!   then; a new owner raises first, and reads after.
//! - [`Marks::guarded`] runs any code under the lock, behind durable marks. Of several files
//!   that it changes, a crash keeps some.
//! - One lock (`flock` on `.ringfence/lock`) for the directory: writers of different resources
//!   wait for one another too. A process that is frozen while it holds the lock holds up its
//!   successor until it goes on or dies; nothing takes the lock from it, others get
//!   [`FenceError::Busy`]. The lock goes with the process, not with the machine's clock.
//! - For local file systems. Over NFS the lock is one of the server's, or of one machine only
//!   (`local_lock`), and a client that is cut off loses it without being told: two machines
//!   could both be past the check. Marks on tmpfs are gone with the power, as what they
//!   protect.
//! - Files that are written around this, and directories below that have marks of their own,
//!   are not protected. Nothing but this may touch `.ringfence`.

mod folder;
mod names;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use self::folder::{Changes, FOLDER, Folder, Held, Move, store};
use super::error::FenceError;
use super::kept::{self, Kept};
use super::rule::check_set;
use super::target::{FenceTarget, target};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// The version that [`Marks::install`] sets up.
pub const SCHEMA_VERSION: u32 = kept::SCHEMA_VERSION;

/// The marks of one directory. Any number of processes may have them open.
#[derive(Debug, Clone)]
pub struct Marks {
    folder: Folder,
    within: Duration,
}

impl Marks {
    /// The marks in `directory/.ringfence`. Opens nothing yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let path = directory.join(FOLDER);
        Self { folder: Folder { directory, path }, within: Duration::from_secs(10) }
    }

    /// How long a call waits for the lock, 10 s if not told. The session's ttl or less.
    #[must_use]
    pub fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Sets up the marks; where they are already, finishes what a process that died has left
    /// half done.
    ///
    /// # Errors
    /// [`FenceError::SchemaNewer`], [`FenceError::Busy`], [`FenceError::Store`].
    pub fn install(&self) -> Result<(), FenceError> {
        self.folder.install(self.within)
    }

    /// Checks the fences of one grant, raises the marks and gives the file at `path`, which
    /// is named from the directory, this content; in one step. A reader sees the old content
    /// or the new, and the permissions stay. The folder that `path` is in has to be there.
    /// The fences may be in any order, each of another resource; all are accepted, or none.
    ///
    /// # Errors
    /// [`FenceError::Set`], [`FenceError::Stale`], [`FenceError::FloorAboveToken`],
    /// [`FenceError::ForeignCluster`], [`FenceError::SchemaMissing`],
    /// [`FenceError::SchemaNewer`] and [`FenceError::Busy`]: nothing was written.
    /// [`FenceError::Store`]: what the system says, or a `path` that is not of this
    /// directory. If it came late, the next call finishes the step.
    pub fn replace(
        &self,
        path: impl AsRef<Path>,
        fences: &[Fence],
        content: impl AsRef<[u8]>,
    ) -> Result<(), FenceError> {
        self.replace_with(path, fences, |file| file.write_all(content.as_ref()))
    }

    /// The same with what `write` writes, which runs under the lock and may read the
    /// directory. It must not call these marks, and should not wait for anybody.
    ///
    /// # Errors
    /// As [`Self::replace`]; if `write` fails, nothing was written and no mark raised.
    pub fn replace_with(
        &self,
        path: impl AsRef<Path>,
        fences: &[Fence],
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), FenceError> {
        check_set(fences)?;
        let path = path.as_ref();
        let held = self.folder.hold(self.within)?;
        let changes = self.judge(fences)?;
        let old = self.old(path).map_err(store)?;
        let (staged, mut file) = held.stage()?;
        let written = write(&mut file).and_then(|()| {
            if let Some(old) = old {
                file.set_permissions(old)?;
            }
            file.sync_all()
        });
        if let Err(error) = written {
            held.unstage(&staged);
            return Err(store(error));
        }
        held.commit(Some(Move { staged, to: path.to_owned() }), &changes)
    }

    /// Checks the fences, raises the marks, and then runs `write` with the directory, all
    /// under the lock. The marks are durable before `write` starts: a crash in it, or an
    /// error, leaves what it has done, and never without its marks. It must not call these
    /// marks, and should not wait for anybody.
    ///
    /// # Errors
    /// As [`Self::replace`]; [`FenceError::Store`] with what `write` says.
    pub fn guarded<T>(
        &self,
        fences: &[Fence],
        write: impl FnOnce(&Path) -> io::Result<T>,
    ) -> Result<T, FenceError> {
        let _held = self.raised(fences)?;
        write(&self.folder.directory).map_err(store)
    }

    /// Raises the marks without a write: from its return on, no earlier owner writes here.
    ///
    /// # Errors
    /// As [`Self::replace`]; after [`FenceError::Busy`] nothing is known to be shut out.
    pub fn raise(&self, fences: &[Fence]) -> Result<(), FenceError> {
        self.raised(fences).map(drop)
    }

    /// The mark of a resource, or of one of its slots. Waits for nobody, and only reads.
    ///
    /// # Errors
    /// [`FenceError::SchemaMissing`], [`FenceError::SchemaNewer`], [`FenceError::Store`].
    pub fn mark(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
    ) -> Result<Option<Token>, FenceError> {
        Ok(self.folder.kept(resource)?.and_then(|kept| kept.mark(slot)))
    }

    /// Takes the marks of authority `from` over for authority `to`, as after a restore;
    /// returns how many resources changed hands. No mark falls. Safe to repeat.
    ///
    /// # Errors
    /// [`FenceError::SchemaMissing`], [`FenceError::SchemaNewer`], [`FenceError::Busy`] and
    /// [`FenceError::Store`], after which some may have been taken over.
    pub fn adopt(&self, from: ClusterId, to: ClusterId) -> Result<usize, FenceError> {
        let held = self.folder.hold(self.within)?;
        let mut all = held.all()?;
        all.retain(|_, kept| kept.cluster == from);
        let taken = all.len();
        for (resource, kept) in all {
            held.commit(None, &[(resource, Kept { cluster: to, ..kept })].into())?;
        }
        Ok(taken)
    }

    /// This directory as strict handoff sees it. A raise that is dropped goes on.
    pub fn target(&self) -> impl FenceTarget + use<> {
        let marks = self.clone();
        let name = format!("file:{}", marks.folder.directory.display());
        target(name, move |fences, within| {
            let marks = marks.clone().within(within);
            async move {
                let raised = tokio::task::spawn_blocking(move || marks.raise(&fences)).await;
                raised.unwrap_or_else(|error| Err(FenceError::Store(Box::new(error))))
            }
        })
    }

    fn raised(&self, fences: &[Fence]) -> Result<Held<'_>, FenceError> {
        check_set(fences)?;
        let held = self.folder.hold(self.within)?;
        let changes = self.judge(fences)?;
        held.commit(None, &changes)?;
        Ok(held)
    }

    /// What is kept once all the fences have passed: the first in the order of names that
    /// does not is the answer.
    fn judge(&self, fences: &[Fence]) -> Result<Changes, FenceError> {
        let mut fences: Vec<&Fence> = fences.iter().collect();
        fences.sort_by(|one, other| one.resource.cmp(&other.resource));
        let judge = |fence: &Fence| {
            let known = self.folder.kept(&fence.resource)?;
            Ok((fence.resource.clone(), Kept::after(known, fence)?))
        };
        fences.into_iter().map(judge).collect()
    }

    /// The permissions of what `path` names now. A path that could not be moved to, or that
    /// other marks protect, is refused before anything is written.
    fn old(&self, path: &Path) -> io::Result<Option<fs::Permissions>> {
        let refused = |why| {
            let said = format!("{}: {why}", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidInput, said))
        };
        if !path.components().all(|part| matches!(part, Component::Normal(_)))
            || path.components().next().is_none_or(|first| first.as_os_str() == FOLDER)
        {
            return refused("not a path from the protected directory to a file in it");
        }
        let above = path.parent().expect("a relative path that names something");
        let mut folder = self.folder.directory.clone();
        for part in above.components() {
            folder.push(part);
            if !fs::symlink_metadata(&folder)?.is_dir() {
                return refused("goes through what is no folder, or a link");
            }
            if folder.join(FOLDER).try_exists()? {
                return refused("a folder on the way has marks of its own");
            }
        }
        match fs::symlink_metadata(self.folder.directory.join(path)) {
            Ok(old) if old.is_file() => Ok(Some(old.permissions())),
            Ok(_) => refused("is no plain file"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
