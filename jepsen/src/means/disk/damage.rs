//! Damage to the files of a node that is down.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// What was done to a file, for the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The first byte that is gone or changed.
    pub at: u64,
    /// How many bytes are gone or changed.
    pub bytes: u64,
}

/// The file under `folder`, at any depth, whose name ends in `ending` and whose number in the
/// name is the highest: RocksDB's newest write-ahead log, for `.log`.
///
/// # Errors
/// There is none, or the folder cannot be read.
pub fn newest(folder: &Path, ending: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    collect(folder, ending, &mut found)?;
    let newest = found.into_iter().max();
    let (_, path) =
        newest.with_context(|| format!("no file under {} ends in {ending}", folder.display()))?;
    Ok(path)
}

/// Files by their number; files without one come first.
fn collect(folder: &Path, ending: &str, found: &mut Vec<(u64, PathBuf)>) -> Result<()> {
    let failed = || format!("cannot list {}", folder.display());
    for entry in fs::read_dir(folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if path.is_dir() {
            collect(&path, ending, found)?;
        } else if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && name.ends_with(ending)
        {
            let digits: String = name.chars().filter(char::is_ascii_digit).collect();
            found.push((digits.parse().unwrap_or(0), path));
        }
    }
    Ok(())
}

/// Cuts bytes off a file's end: a write that the crash tore.
///
/// # Errors
/// The file has no more than that, or cannot be changed.
pub fn truncate(path: &Path, bytes: u64) -> Result<Damage> {
    let failed = || format!("cannot truncate {}", path.display());
    let file = OpenOptions::new().write(true).open(path).with_context(failed)?;
    let length = file.metadata().with_context(failed)?.len();
    ensure!(bytes > 0 && bytes < length, "{}: {length} bytes, not over {bytes}", path.display());
    file.set_len(length - bytes).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    Ok(Damage { path: path.into(), at: length - bytes, bytes })
}

/// Inverts one byte of a file: what a disk returns that has forgotten.
///
/// # Errors
/// The file has no such byte, or cannot be changed.
pub fn flip(path: &Path, at: u64) -> Result<Damage> {
    let failed = || format!("cannot flip byte {at} of {}", path.display());
    let file = OpenOptions::new().read(true).write(true).open(path).with_context(failed)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).with_context(failed)?;
    file.write_all_at(&[!byte[0]], at).with_context(failed)?;
    file.sync_all().with_context(failed)?;
    Ok(Damage { path: path.into(), at, bytes: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_log_is_the_one_with_the_highest_number_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("db");
        fs::create_dir(&below).unwrap();
        for name in ["000009.log", "000010.log", "000011.sst", "LOG"] {
            fs::write(below.join(name), name).unwrap();
        }
        assert_eq!(newest(folder.path(), ".log").unwrap(), below.join("000010.log"));
        let error = newest(folder.path(), ".none").unwrap_err().to_string();
        assert!(error.contains(".none"), "{error}");
    }

    #[test]
    fn damage_is_what_it_says_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000001.log");
        fs::write(&path, [1, 2, 3, 4, 5]).unwrap();
        assert_eq!(truncate(&path, 2).unwrap(), Damage { path: path.clone(), at: 3, bytes: 2 });
        assert_eq!(flip(&path, 1).unwrap(), Damage { path: path.clone(), at: 1, bytes: 1 });
        assert_eq!(fs::read(&path).unwrap(), [1, !2, 3]);
        assert!(truncate(&path, 3).is_err());
        assert!(flip(&path, 3).is_err());
    }
}
