//! Opens a node's data folder: creates it, or proves that it is this node's, whole,
//! and in a format this release reads.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::mpsc;

use bytes::Bytes;
use rocksdb::{DB, Options, WriteBatch};

use crate::locks::ClusterId;
use crate::raft_types::LogId;

use super::Identity;
use super::db::{Db, FAMILIES, free_bytes, key, scan_options};
use super::error::StorageError;
use super::format::{
    FORMAT_VERSION, FormatError, decode_applied, decode_entry, decode_log_id, decode_vote,
};
use super::options::StorageOptions;
use super::tail::Recovered;
use super::wal;

/// RocksDB's files, inside the data folder.
const DATABASE: &str = "db";
/// The file that makes a folder a RocksDB database.
const CURRENT: &str = "CURRENT";

/// A folder that may be used.
pub(super) struct Opened {
    pub db: Db,
    pub closed: mpsc::Receiver<()>,
    pub identity: Identity,
    pub cluster: Option<ClusterId>,
    pub log: Recovered,
    pub fresh: bool,
}

pub(super) fn open(
    path: &Path,
    node_id: u64,
    options: &StorageOptions,
) -> Result<Opened, StorageError> {
    let database = path.join(DATABASE);
    prepare(path, &database, options)?;
    let create = !database.join(CURRENT).exists();
    let incomplete = !create && misses_families(path, &database)?;
    check_wals(path, &database)?;
    let (db, closed) = Db::open(&database, create, incomplete, options)
        .map_err(|error| StorageError::from_rocks(path, &error))?;
    let meta = Meta { path, db: &db };
    let identity = match meta.get(key::FORMAT)? {
        Some(_) if incomplete => return Err(meta.corrupt("a column family is missing")),
        Some(format) => meta.check(&format, node_id)?,
        None => meta.create(node_id)?,
    };
    let cluster = meta.decode(key::CLUSTER, |bytes| {
        ClusterId::from_slice(bytes).map_err(|_| FormatError::Field("not 16 bytes"))
    })?;
    let log = recover(&meta)?;
    let fresh = log.vote.is_none() && log.entries.is_none() && log.purged.is_none();
    Ok(Opened { closed, identity, cluster, log, fresh, db })
}

/// Creates the folder if need be, durably; refuses what is no folder of ours before
/// RocksDB puts files into it.
fn prepare(path: &Path, database: &Path, options: &StorageOptions) -> Result<(), StorageError> {
    let refused = |source: io::Error| StorageError::Folder { path: path.to_owned(), source };
    let is_new = !path.exists();
    fs::create_dir_all(database).map_err(refused)?;
    File::open(path).and_then(|folder| folder.sync_all()).map_err(refused)?;
    if let (true, Some(parent)) = (is_new, path.canonicalize().map_err(refused)?.parent()) {
        File::open(parent).and_then(|folder| folder.sync_all()).map_err(refused)?;
    }
    let free = free_bytes(path).map_err(refused)?;
    if free < options.disk_reserve {
        let reserve = options.disk_reserve;
        return Err(StorageError::DiskFull { path: path.to_owned(), free, reserve });
    }
    if database.join(CURRENT).exists() {
        return Ok(());
    }
    // Never make a new database over the remains of an old one: the node would have
    // forgotten its votes.
    for file in fs::read_dir(database).map_err(refused)? {
        let name = file.map_err(refused)?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".sst") || name.ends_with(".log") {
            let what = format!("there is {name} but no {CURRENT} in {DATABASE}");
            return Err(StorageError::corrupt(path, what));
        }
    }
    Ok(())
}

/// Whether some families are yet to be created, as after a creation that was cut
/// short. A newer release may have more: opening would fail less clearly.
fn misses_families(path: &Path, database: &Path) -> Result<bool, StorageError> {
    let families = DB::list_cf(&Options::default(), database)
        .map_err(|error| StorageError::from_rocks(path, &error))?;
    if let Some(unknown) = families.iter().find(|name| !FAMILIES.contains(&name.as_str())) {
        let found = format!("with a part named {unknown}");
        return Err(StorageError::UnknownFormat { path: path.to_owned(), found });
    }
    Ok(families.len() < FAMILIES.len())
}

/// Refuses what RocksDB would take for the traces of a crash.
fn check_wals(path: &Path, database: &Path) -> Result<(), StorageError> {
    let unreadable =
        |error: io::Error| StorageError::Io { path: path.to_owned(), what: error.to_string() };
    for file in fs::read_dir(database).map_err(unreadable)? {
        let file = file.map_err(unreadable)?.path();
        if file.extension().is_some_and(|extension| extension == "log")
            && let Some(at) = wal::damaged_at(&file).map_err(unreadable)?
        {
            let file = file.display();
            return Err(StorageError::corrupt(path, format!("{file} is damaged at byte {at}")));
        }
    }
    Ok(())
}

/// The records of the meta family.
struct Meta<'a> {
    path: &'a Path,
    db: &'a Db,
}

