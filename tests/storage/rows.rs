//! Rows: written behind, seen as of one moment, replaced at once.

use bytes::Bytes;
use ringfence::storage::{RowsView, StoredRow};

use crate::kit::{applied, delete, folder, open, put};

fn row(key: &str, value: &str) -> StoredRow {
    (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))
}

async fn all(mut view: RowsView, max_bytes: usize) -> Vec<StoredRow> {
    let mut rows = Vec::new();
    while let Some(chunk) = view.next_chunk(max_bytes).await.expect("readable") {
        assert!(!chunk.is_empty());
        rows.extend(chunk);
    }
    rows
}

#[tokio::test]
async fn rows_and_how_far_they_are_come_back_in_order_of_their_keys() {
    let dir = folder();
    let storage = open(dir.path());
    assert_eq!(storage.rows().load().expect("readable"), (Default::default(), vec![]));
    let rows = storage.rows();
    rows.write_behind(vec![put("b", "1"), put("a", "2"), put("c", "")], applied(1, 1));
    rows.write_behind(vec![delete("b"), put("a", "3")], applied(2, 5));
    storage.close().await;
    let loaded = open(dir.path()).rows().load().expect("readable");
    assert_eq!(loaded, (applied(2, 5), vec![row("a", "3"), row("c", "")]));
}

#[tokio::test]
async fn a_view_holds_what_was_queued_before_it_and_nothing_after() {
    let dir = folder();
    let storage = open(dir.path());
    let rows = storage.rows();
    let changes = (0..1000).map(|n| put(&format!("k{n:04}"), &format!("{n}"))).collect();
    rows.write_behind(changes, applied(1, 10));
    let view = rows.view().await.expect("a view");
    let again = rows.view().await.expect("another view");
    rows.write_behind((0..1000).map(|n| delete(&format!("k{n:04}"))).collect(), applied(1, 11));
    rows.write_behind(vec![put("x", "y")], applied(1, 12));
    rows.sync().await.expect("on disk");

    assert_eq!(view.applied(), &applied(1, 10));
    let expected: Vec<StoredRow> =
        (0..1000).map(|n| row(&format!("k{n:04}"), &format!("{n}"))).collect();
    assert_eq!(all(view, 100).await, expected);
    assert_eq!(all(again, usize::MAX).await, expected);
    let now = rows.view().await.expect("a view");
    assert_eq!(now.applied(), &applied(1, 12));
    assert_eq!(all(now, 1).await, [row("x", "y")]);
}

#[tokio::test]
async fn a_replacement_leaves_none_of_the_rows_before() {
    let dir = folder();
    let storage = open(dir.path());
    let rows = storage.rows();
    rows.write_behind(vec![put("a", "1"), put("b", "1"), put("\u{7f}", "1")], applied(1, 3));
    rows.replace(vec![row("b", "2"), row("c", "2")], applied(4, 90)).await.expect("on disk");
    rows.write_behind(vec![put("d", "3")], applied(4, 91));
    storage.close().await;
    let loaded = open(dir.path()).rows().load().expect("readable");
    let expected = vec![row("b", "2"), row("c", "2"), row("d", "3")];
    assert_eq!(loaded, (applied(4, 91), expected));
}

/// How many threads of this program serve a view: each keeps what it sees on disk and in
/// memory.
fn views_served() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("a process knows its threads");
    let named = |thread: std::io::Result<std::fs::DirEntry>| {
        // A thread that has ended meanwhile has no name.
        std::fs::read_to_string(thread.expect("readable").path().join("comm")).unwrap_or_default()
    };
    threads.map(named).filter(|name| name.trim_end() == "ringfence-view").count()
}

/// In a process of its own, for other tests have views of theirs.
#[tokio::test]
async fn a_view_that_is_dropped_is_over() {
    const ALONE: &str = "RINGFENCE_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = std::process::Command::new(std::env::current_exe().expect("its path"));
        alone.args(["--exact", "rows::a_view_that_is_dropped_is_over"]).env(ALONE, "1");
        let ended = alone.output().expect("it runs");
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let dir = folder();
    let storage = open(dir.path());
    let rows = storage.rows();
    rows.write_behind(vec![put("a", "1"), put("b", "1")], applied(1, 1));
    let untouched = rows.view().await.expect("a view");
    let mut begun = rows.view().await.expect("another view");
    begun.next_chunk(1).await.expect("readable").expect("a row");
    assert_eq!(views_served(), 2);
    drop((untouched, begun));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while views_served() > 0 {
        assert!(std::time::Instant::now() < until, "they are served still");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    // And the storage goes on.
    assert!(rows.view().await.is_ok());
}

#[tokio::test]
async fn closing_ends_views_and_refuses_what_comes_later() {
    let dir = folder();
    let storage = open(dir.path());
    let rows = storage.rows();
    let mut view = rows.view().await.expect("a view");
    storage.close().await;
    assert!(view.next_chunk(1).await.is_err());
    rows.write_behind(vec![put("a", "1")], applied(1, 1));
    for error in [rows.sync().await.err(), rows.view().await.err()] {
        assert_eq!(error.expect("refused").to_string(), "the storage is closed");
    }
    assert!(rows.load().is_err());
    assert_eq!(open(dir.path()).rows().load().expect("readable").1, []);
}
