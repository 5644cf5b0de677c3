//! Marks in the same RocksDB as what they protect, in a column family of their own.
//!
//! A write is a [`WriteBatch`]: [`Marks::guarded`] checks the fences, puts the marks into the
//! same batch and writes it, synced, so that both are there after a crash or neither. The
//! marks are locked from the check to the write by this process, which is enough: RocksDB lets
//! one process, with one handle, write to a database. It works with the `DB` that an
//! application has already; a `TransactionDB` would have to be opened as one by everybody, and
//! its locks are of one process too.
//!
//! - All [`Marks`] of one `DB` share their locks, and there is one column family of marks in a
//!   database, [`COLUMN_FAMILY`]: there is no second set of marks to be asked by mistake.
//!   Open it with the others; [`column_family`] describes it.
//! - A batch that touches the marks is refused. Nothing stops a write of the application's own
//!   to that column family, or one that is not made by [`Marks::guarded`].
//! - Nothing of the caller's runs under the lock: a frozen owner has written, or has not come.
//!   Only a process that is frozen in the midst of the write holds up others, all of whom are
//!   in the same process.
//! - Every write is synced, and the write-ahead log is on. A database opened with a time to
//!   live drops marks, and so do a restore, `repair` and `SkipAnyCorruptedRecord`: this
//!   cannot tell, do not use them on it.
//! - Writers of one resource, holders of a shared one too, write one after another; those of
//!   different resources share a sync, as far as they do not share one of the locks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rocksdb::{ColumnFamilyDescriptor, DB, IteratorMode, Options, WriteBatch, WriteOptions};
use xxhash_rust::xxh3::xxh3_64;

use super::error::FenceError;
use super::rule::{self, Verdict, check_set, decide};
use super::target::{FenceTarget, target};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// The version that [`Marks::install`] sets up.
pub const SCHEMA_VERSION: u32 = 1;

/// The column family of the marks.
pub const COLUMN_FAMILY: &str = "ringfence";

/// No resource's name begins so.
const VERSION: &[u8] = b"\0version";

/// How many locks the resources of one database share.
const LOCKS: usize = 64;

/// The marks in one database.
#[derive(Debug, Clone)]
pub struct Marks {
    db: Arc<DB>,
    locks: Arc<Locks>,
}

type Locks = [Mutex<()>; LOCKS];

/// The column family of the marks as it is to be opened, beside the application's own.
pub fn column_family() -> ColumnFamilyDescriptor {
    ColumnFamilyDescriptor::new(COLUMN_FAMILY, Options::default())
}

impl Marks {
    /// The marks in this database.
    pub fn new(db: Arc<DB>) -> Self {
        Self { locks: locks_of(&db), db }
    }

    /// Sets up the marks, in their column family, which is there ([`column_family`]). Does
    /// nothing where they are already.
    ///
    /// # Errors
    /// [`FenceError::SchemaMissing`] without the column family; [`FenceError::SchemaNewer`];
    /// and what RocksDB says.
    pub fn install(&self) -> Result<(), FenceError> {
        let family = self.db.cf_handle(COLUMN_FAMILY).ok_or(FenceError::SchemaMissing)?;
        let _locked = self.lock(0..LOCKS);
        if self.db.get_cf(&family, VERSION)?.is_some() {
            return self.known_schema();
        }
        let mut batch = WriteBatch::default();
        batch.put_cf(&family, VERSION, SCHEMA_VERSION.to_be_bytes());
        self.write(batch)
    }

    /// Checks the fences of one grant, raises the marks and writes the batch, in one step that
    /// is on disk when this returns. The fences may be in any order, each of another resource;
    /// all are accepted, or none.
    ///
    /// # Errors
    /// [`FenceError::Set`], [`FenceError::Stale`], [`FenceError::FloorAboveToken`],
    /// [`FenceError::ForeignCluster`], [`FenceError::SchemaMissing`] and
    /// [`FenceError::SchemaNewer`]: nothing was written. [`FenceError::Store`]: a batch that
    /// touches the marks, or what RocksDB says, after which nobody knows.
    pub fn guarded(&self, fences: &[Fence], batch: WriteBatch) -> Result<(), FenceError> {
        check_set(fences)?;
        self.known_schema()?;
        self.leaves_marks_alone(&batch)?;
        let mut batch = batch;
        let mut fences: Vec<&Fence> = fences.iter().collect();
        fences.sort_by(|one, other| one.resource.cmp(&other.resource));
        let _locked = self.lock(fences.iter().map(|fence| lock_of(&fence.resource)));
        let family = self.db.cf_handle(COLUMN_FAMILY).ok_or(FenceError::SchemaMissing)?;
        for fence in fences {
            let marks = match decide(self.known(fence)?, fence) {
                Verdict::Accept(marks) => marks,
                Verdict::Refuse(refusal) => return Err(FenceError::refused(fence, refusal)),
            };
            let mut put = |slot, mark| {
                batch.put_cf(&family, key(&fence.resource, slot), value(marks.cluster, mark));
            };
            put(None, marks.resource);
            if let (Some(slot), Some(mark)) = (fence.slot, marks.slot) {
                put(Some(slot), mark);
            }
        }
        self.write(batch)
    }

