//! The folder `.ringfence`, held by its lock: the commit record and the marks behind it.
//!
//! A write and its marks become one step by a record that holds both: once `commit` has its
//! name on disk, the step is done, whoever finishes it. Whoever takes the lock finishes what
//! is left of the last one, which changes nothing if nothing is left.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::names::{coded, decoded, place};
use crate::clock::Moment;
use crate::fence::error::FenceError;
use crate::fence::kept::{self, Kept, damaged};
use crate::locks::ResourceName;

/// The folder's name in the protected directory.
pub(super) const FOLDER: &str = ".ringfence";

/// How long to wait between two looks at the lock. The system tells nobody when it is free.
const LOOK: Duration = Duration::from_millis(2);

const STAGED: &str = "new-";

/// What one step changes.
pub(super) type Changes = BTreeMap<ResourceName, Kept>;

/// The folder of one protected directory.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    pub directory: PathBuf,
    pub path: PathBuf,
}

/// The folder while its lock is held. It is freed when this is dropped, or the process dies.
pub(super) struct Held<'a> {
    folder: &'a Folder,
    _lock: File,
}

/// A file that is to be moved to its place in the protected directory.
pub(super) struct Move {
    /// Its name in the folder.
    pub staged: String,
    /// Where it goes, from the protected directory.
    pub to: PathBuf,
}

/// The last step, which may be unfinished.
struct Record {
    moved: Option<Move>,
    changes: Changes,
}

impl Folder {
    /// Makes what is missing, and finishes what another has left behind.
    pub fn install(&self, within: Duration) -> Result<(), FenceError> {
        make_folders(&self.directory, &self.path)?;
        File::options().create(true).append(true).open(self.path.join("lock")).map_err(store)?;
        let held = Held { folder: self, _lock: self.lock(within)? };
        match self.known_schema() {
            Err(FenceError::SchemaMissing) => {
                make_folders(&self.path, &self.path.join("marks"))?;
                // The version is last: without it nothing here is used.
                let fresh = self.path.join("version.new");
                write_synced(&fresh, kept::sealed("marks", "").as_bytes())?;
                rename(&fresh, &self.path.join("version"))?;
            }
            known => known?,
        }
        held.finish()
    }

