//! How long nobody leads after the leader's process died, and what must not
//! trigger an election.

use std::time::{Duration, Instant};

use ringfence::raft::Timing;

use crate::cluster::{Cluster, command, eventually, patient};
use crate::net::Link;

/// Kills the leader `times` times; answers the sorted gaps from the kill to the
/// first command applied under another leader.
async fn gaps(timing: Timing, times: usize) -> Vec<Duration> {
    let mut cluster = Cluster::with(3, timing, Default::default()).await;
    let mut gaps = Vec::new();
    for n in 0..times {
        let old = cluster.leader().await;
        cluster.propose(old, &format!("before {n}")).await;
        let all = cluster.node(old).commands().len();
        cluster.caught_up(&[1, 2, 3], all).await;
        if cluster.timing.fast_failover {
            cluster.attended(old).await;
        }
        let begun = Instant::now();
        cluster.kill(old);
        let gap = 'applied: loop {
            for id in cluster.others(old) {
                let text = format!("after {n}");
                if cluster.node(id).replica.propose(command(&text)).await.is_ok() {
                    break 'applied begun.elapsed();
                }
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "nobody leads");
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        gaps.push(gap);
        cluster.restart(old).await;
    }
    gaps.sort();
    gaps
}

/// An election timeout so long that no machine is too busy to tell the difference.
fn slow(fast_failover: bool) -> Timing {
    let (election_min, election_max) = (Duration::from_secs(3), Duration::from_secs(6));
    Timing { election_min, election_max, fast_failover, ..patient() }
}

#[tokio::test]
async fn a_leader_whose_process_died_is_replaced_without_waiting_for_the_timeout() {
    let gaps = gaps(slow(true), 5).await;
    println!("failover at once: {gaps:?}");
    // The lease alone would last longer.
    assert!(gaps[gaps.len() / 2] < Duration::from_secs(3), "{gaps:?}");
}

#[tokio::test]
async fn without_the_presence_stream_the_timeout_decides() {
    let gaps = gaps(slow(false), 1).await;
    println!("failover by timeout: {gaps:?}");
    assert!(gaps[0] > Duration::from_secs(6), "{gaps:?}");
}

/// Figures with the default times, for a quiet machine:
/// `FAILOVERS=20 cargo test --test raft figures -- --nocapture`.
#[tokio::test]
async fn figures_of_failover() {
    let Some(times) = std::env::var("FAILOVERS").ok().and_then(|n| n.parse().ok()) else { return };
    for fast_failover in [true, false] {
        let gaps = gaps(Timing { fast_failover, ..Timing::default() }, times).await;
        let (median, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!("presence {fast_failover}: median {median:?}, worst {worst:?} of {times}");
    }
}

#[tokio::test]
async fn a_broken_connection_to_a_living_leader_changes_nothing() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let term = cluster.node(leader).replica.status().term;
    let follower = cluster.others(leader)[0];
    for _ in 0..5 {
        cluster.attended(leader).await;
        // The presence stream goes from the follower to the leader.
        cluster.net.set(follower, leader, Link::Cut);
        let lost = || (!cluster.node(follower).replica.status().presence).then_some(());
        eventually("the break is noticed", lost).await;
        cluster.net.set(follower, leader, Link::Open);
        cluster.propose(leader, "goes on").await;
    }
    cluster.propose(leader, "still leads").await;
    assert_eq!(cluster.node(leader).replica.status().term, term);
}