    /// Raises the marks without a write: from its return on, no earlier owner's batch is
    /// written.
    ///
    /// # Errors
    /// As [`Self::guarded`].
    pub fn raise(&self, fences: &[Fence]) -> Result<(), FenceError> {
        self.guarded(fences, WriteBatch::default())
    }

    /// The mark of a resource, or of one of its slots.
    ///
    /// # Errors
    /// [`FenceError::SchemaMissing`], [`FenceError::SchemaNewer`], and what RocksDB says.
    pub fn mark(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
    ) -> Result<Option<Token>, FenceError> {
        self.known_schema()?;
        Ok(self.stored(resource, slot)?.map(|(_, mark)| mark))
    }

    /// Takes the marks of authority `from` over for authority `to`, as after a restore;
    /// returns how many resources changed hands: all of them in one step. No mark falls.
    ///
    /// # Errors
    /// As [`Self::mark`].
    pub fn adopt(&self, from: ClusterId, to: ClusterId) -> Result<usize, FenceError> {
        self.known_schema()?;
        let family = self.db.cf_handle(COLUMN_FAMILY).ok_or(FenceError::SchemaMissing)?;
        let _locked = self.lock(0..LOCKS);
        let (mut batch, mut taken) = (WriteBatch::default(), 0);
        for row in self.db.iterator_cf(&family, IteratorMode::Start) {
            let (key, bytes) = row?;
            if key.starts_with(b"\0") {
                continue;
            }
            let (cluster, mark) = read(&bytes)?;
            if cluster == from {
                batch.put_cf(&family, &key, value(to, mark));
                taken += usize::from(!key.contains(&0));
            }
        }
        self.write(batch)?;
        Ok(taken)
    }

    /// This database as strict handoff sees it. A raise that is dropped, or takes longer than
    /// it was given, goes on.
    pub fn target(&self) -> impl FenceTarget + use<> {
        let marks = self.clone();
        let name = format!("rocksdb:{}", self.db.path().display());
        target(name, move |fences: Vec<Fence>, within| {
            let marks = marks.clone();
            async move {
                let raise = tokio::task::spawn_blocking(move || marks.raise(&fences));
                match tokio::time::timeout(within, raise).await {
                    Ok(Ok(raised)) => raised,
                    Ok(Err(error)) => Err(FenceError::Store(Box::new(error))),
                    Err(late) => Err(FenceError::Busy(Box::new(late))),
                }
            }
        })
    }

    fn known(&self, fence: &Fence) -> Result<Option<rule::Marks>, FenceError> {
        let Some((cluster, resource)) = self.stored(&fence.resource, None)? else {
            return Ok(None);
        };
        let slot = match fence.slot {
            Some(slot) => self.stored(&fence.resource, Some(slot))?.map(|(_, mark)| mark),
            None => None,
        };
        Ok(Some(rule::Marks { cluster, resource, slot }))
    }

    fn stored(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
    ) -> Result<Option<(ClusterId, Token)>, FenceError> {
        let family = self.db.cf_handle(COLUMN_FAMILY).ok_or(FenceError::SchemaMissing)?;
        let bytes = self.db.get_cf(&family, key(resource, slot))?;
        bytes.map(|bytes| read(&bytes)).transpose()
    }

    fn known_schema(&self) -> Result<(), FenceError> {
        let family = self.db.cf_handle(COLUMN_FAMILY).ok_or(FenceError::SchemaMissing)?;
        let version = self.db.get_cf(&family, VERSION)?.ok_or(FenceError::SchemaMissing)?;
        match <[u8; 4]>::try_from(version).map(u32::from_be_bytes) {
            Ok(SCHEMA_VERSION) => Ok(()),
            Ok(found) if found > SCHEMA_VERSION => {
                Err(FenceError::SchemaNewer { found, known: SCHEMA_VERSION })
            }
            Ok(_) | Err(_) => Err(FenceError::SchemaMissing),
        }
    }

