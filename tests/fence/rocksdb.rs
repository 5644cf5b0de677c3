//! Marks in a RocksDB: what shares a lock, what a batch may not touch, what is refused.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringfence::fence::rocksdb::{COLUMN_FAMILY, Marks, column_family};
use ringfence::fence::{Fence, FenceError, FenceTarget};
use ringfence::locks::{ClusterId, Token};
use rocksdb::{ColumnFamilyDescriptor, DB, MergeOperands, Options, WriteBatch};
use tempfile::TempDir;

use crate::stories::{
    ATTEMPTS, assert_answer, assert_never_back, exclusive, mixed, name, shared, stories,
};

fn appended(_: &[u8], old: Option<&[u8]>, further: &MergeOperands) -> Option<Vec<u8>> {
    let mut all = old.unwrap_or_default().to_vec();
    further.iter().for_each(|one| all.extend(one));
    Some(all)
}

/// A database with the application's families, where a merge appends, and that of the marks.
pub fn open(folder: &Path) -> Arc<DB> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let family = |name: &str| {
        let mut appends = Options::default();
        appends.set_merge_operator_associative("append", appended);
        ColumnFamilyDescriptor::new(name, appends)
    };
    let families = [family("default"), family("ledger"), column_family()];
    let opened = DB::open_cf_descriptors(&options, folder, families);
    Arc::new(opened.expect("nobody else has it open"))
}

fn destination() -> (TempDir, Arc<DB>, Marks) {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let db = open(folder.path());
    let marks = Marks::new(Arc::clone(&db));
    marks.install().expect("its column family is there");
    (folder, db, marks)
}

fn write(marks: &Marks, number: u64) -> Result<(), FenceError> {
    let mut batch = WriteBatch::default();
    batch.put("job", format!("by {number}"));
    marks.guarded(&[exclusive("job/7", number)], batch)
}

fn job(db: &DB) -> Option<String> {
    let job = db.get("job").expect("readable")?;
    Some(String::from_utf8(job).expect("text"))
}

fn job_mark(marks: &Marks) -> Option<u64> {
    marks.mark(&name("job/7"), None).expect("installed").map(Token::get)
}

#[test]
fn rocksdb_tells_every_story() {
    let (_folder, _, marks) = destination();
    for story in stories() {
        for step in story.steps() {
            let answer = marks.raise(std::slice::from_ref(&step.fence));
            assert_answer(story.resource, &step, answer);
        }
    }
}

#[test]
fn scenario_e5_rocksdb_applies_the_write_and_its_check_together_or_not_at_all() {
    let (_folder, db, marks) = destination();
    let answers = [5, 6, 5, 6, 7, 6].map(|number| match write(&marks, number) {
        Ok(()) => None,
        Err(FenceError::Stale { mark, .. }) => Some((mark.get(), job(&db))),
        Err(other) => panic!("{other}"),
    });
    let by = |number| Some(format!("by {number}"));
    assert_eq!(answers, [None, None, Some((6, by(6))), None, None, Some((7, by(7)))]);
}

/// Each thread has marks of its own over the one handle: they share their locks.
#[test]
fn sixteen_marks_of_one_database_never_take_the_accepted_sequence_back() {
    let (_folder, db, marks) = destination();
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let db = Arc::clone(&db);
            scope.spawn(move || {
                for attempt in (writer..ATTEMPTS).step_by(16) {
                    let own = Marks::new(Arc::clone(&db));
                    let token = mixed(attempt);
                    let mut batch = WriteBatch::default();
                    let ledger = db.cf_handle("ledger").expect("opened with it");
                    batch.merge_cf(&ledger, "tokens", format!("{token}\n"));
                    let answer = own.guarded(&[exclusive("job/7", token)], batch);
                    assert!(matches!(answer, Ok(()) | Err(FenceError::Stale { .. })), "{answer:?}");
                }
            });
        }
    });
    let ledger = db.cf_handle("ledger").expect("opened with it");
    let lines = db.get_cf(&ledger, "tokens").expect("readable").expect("they wrote");
    let lines = String::from_utf8(lines).expect("text");
    let accepted: Vec<u64> = lines.lines().map(|line| line.parse().expect("a token")).collect();
    assert_never_back(&accepted);
    assert_eq!(job_mark(&marks), accepted.last().copied());
}

