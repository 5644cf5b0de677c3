//! What is refused at the start, each with one line that says what to do.

use std::path::{Path, PathBuf};

use openraft::storage::RaftLogStorage;
use ringfence::locks::ClusterId;
use ringfence::storage::format::{
    encode_applied, encode_entry, encode_log_id, encode_vote, log_id,
};
use ringfence::storage::{Storage, StorageError, StorageOptions};
use rocksdb::{DB, IteratorMode, Options};

use crate::kit::{NODE, append_flushed, applied, commands, folder, open, options, put, vote};

fn refused(dir: &Path, node: u64) -> StorageError {
    let Err(error) = Storage::open(dir, node, options()) else { panic!("must be refused") };
    let line = error.to_string();
    assert!(!line.contains('\n'), "one line: {line}");
    assert!(line.contains(';'), "says what to do: {line}");
    error
}

/// A closed folder with a log, a vote and rows.
async fn used_folder(dir: &Path) {
    let storage = open(dir);
    let mut log = storage.log();
    log.save_vote(&vote(1)).await.expect("on disk");
    append_flushed(&mut log, commands(1, 0..=9)).await;
    storage.rows().write_behind(vec![put("a", "1")], applied(1, 9));
    storage.close().await;
}

/// Changes a closed folder behind the storage's back.
fn tamper(dir: &Path, change: impl FnOnce(&mut DB)) {
    let database = dir.join("db");
    let families = DB::list_cf(&Options::default(), &database).expect("a database");
    let mut db = DB::open_cf(&Options::default(), &database, families).expect("a database");
    change(&mut db);
    db.flush().expect("on disk");
}

#[tokio::test]
async fn a_new_folder_is_fresh_and_keeps_its_identity() {
    let dir = folder();
    let nested = dir.path().join("not/yet/there");
    let storage = open(&nested);
    let identity = storage.identity();
    assert!(storage.is_fresh());
    assert_eq!(identity.node_id, NODE);
    assert_eq!(storage.cluster(), None);
    storage.close().await;
    let again = open(&nested);
    assert!(again.is_fresh(), "it has neither vote nor log yet");
    assert_eq!(again.identity(), identity);
    again.log().save_vote(&vote(1)).await.expect("on disk");
    again.close().await;
    assert!(!open(&nested).is_fresh());
    assert_ne!(open(dir.path()).identity().incarnation, identity.incarnation);
}

#[tokio::test]
async fn a_folder_belongs_to_the_first_cluster_that_adopts_it() {
    let dir = folder();
    let (ours, other) = (ClusterId::new([1; 16]), ClusterId::new([2; 16]));
    let storage = open(dir.path());
    storage.adopt_cluster(ours).await.expect("on disk");
    storage.adopt_cluster(ours).await.expect("nothing to do");
    storage.close().await;
    let storage = open(dir.path());
    assert_eq!(storage.cluster(), Some(ours));
    let error = storage.adopt_cluster(other).await.expect_err("another cluster");
    assert!(matches!(error, StorageError::OtherCluster { found, .. } if found == ours), "{error}");
    assert_eq!(storage.cluster(), Some(ours));
}

#[tokio::test]
async fn another_nodes_folder_is_refused() {
    let dir = folder();
    used_folder(dir.path()).await;
    let error = refused(dir.path(), NODE + 1);
    assert!(matches!(error, StorageError::OtherNode { found: NODE, .. }), "{error}");
    open(dir.path());
}

#[tokio::test]
async fn a_folder_in_use_is_refused_and_free_after_closing() {
    let dir = folder();
    let storage = open(dir.path());
    let log = storage.log();
    let error = refused(dir.path(), NODE);
    assert!(matches!(error, StorageError::Locked { .. }), "{error}");
    storage.close().await;
    open(dir.path());
    drop(log);
}

#[tokio::test]
async fn a_folder_is_free_when_the_last_handle_is_gone() {
    let dir = folder();
    for _ in 0..3 {
        let storage = open(dir.path());
        let (log, rows) = (storage.log(), storage.rows());
        drop(storage);
        drop(log);
        drop(rows);
    }
}