    fn leaves_marks_alone(&self, batch: &WriteBatch) -> Result<(), FenceError> {
        let family = self.db.cf_handle(COLUMN_FAMILY).ok_or(FenceError::SchemaMissing)?;
        let mut ours = WriteBatch::default();
        ours.delete_cf(&family, VERSION);
        match (families(ours.data()), families(batch.data())) {
            (Some(ours), Some(theirs)) if ours.is_disjoint(&theirs) => Ok(()),
            (Some(_), Some(_)) => {
                Err(FenceError::Store("the batch writes to the marks themselves".into()))
            }
            (None, _) | (_, None) => {
                Err(FenceError::Store("the batch holds what cannot be checked".into()))
            }
        }
    }

    /// In ascending order, so that two never wait for one another. What they protect is in
    /// the database: a panic leaves nothing half done here.
    fn lock(&self, numbers: impl IntoIterator<Item = usize>) -> Vec<MutexGuard<'_, ()>> {
        let numbers: BTreeSet<usize> = numbers.into_iter().collect();
        let locks = numbers.into_iter().map(|number| &self.locks[number]);
        locks.map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    fn write(&self, batch: WriteBatch) -> Result<(), FenceError> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        Ok(self.db.write_opt(batch, &options)?)
    }
}

/// The locks of a database, the same for all who ask. One that is still held keeps its
/// database, so no other has its address.
fn locks_of(db: &Arc<DB>) -> Arc<Locks> {
    static ALL: Mutex<BTreeMap<usize, Weak<Locks>>> = Mutex::new(BTreeMap::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, locks| locks.strong_count() > 0);
    let address = Arc::as_ptr(db).addr();
    all.get(&address).and_then(Weak::upgrade).unwrap_or_else(|| {
        let locks = Arc::new(std::array::from_fn(|_| Mutex::default()));
        all.insert(address, Arc::downgrade(&locks));
        locks
    })
}

fn lock_of(resource: &ResourceName) -> usize {
    let [first, ..] = xxh3_64(resource.as_str().as_bytes()).to_le_bytes();
    usize::from(first) % LOCKS
}

/// The name, and for a slot what no name holds and its number: frozen.
fn key(resource: &ResourceName, slot: Option<u32>) -> Vec<u8> {
    let mut key = resource.as_str().as_bytes().to_vec();
    if let Some(slot) = slot {
        key.push(0);
        key.extend(slot.to_be_bytes());
    }
    key
}

/// The authority and the mark: frozen.
fn value(cluster: ClusterId, mark: Token) -> [u8; 24] {
    let mut value = [0; 24];
    value[..16].copy_from_slice(cluster.as_bytes());
    value[16..].copy_from_slice(&mark.get().to_be_bytes());
    value
}

fn read(value: &[u8]) -> Result<(ClusterId, Token), FenceError> {
    let read = || {
        let (cluster, mark) = value.split_at_checked(16)?;
        let mark = u64::from_be_bytes(mark.try_into().ok()?);
        Some((ClusterId::from_slice(cluster).ok()?, Token::new(mark).ok()?))
    };
    read().ok_or_else(|| FenceError::Store("a mark is damaged".into()))
}

/// The column families that a batch touches; none if it holds what is not known here. The
/// callbacks of the crate do not tell of ranges. Source: RocksDB, `db/write_batch.cc`.
fn families(batch: &[u8]) -> Option<BTreeSet<u32>> {
    const DEFAULT: u32 = 0;
    let mut found = BTreeSet::new();
    let mut rest = batch.get(12..)?;
    while let [kind, tail @ ..] = rest {
        rest = tail;
        let strings = match kind {
            // A deletion, one of a single put; a value, a merge, a range, columns: without
            // and with the number of a column family. A note in the log touches nothing.
            0x00 | 0x07 | 0x04 | 0x08 | 0x03 => 1,
            0x01 | 0x02 | 0x0f | 0x16 | 0x05 | 0x06 | 0x0e | 0x17 => 2,
            _ => return None,
        };
        match kind {
            0x04..=0x06 | 0x08 | 0x0e | 0x17 => found.extend([varint(&mut rest)?]),
            0x03 => {}
            _ => found.extend([DEFAULT]),
        }
        for _ in 0..strings {
            let length = varint(&mut rest)?;
            rest = rest.get(usize::try_from(length).ok()?..)?;
        }
    }
    Some(found)
}

fn varint(rest: &mut &[u8]) -> Option<u32> {
    let (mut number, mut shift) = (0_u32, 0);
    loop {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

impl From<rocksdb::Error> for FenceError {
    fn from(error: rocksdb::Error) -> Self {
        Self::Store(Box::new(error))
    }
}