#[test]
fn a_batch_that_touches_the_marks_in_any_way_is_refused() {
    let (_folder, db, marks) = destination();
    write(&marks, 5).expect("the first owner");
    let ours = db.cf_handle(COLUMN_FAMILY).expect("opened with it");
    let ledger = db.cf_handle("ledger").expect("opened with it");
    let touches: [fn(&mut WriteBatch, &_); 5] = [
        |batch, family| batch.put_cf(family, "job/7", [0; 24]),
        |batch, family| batch.delete_cf(family, "job/7"),
        |batch, family| batch.single_delete_cf(family, "job/7"),
        |batch, family| batch.delete_range_cf(family, "a", "z"),
        |batch, family| batch.merge_cf(family, "job/7", "more"),
    ];
    for touch in touches {
        let mut batch = WriteBatch::default();
        // What stands before it does not hide it.
        batch.delete_range("a", "z");
        batch.put_log_data("a note");
        batch.put("job", "x".repeat(300));
        touch(&mut batch, &ours);
        let refused = marks.guarded(&[exclusive("job/7", 6)], batch);
        let refused = refused.expect_err("it touches the marks").to_string();
        assert_eq!(refused, "the store failed: the batch writes to the marks themselves");
        assert_eq!((job(&db).as_deref(), job_mark(&marks)), (Some("by 5"), Some(5)));

        let mut batch = WriteBatch::default();
        touch(&mut batch, &ledger);
        batch.put("job", "x".repeat(300));
        batch.merge("count", "1");
        batch.delete("count");
        batch.single_delete("count");
        batch.delete_range("count", "counted");
        batch.put_log_data("a note");
        marks.guarded(&[exclusive("job/7", 5)], batch).expect("it leaves the marks alone");
        assert_eq!(job(&db), Some("x".repeat(300)));
        write(&marks, 5).expect("the first owner");
    }
}

#[test]
fn malformed_and_foreign_fences_are_refused_and_adoption_moves_no_mark() {
    let (_folder, db, marks) = destination();
    let malformed = marks.raise(&[shared("job/7", 5, 6)]);
    assert!(matches!(malformed, Err(FenceError::FloorAboveToken { .. })), "{malformed:?}");
    for set in [&[][..], &[exclusive("job/7", 5), exclusive("job/7", 6)]] {
        let refused = marks.raise(set);
        assert!(matches!(refused, Err(FenceError::Set)), "{refused:?}");
    }
    assert_eq!(job_mark(&marks), None);
    write(&marks, 5).expect("the first authority");
    let slot = Fence { slot: Some(0), ..shared("job/7", 7, 5) };
    marks.raise(std::slice::from_ref(&slot)).expect("a holder of a slot");
    let (old, new) = (exclusive("job/7", 5).cluster, ClusterId::new([8; 16]));
    let restored = [Fence { cluster: new, ..exclusive("job/7", 900) }];
    let foreign = marks.raise(&restored);
    assert!(
        matches!(foreign, Err(FenceError::ForeignCluster { known, offered, .. })
            if (known, offered) == (old, new)),
        "{foreign:?}"
    );
    assert_eq!(job(&db).as_deref(), Some("by 5"));
    assert_eq!(marks.adopt(old, new).expect("installed"), 1, "one resource, with its slot");
    assert_eq!(job_mark(&marks), Some(5));
    assert_eq!(marks.mark(&name("job/7"), Some(0)).expect("there").map(Token::get), Some(7));
    assert!(matches!(marks.raise(&[slot]), Err(FenceError::ForeignCluster { .. })));
    marks.raise(&restored).expect("adopted");
}

#[test]
fn what_is_missing_newer_or_damaged_is_refused_and_nothing_written() {
    let (_folder, db, marks) = destination();
    write(&marks, 5).expect("the first owner");
    marks.install().expect("installed already");
    let ours = db.cf_handle(COLUMN_FAMILY).expect("opened with it");
    let golden = [&[7; 16][..], &5_u64.to_be_bytes()].concat();
    assert_eq!(db.get_cf(&ours, "job/7").expect("readable"), Some(golden.clone()));
    for damaged in [&b""[..], b"half", &[0; 24], &[golden.as_slice(), b"more"].concat()] {
        db.put_cf(&ours, "job/7", damaged).expect("writable");
        let refused = write(&marks, 6);
        assert!(matches!(refused, Err(FenceError::Store(_))), "{refused:?}");
    }
    db.put_cf(&ours, "job/7", golden).expect("writable");
    db.put_cf(&ours, "\0version", 2_u32.to_be_bytes()).expect("writable");
    for answer in [write(&marks, 6), marks.install(), marks.mark(&name("job/7"), None).map(drop)] {
        assert!(
            matches!(answer, Err(FenceError::SchemaNewer { found: 2, known: 1 })),
            "{answer:?}"
        );
    }
    db.delete_cf(&ours, "\0version").expect("writable");
    assert!(matches!(write(&marks, 6), Err(FenceError::SchemaMissing)));
    assert_eq!(job(&db).as_deref(), Some("by 5"));

    let bare = tempfile::tempdir().expect("the temporary folder is writable");
    let bare = Marks::new(Arc::new(DB::open_default(bare.path()).expect("an empty folder")));
    assert!(matches!(bare.install(), Err(FenceError::SchemaMissing)));
    assert!(matches!(write(&bare, 5), Err(FenceError::SchemaMissing)));
}

#[test]
fn a_database_is_a_target_of_strict_handoff_and_keeps_its_marks_when_opened_again() {
    let (folder, db, marks) = destination();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let target = marks.target();
    assert_eq!(target.name(), format!("rocksdb:{}", folder.path().display()));
    let raise = |number| {
        let fences = [exclusive("job/7", number)];
        runtime.block_on(target.raise(&fences, Duration::from_secs(60)))
    };
    raise(6).expect("the first owner");
    assert!(matches!(raise(5), Err(FenceError::Stale { .. })));
    drop((marks, target, runtime, db));
    let marks = Marks::new(open(folder.path()));
    assert_eq!(job_mark(&marks), Some(6));
}