#[test]
fn what_is_no_writable_folder_is_refused() {
    let dir = folder();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("a file");
    for path in [file, PathBuf::from("/proc/ringfence-cannot-be-here")] {
        let error = refused(&path, NODE);
        assert!(matches!(error, StorageError::Folder { .. }), "{error}");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_format_is_refused() {
    let dir = folder();
    used_folder(dir.path()).await;
    tamper(dir.path(), |db| db.put(b"format", 2_u32.to_be_bytes()).expect("written"));
    let error = refused(dir.path(), NODE);
    assert!(matches!(&error, StorageError::UnknownFormat { found, .. } if found == "2"), "{error}");
    tamper(dir.path(), |db| db.put(b"format", 1_u32.to_be_bytes()).expect("written"));
    tamper(dir.path(), |db| db.create_cf("ledger", &Options::default()).expect("created"));
    let error = refused(dir.path(), NODE);
    assert!(matches!(error, StorageError::UnknownFormat { .. }), "{error}");
}

#[tokio::test]
async fn damage_is_refused() {
    type Damage = fn(&mut DB);
    let damages: [(&str, Damage); 7] = [
        ("the format record is missing", |db| db.delete(b"format").expect("written")),
        ("the node's identity is missing", |db| db.delete(b"node").expect("written")),
        ("vote: undecodable", |db| db.put(b"vote", b"\xff\xff").expect("written")),
        ("cluster: not 16 bytes", |db| db.put(b"cluster", b"x").expect("written")),
        ("log entry 4 is missing", |db| {
            let log = db.cf_handle("log").expect("a log");
            db.delete_cf(log, 4_u64.to_be_bytes()).expect("written");
        }),
        ("in another's place", |db| {
            let log = db.cf_handle("log").expect("a log");
            let entry = db.get_cf(log, 4_u64.to_be_bytes()).expect("read").expect("there");
            db.put_cf(log, 5_u64.to_be_bytes(), entry).expect("written");
        }),
        ("a column family is missing", |db| db.drop_cf("rows").expect("dropped")),
    ];
    for (what, damage) in damages {
        let dir = folder();
        used_folder(dir.path()).await;
        tamper(dir.path(), damage);
        let error = refused(dir.path(), NODE);
        assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error} for {what}");
    }
}

#[tokio::test]
async fn no_new_database_is_made_over_the_remains_of_an_old_one() {
    let dir = folder();
    used_folder(dir.path()).await;
    std::fs::remove_file(dir.path().join("db/CURRENT")).expect("was there");
    let error = refused(dir.path(), NODE);
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn a_creation_cut_short_is_completed() {
    let dir = folder();
    let mut create = Options::default();
    create.create_if_missing(true);
    std::fs::create_dir_all(dir.path().join("db")).expect("a folder");
    drop(DB::open(&create, dir.path().join("db")).expect("an empty database"));
    let identity = open(dir.path()).identity();
    assert_eq!(open(dir.path()).identity(), identity);
}

#[test]
fn a_disk_below_the_reserve_is_refused() {
    let dir = folder();
    let greedy = StorageOptions { disk_reserve: u64::MAX, ..options() };
    let Err(error) = Storage::open(dir.path(), NODE, greedy) else { panic!("must be refused") };
    assert!(matches!(error, StorageError::DiskFull { .. }), "{error}");
}

#[tokio::test]
async fn the_places_of_the_records_are_those_of_format_1() {
    let dir = folder();
    used_folder(dir.path()).await;
    let storage = open(dir.path());
    storage.adopt_cluster(ClusterId::new([9; 16])).await.expect("on disk");
    storage.log().save_committed(Some(log_id(1, 8))).await.expect("queued");
    storage.log().purge(log_id(1, 3)).await.expect("queued");
    let incarnation = storage.identity().incarnation;
    storage.close().await;
    tamper(dir.path(), |db| {
        let get = |key: &str| db.get(key).expect("read").expect("there");
        assert_eq!(get("format"), [0, 0, 0, 1]);
        assert_eq!(get("node"), [&[0, 0, 0, 0, 0, 0, 0, 7], &incarnation[..]].concat());
        assert_eq!(get("cluster"), [9; 16]);
        assert_eq!(get("vote"), encode_vote(&vote(1)));
        assert_eq!(get("committed"), encode_log_id(&log_id(1, 8)));
        assert_eq!(get("purged"), encode_log_id(&log_id(1, 3)));
        assert_eq!(get("applied"), encode_applied(&applied(1, 9)));
        let log = db.cf_handle("log").expect("a log");
        let first = db.iterator_cf(log, IteratorMode::Start).next().expect("entries");
        let (key, value) = first.expect("read");
        assert_eq!(*key, [0, 0, 0, 0, 0, 0, 0, 4]);
        assert_eq!(*value, *encode_entry(&commands(1, 4..=4)[0]));
        let rows = db.cf_handle("rows").expect("rows");
        assert_eq!(db.get_cf(rows, "a").expect("read").expect("there"), b"1");
    });
}