    /// Takes the lock and finishes what another has left behind.
    pub fn hold(&self, within: Duration) -> Result<Held<'_>, FenceError> {
        let held = Held { folder: self, _lock: self.lock(within)? };
        self.known_schema()?;
        held.finish()?;
        Ok(held)
    }

    /// What is kept of a resource, at a moment during this call. Needs no lock: the record is
    /// read first, and a mark that it has left is behind it.
    pub fn kept(&self, resource: &ResourceName) -> Result<Option<Kept>, FenceError> {
        self.known_schema()?;
        if let Some(mut record) = self.record()?
            && let Some(kept) = record.changes.remove(resource)
        {
            return Ok(Some(kept));
        }
        let path = self.path.join("marks").join(place(resource.as_str()));
        match mark_file(&path)? {
            Some((found, kept)) if found == *resource => Ok(Some(kept)),
            Some(_) => Err(damaged(&path.display().to_string())),
            None => Ok(None),
        }
    }

    fn known_schema(&self) -> Result<(), FenceError> {
        let version = read(&self.path.join("version"))?.ok_or(FenceError::SchemaMissing)?;
        kept::unsealed("marks", &version).map(drop)
    }

    fn lock(&self, within: Duration) -> Result<File, FenceError> {
        let (path, until) = (self.path.join("lock"), Moment::now().plus(within));
        loop {
            let lock = match File::options().read(true).append(true).open(&path) {
                Ok(lock) => lock,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(FenceError::SchemaMissing);
                }
                Err(error) => return Err(store(error)),
            };
            match lock.try_lock() {
                // A lock on a file that another has put away excludes nobody.
                Ok(()) if same(&lock, &path)? => return Ok(lock),
                Ok(()) => continue,
                Err(TryLockError::Error(error)) => return Err(store(error)),
                Err(TryLockError::WouldBlock) => {}
            }
            let left = until.since(Moment::now());
            if left.is_zero() {
                let held = format!("{} is locked by another process or thread", path.display());
                return Err(FenceError::Busy(held.into()));
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    fn record(&self) -> Result<Option<Record>, FenceError> {
        let Some(bytes) = read(&self.path.join("commit"))? else { return Ok(None) };
        let (lines, _) = kept::unsealed("commit", &bytes)?;
        let Some(written) = lines.strip_prefix("move ") else {
            return Ok(Some(Record { moved: None, changes: kept::from_lines(lines)? }));
        };
        let read = || {
            let (line, lines) = written.split_once('\n')?;
            let (staged, to) = line.split_once(' ')?;
            let to = PathBuf::from(OsStr::from_bytes(&decoded(to)?));
            Some((Move { staged: staged.to_owned(), to }, lines))
        };
        let (moved, lines) = read().ok_or_else(|| damaged("the commit record"))?;
        Ok(Some(Record { moved: Some(moved), changes: kept::from_lines(lines)? }))
    }
}

impl Held<'_> {
    /// Makes a file in the folder for what is to be moved to its place.
    pub fn stage(&self) -> Result<(String, File), FenceError> {
        let staged = format!("{STAGED}{:016x}", rand::random::<u64>());
        let file = File::options().write(true).create_new(true).open(self.path().join(&staged));
        Ok((staged, file.map_err(store)?))
    }

    /// Puts away what was staged for a step that was not taken.
    pub fn unstage(&self, staged: &str) {
        // What cannot be removed now is by the next one that takes the lock.
        let _ = fs::remove_file(self.path().join(staged));
    }

    /// Takes one step: the marks of `changes`, and the move. It is durable, and will be
    /// finished by whoever comes, once the record has its name.
    pub fn commit(&self, moved: Option<Move>, changes: &Changes) -> Result<(), FenceError> {
        let mut lines = String::new();
        if let Some(Move { staged, to }) = &moved {
            // The staged file has its name on disk before anything speaks of it.
            sync(self.path())?;
            lines = format!("move {staged} {}\n", coded(to.as_os_str().as_bytes()));
        }
        lines.push_str(&kept::lines(changes));
        let (fresh, record) = (self.path().join("commit.new"), self.path().join("commit"));
        write_synced(&fresh, kept::sealed("commit", &lines).as_bytes())?;
        rename(&fresh, &record)?;
        if let Some(Move { staged, to }) = moved {
            let to = self.folder.directory.join(to);
            if let Err(error) = fs::rename(self.path().join(staged), &to) {
                // Nobody has seen this step: it is taken back, or else left to the next one.
                fs::remove_file(&record).and_then(|()| File::open(self.path())?.sync_all()).ok();
                return Err(store(error));
            }
            sync(above(&to))?;
        }
        self.raise(changes)?;
        self.forget()
    }

    /// Every mark there is.
    pub fn all(&self) -> Result<Changes, FenceError> {
        let (mut all, mut folders) = (Changes::new(), vec![self.path().join("marks")]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).map_err(store)? {
                let entry = entry.map_err(store)?;
                if entry.file_type().map_err(store)?.is_dir() {
                    folders.push(entry.path());
                } else {
                    all.extend(mark_file(&entry.path())?);
                }
            }
        }
        Ok(all)
    }

    fn path(&self) -> &Path {
        &self.folder.path
    }

    /// Finishes the last step, and puts away what belongs to none.
    fn finish(&self) -> Result<(), FenceError> {
        if let Some(Record { moved, changes }) = self.folder.record()? {
            if let Some(Move { staged, to }) = moved {
                let (staged, to) = (self.path().join(staged), self.folder.directory.join(to));
                if staged.try_exists().map_err(store)? {
                    fs::rename(staged, &to).map_err(store)?;
                }
                // Moved before or just now, from here on it stays.
                sync(above(&to))?;
            }
            self.raise(&changes)?;
            self.forget()?;
        }
        for entry in fs::read_dir(self.path()).map_err(store)? {
            let name = entry.map_err(store)?.file_name();
            if name.as_bytes().starts_with(STAGED.as_bytes()) {
                fs::remove_file(self.path().join(name)).map_err(store)?;
            }
        }
        Ok(())
    }

    fn raise(&self, changes: &Changes) -> Result<(), FenceError> {
        for change in changes {
            let marks = self.path().join("marks");
            let path = marks.join(place(change.0.as_str()));
            make_folders(&marks, above(&path))?;
            let fresh = self.path().join("mark.new");
            write_synced(&fresh, kept::sealed("mark", &kept::lines([change])).as_bytes())?;
            rename(&fresh, &path)?;
        }
        Ok(())
    }

    /// Not synced: should the record come back, what it says is done already, and the next
    /// step takes its name.
    fn forget(&self) -> Result<(), FenceError> {
        fs::remove_file(self.path().join("commit")).map_err(store)
    }
}

pub(super) fn store(error: io::Error) -> FenceError {
    FenceError::Store(Box::new(error))
}

/// Reads the file of one resource's marks.
fn mark_file(path: &Path) -> Result<Option<(ResourceName, Kept)>, FenceError> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let (lines, _) = kept::unsealed("mark", &bytes)?;
    let mut found = kept::from_lines(lines)?.into_iter();
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(Some(one)),
        (None | Some(_), _) => Err(damaged(&path.display().to_string())),
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, FenceError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(store(error)),
    }
}

fn same(lock: &File, path: &Path) -> Result<bool, FenceError> {
    let ours = lock.metadata().map_err(store)?;
    match fs::metadata(path) {
        Ok(there) => Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(store(error)),
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), FenceError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(store)
}

/// Gives a file its name; on return it is on disk.
fn rename(from: &Path, to: &Path) -> Result<(), FenceError> {
    fs::rename(from, to).map_err(store)?;
    sync(above(to))
}

fn sync(folder: &Path) -> Result<(), FenceError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(store)
}

/// Makes the folders from `top`, which is there, down to `path`. On return their names are on
/// disk, also where another has made them and was cut off.
fn make_folders(top: &Path, path: &Path) -> Result<(), FenceError> {
    if path == top {
        return Ok(());
    }
    make_folders(top, above(path))?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(store(error)),
        Ok(()) | Err(_) => {}
    }
    sync(above(path))
}

fn above(path: &Path) -> &Path {
    path.parent().expect("what has a name is in a folder")
}
