//! Why a data folder cannot be used. Each in one line that says what to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::locks::ClusterId;

use super::format::{FORMAT_VERSION, FormatError};

/// A data folder cannot be opened or written. The node does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The path is no folder that this process can create and write in.
    #[error(
        "{path}: cannot be used as a data folder ({source}); give a folder that this user can write in"
    )]
    Folder {
        /// The folder asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process, or this one, has it open.
    #[error("{path}: the data folder is in use by another process; stop it or give another folder")]
    Locked {
        /// The folder asked for.
        path: PathBuf,
    },
    /// The folder belongs to another node.
    #[error(
        "{path}: this is the data folder of node {found}, not of node {wanted}; give the folder of node {wanted} or an empty one"
    )]
    OtherNode {
        /// The folder asked for.
        path: PathBuf,
        /// The node it was created for.
        found: u64,
        /// The node that asked.
        wanted: u64,
    },
    /// The folder belongs to another cluster.
    #[error(
        "this data folder belongs to cluster {found}, not to {wanted}; give this node the folder of cluster {wanted} or an empty one"
    )]
    OtherCluster {
        /// The cluster it was adopted by.
        found: ClusterId,
        /// The cluster that asked.
        wanted: ClusterId,
    },
    /// The folder was written in a format that this release does not read.
    #[error(
        "{path}: written in format {found}, this release reads up to format {FORMAT_VERSION}; use a newer release"
    )]
    UnknownFormat {
        /// The folder asked for.
        path: PathBuf,
        /// What it says it is.
        found: String,
    },
    /// Something in the folder is not what was written there.
    #[error(
        "{path}: the data folder is corrupt ({what}); do not repair it: remove this node from the cluster and add it anew with an empty folder"
    )]
    Corrupt {
        /// The folder asked for.
        path: PathBuf,
        /// Where and how.
        what: String,
    },
    /// There is less room than the reserve.
    #[error("{path}: disk full: {free} bytes free, {reserve} are needed to start; free space")]
    DiskFull {
        /// The folder asked for.
        path: PathBuf,
        /// Bytes this process may still write.
        free: u64,
        /// [`super::StorageOptions::disk_reserve`].
        reserve: u64,
    },
    /// Reading or writing failed.
    #[error("{path}: {what}; check the disk and restart")]
    Io {
        /// The folder asked for.
        path: PathBuf,
        /// What failed.
        what: String,
    },
    /// The storage was closed, or stopped at an earlier error, which it names.
    #[error("{0}")]
    Stopped(io::Error),
}

impl StorageError {
    pub(super) fn corrupt(path: &Path, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), what: what.into() }
    }

    /// Sorts what RocksDB says, whose errors are texts that begin with a kind.
    pub(super) fn from_rocks(path: &Path, error: &rocksdb::Error) -> Self {
        let text: &str = error.as_ref();
        match error.kind() {
            rocksdb::ErrorKind::Corruption => Self::corrupt(path, text),
            rocksdb::ErrorKind::IOError if text.contains("lock") => {
                Self::Locked { path: path.to_owned() }
            }
            _ => Self::Io { path: path.to_owned(), what: text.to_owned() },
        }
    }

    pub(super) fn from_format(path: &Path, record: &str, error: &FormatError) -> Self {
        Self::corrupt(path, format!("{record}: {error}"))
    }
}
