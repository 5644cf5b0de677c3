//! A temporary folder.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Others may pass through, to what is theirs inside; they see nothing else.
const MODE: u32 = 0o711;

/// Removed, with all that is in it, when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates one that nobody else has.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(purpose: &str) -> anyhow::Result<Self> {
        Self::create_in(&std::env::temp_dir(), purpose)
    }

    /// Creates one in this folder.
    ///
    /// # Errors
    /// What the system says.
    pub fn create_in(folder: &Path, purpose: &str) -> anyhow::Result<Self> {
        let names = (0..).map(|n: u64| format!("ringfence-{purpose}-{}-{n}", std::process::id()));
        for name in names {
            let path = folder.join(name);
            match DirBuilder::new().mode(MODE).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left over by a process that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot create {}", path.display()));
                }
            }
        }
        unreachable!("there is always another number")
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            super::super::say(&format!("cannot remove {}: {error}", self.0.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_differ_and_a_dropped_one_is_gone() {
        let (one, other) = (Folder::create("test"), Folder::create("test"));
        let (one, other) = (one.expect("writable"), other.expect("writable"));
        assert_ne!(one.path(), other.path());
        let path = one.path().to_owned();
        std::fs::write(path.join("file"), "text").expect("ours");
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }
}
