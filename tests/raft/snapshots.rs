//! A node too far behind for the log receives a snapshot.

use ringfence::raft::LogLimits;

use crate::cluster::{Cluster, eventually, patient};

#[tokio::test]
async fn a_node_far_behind_is_brought_up_by_a_snapshot() {
    let limits = LogLimits {
        snapshot_every: 50,
        keep_before_snapshot: 10,
        purge_batch: 1,
        entries_per_message: 64,
    };
    let mut cluster = Cluster::with(3, patient(), limits).await;
    let leader = cluster.leader().await;
    let away = cluster.others(leader)[0];
    cluster.kill(away);
    // More bytes than one chunk, in more entries than the log keeps.
    let large = "x".repeat(40_000);
    for n in 0..200 {
        cluster.propose(leader, &format!("{n} {large}")).await;
    }
    eventually("the log is purged", || {
        let purged = cluster.node(leader).replica.status().purged?;
        (purged.index > 100).then_some(())
    })
    .await;
    cluster.restart(away).await;
    cluster.caught_up(&[away], 200).await;
    assert!(cluster.node(away).disk.machine.lock().installed > 0);
    let leader = cluster.leader().await;
    cluster.propose(leader, "after").await;
    cluster.caught_up(&[1, 2, 3], 201).await;
    assert_eq!(cluster.node(away).commands(), cluster.node(leader).commands());
}
