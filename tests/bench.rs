//! `ringfence bench` measures what it says, and leaves nothing behind. The figures
//! themselves are no matter of a test.
#![cfg(feature = "server")]

use serde_json::Value;

#[path = "support/leftovers.rs"]
// The demo's tests use more of it.
#[allow(dead_code, reason = "other tests use more of it")]
mod leftovers;

use leftovers::{folder, nothing_is_left, ringfence, text};

const SMALL: &str = "bench --seconds 1 --warm-up 0s --clients 1,4 --waiters 2 --sessions 20 \
                     --streams 2 --kills 1 --locks 200 --lock-sessions 10 -o json";

#[test]
fn every_measurement_has_its_figures_in_one_document() {
    let folder = folder();
    let flags: Vec<&str> = SMALL.split_whitespace().collect();
    let output = ringfence(folder.path(), &flags).output();
    let output = output.expect("the bench starts");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let above_zero = |path: &str| {
        let figure = report.pointer(path).and_then(Value::as_f64);
        assert!(figure.is_some_and(|figure| figure > 0.0), "{path}: {report:#}");
        figure.expect("just seen")
    };
    for path in ["/cycles/1/per_second", "/cycles/1/acquire/p99_us", "/cycles/1/cycle/max_us"] {
        above_zero(path);
    }
    // Alone, each of the two entries of a cycle is on two disks before its answer.
    assert!(above_zero("/cycles/0/syncs_per_cycle") >= 3.5, "{report:#}");
    assert!(above_zero("/cycles/0/entries_per_cycle") >= 1.9, "{report:#}");
    above_zero("/handoffs/handoff/p50_us");
    assert!(above_zero("/renewals/per_round") >= 1.0);
    assert!(above_zero("/failover/gap_worst_us") >= above_zero("/failover/gap_median_us"));
    assert!(above_zero("/memory/leader_bytes") >= above_zero("/memory/leader_empty_bytes"));
    above_zero("/memory/restart_us");
    nothing_is_left(folder.path());
}

#[test]
fn what_needs_an_own_cluster_is_refused_on_another() {
    let folder = folder();
    let output = ringfence(folder.path(), &["bench", "failover", "--external"]).output();
    let output = output.expect("the bench starts");
    assert_eq!(output.status.code(), Some(64), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no --external"));
    nothing_is_left(folder.path());
}