impl Meta<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let value = self.db.rocks.get_cf(self.db.meta(), key);
        Ok(value.map_err(|error| StorageError::from_rocks(self.path, &error))?.map(Bytes::from))
    }

    fn decode<T>(
        &self,
        key: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<Option<T>, StorageError> {
        let record = String::from_utf8_lossy(key);
        self.get(key)?
            .map(|bytes| decode(&bytes))
            .transpose()
            .map_err(|error| StorageError::from_format(self.path, &record, &error))
    }

    /// Reads who the folder belongs to, and writes the format anew: a first write,
    /// synced, so that a disk that takes none is found now.
    fn check(&self, format: &[u8], node_id: u64) -> Result<Identity, StorageError> {
        let found = <[u8; 4]>::try_from(format).map(u32::from_be_bytes);
        if !matches!(found, Ok(FORMAT_VERSION)) {
            let found = found.map_or_else(|_| format!("{format:02x?}"), |n| n.to_string());
            return Err(StorageError::UnknownFormat { path: self.path.to_owned(), found });
        }
        let identity = self.decode(key::NODE, decode_identity)?;
        let identity = identity.ok_or_else(|| self.corrupt("the node's identity is missing"))?;
        if identity.node_id != node_id {
            return Err(StorageError::OtherNode {
                path: self.path.to_owned(),
                found: identity.node_id,
                wanted: node_id,
            });
        }
        self.write_identity(&identity)?;
        Ok(identity)
    }

    /// Makes the empty database this node's.
    fn create(&self, node_id: u64) -> Result<Identity, StorageError> {
        for family in [self.db.meta(), self.db.log(), self.db.rows()] {
            let mut iterator = self.db.rocks.raw_iterator_cf(family);
            iterator.seek_to_first();
            if iterator.valid() {
                return Err(self.corrupt("the format record is missing"));
            }
        }
        let identity = Identity { node_id, incarnation: rand::random() };
        self.write_identity(&identity)?;
        Ok(identity)
    }

    fn write_identity(&self, identity: &Identity) -> Result<(), StorageError> {
        let mut batch = WriteBatch::default();
        batch.put_cf(self.db.meta(), key::FORMAT, FORMAT_VERSION.to_be_bytes());
        batch.put_cf(self.db.meta(), key::NODE, encode_identity(identity));
        let written = self.db.write_synced(batch);
        written.map_err(|error| StorageError::from_rocks(self.path, &error))
    }

    fn corrupt(&self, what: impl Into<String>) -> StorageError {
        StorageError::corrupt(self.path, what)
    }
}

/// 8 bytes of node id, big endian, and the 16 of the incarnation.
fn encode_identity(identity: &Identity) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&identity.node_id.to_be_bytes());
    bytes[8..].copy_from_slice(&identity.incarnation);
    bytes
}

fn decode_identity(bytes: &[u8]) -> Result<Identity, FormatError> {
    let bytes: &[u8; 24] =
        bytes.try_into().map_err(|_| FormatError::Field("an identity is not 24 bytes"))?;
    let (node_id, incarnation) = bytes.split_at(8);
    Ok(Identity {
        node_id: u64::from_be_bytes(node_id.try_into().expect("8 of 24 bytes")),
        incarnation: incarnation.try_into().expect("16 of 24 bytes"),
    })
}

/// Reads what Raft must know. Goes through every entry and every row once, so that
/// damage is found now and not when a peer or a client asks for it: some seconds
/// per gigabyte.
fn recover(meta: &Meta<'_>) -> Result<Recovered, StorageError> {
    meta.decode(key::APPLIED, |bytes| decode_applied(bytes))?;
    let purged = meta.decode(key::PURGED, |bytes| decode_log_id(bytes))?;
    let entries = scan_log(meta, purged)?;
    scan_rows(meta)?;
    Ok(Recovered {
        vote: meta.decode(key::VOTE, |bytes| decode_vote(bytes))?,
        committed: meta.decode(key::COMMITTED, |bytes| decode_log_id(bytes))?,
        purged,
        entries,
    })
}

/// Index of the first entry behind the purged ones, and log id of the last; they and
/// all between are there.
fn scan_log(meta: &Meta<'_>, purged: Option<LogId>) -> Result<Option<(u64, LogId)>, StorageError> {
    let begin = purged.map_or(0, |id| id.index + 1);
    let mut options = scan_options();
    options.set_iterate_lower_bound(begin.to_be_bytes());
    let mut iterator = meta.db.rocks.raw_iterator_cf_opt(meta.db.log(), options);
    iterator.seek_to_first();
    let mut first = None;
    let mut last: Option<LogId> = None;
    while let Some((key, value)) = iterator.item() {
        let id = decode_entry(value)
            .map_err(|error| StorageError::from_format(meta.path, "a log entry", &error))?
            .log_id;
        if key != id.index.to_be_bytes() {
            return Err(meta.corrupt(format!("log entry {id} is stored in another's place")));
        }
        // Without a purged mark the log begins wherever its first entry is.
        let due = last.or(purged).map_or(id.index, |before| before.index + 1);
        if id.index != due {
            return Err(meta.corrupt(format!("log entry {due} is missing before {id}")));
        }
        first.get_or_insert(id.index);
        last = Some(id);
        iterator.next();
    }
    iterator.status().map_err(|error| StorageError::from_rocks(meta.path, &error))?;
    Ok(first.zip(last))
}

fn scan_rows(meta: &Meta<'_>) -> Result<(), StorageError> {
    let mut iterator = meta.db.rocks.raw_iterator_cf_opt(meta.db.rows(), scan_options());
    iterator.seek_to_first();
    while iterator.valid() {
        iterator.next();
    }
    iterator.status().map_err(|error| StorageError::from_rocks(meta.path, &error))
}
