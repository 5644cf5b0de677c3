//! What becomes of a proposal, and confirmed leadership.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::join_all;
use ringfence::locks::{Done, Term};
use ringfence::raft::{ConfirmError, Ended, ProposeError, Timing};

use crate::cluster::{Cluster, SOON, command, eventually, patient};
use crate::net::Link;

#[tokio::test]
async fn every_proposal_of_many_tasks_is_applied_once_and_answered() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let begun = Instant::now();
    let tasks = (0..64).map(|task| {
        let replica = cluster.node(leader).replica.clone();
        tokio::spawn(async move {
            let mut places = Vec::new();
            for n in 0..50 {
                let (_, outcome) =
                    replica.propose(command(&format!("{task}/{n}"))).await.expect("applied");
                let Ok(Done::Queued { ahead }) = outcome else { panic!("{outcome:?}") };
                places.push(ahead);
            }
            assert!(places.is_sorted());
            places
        })
    });
    let places: BTreeSet<u64> =
        join_all(tasks).await.into_iter().flat_map(|t| t.expect("done")).collect();
    println!("3200 proposals of 64 tasks in {:?}", begun.elapsed());
    assert_eq!(places, (0..3_200).collect());
    cluster.caught_up(&[1, 2, 3], 3_200).await;
    assert_eq!(cluster.node(1).commands(), cluster.node(2).commands());
    assert_eq!(cluster.node(1).commands(), cluster.node(3).commands());
}

#[tokio::test]
async fn a_proposal_for_another_term_is_never_appended() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let replica = &cluster.node(leader).replica;
    let term = replica.status().term;
    let later = replica.propose_in(Term(term.0 + 1), command("no")).await;
    assert!(matches!(later, Err(ProposeError::NotLeader { .. })), "{later:?}");
    let (at, _) = replica.propose_in(term, command("yes")).await.expect("applied");
    assert_eq!(at.term, term);
    assert_eq!(cluster.node(leader).commands(), ["yes"]);
}

#[tokio::test]
async fn an_isolated_leader_answers_unknown_for_what_it_appended_and_refuses_the_rest() {
    let cluster = Cluster::of(3).await;
    let old = cluster.leader().await;
    cluster.propose(old, "safe").await;
    cluster.net.set_all(old, 1..=3, Link::Cut);
    // Appended here, but no quorum will ever hold it.
    let replica = cluster.node(old).replica.clone();
    let lost = tokio::spawn(async move { replica.propose(command("lost")).await });
    let new = cluster.leader_but(&[old]).await;
    cluster.propose(new, "won").await;
    // As soon as no quorum has answered it for so long, it refuses and appends nothing.
    let lease = patient().election_max + Duration::from_millis(100);
    eventually("the old leader's lease runs out", || {
        (cluster.node(old).replica.status().quorum_ack_age? > lease).then_some(())
    })
    .await;
    let refused = cluster.node(old).replica.propose(command("late")).await;
    assert_eq!(refused, Err(ProposeError::NoQuorum));
    cluster.net.set_all(old, 1..=3, Link::Open);
    let lost = tokio::time::timeout(SOON, lost).await.expect("in time").expect("ran");
    assert_eq!(lost, Err(ProposeError::Unknown));
    cluster.caught_up(&[1, 2, 3], 2).await;
    for node in cluster.nodes.values() {
        assert_eq!(node.commands(), ["safe", "won"]);
    }
    let moved = cluster.node(old).replica.propose(command("x")).await;
    assert!(matches!(moved, Err(ProposeError::NotLeader { .. })), "{moved:?}");
}

#[tokio::test]
async fn leadership_is_confirmed_with_the_term_and_what_was_committed_is_applied() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let replica = &cluster.node(leader).replica;
    let at = cluster.propose(leader, "x").await;
    let confirmed = replica.confirm_leadership().await.expect("a quorum");
    assert_eq!(confirmed.term, at.term);
    assert!(confirmed.index >= at.index);
    let follower = &cluster.node(cluster.others(leader)[0]).replica;
    let refused = follower.confirm_leadership().await.expect_err("follows");
    let hint = Some((leader, cluster.members[&leader].clone()));
    assert_eq!(refused, ConfirmError::NotLeader { leader: hint });
}

#[tokio::test]
async fn one_round_confirms_all_who_arrived_before_it_began() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let replica = &cluster.node(leader).replica;
    let before = replica.status().confirm_rounds;
    let callers = join_all((0..500).map(|_| replica.confirm_leadership())).await;
    assert!(callers.iter().all(Result::is_ok));
    let rounds = replica.status().confirm_rounds - before;
    println!("500 callers, {rounds} rounds");
    assert!((1..=50).contains(&rounds), "{rounds} rounds");
    // Callers one after the other cannot share.
    let before = replica.status().confirm_rounds;
    for _ in 0..5 {
        replica.confirm_leadership().await.expect("a quorum");
    }
    assert_eq!(replica.status().confirm_rounds - before, 5);
}

#[tokio::test]
async fn without_a_quorum_leadership_is_not_confirmed_and_the_wait_is_bounded() {
    let timing = Timing { confirm: Duration::from_millis(500), ..patient() };
    let cluster = Cluster::with(3, timing, Default::default()).await;
    let leader = cluster.leader().await;
    cluster.net.set_all(leader, 1..=3, Link::Cut);
    let begun = Instant::now();
    let refused = cluster.node(leader).replica.confirm_leadership().await;
    assert_eq!(refused, Err(ConfirmError::NoQuorum));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let new = cluster.leader_but(&[leader]).await;
    cluster.node(new).replica.confirm_leadership().await.expect("a quorum");
}

#[tokio::test]
async fn a_half_open_peer_does_not_wedge_replication() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.others(leader)[0];
    cluster.propose(leader, "before").await;
    cluster.net.set(leader, follower, Link::Frozen);
    // The other one is enough for a quorum meanwhile.
    for n in 0..20 {
        cluster.propose(leader, &format!("during {n}")).await;
    }
    let status = cluster.node(leader).replica.status();
    let seen = status.members.iter().find(|m| m.node == follower).expect("a member");
    assert!(seen.matched < status.last_log);
    // Long enough for the frozen connections to be given up: only new ones, which
    // are let through again, can carry on.
    eventually("the connection is given up", || {
        let status = cluster.node(leader).replica.status();
        let seen = status.members.iter().find(|m| m.node == follower).expect("a member");
        (seen.last_ack_age? > Duration::from_secs(4)).then_some(())
    })
    .await;
    cluster.net.set(leader, follower, Link::Open);
    cluster.caught_up(&[follower], 21).await;
}

#[tokio::test]
async fn a_broken_disk_ends_the_replica_and_leaves_the_outcome_unknown() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let node = cluster.node(leader);
    node.disk.broken.store(true, Ordering::Relaxed);
    let unknown = node.replica.propose(command("x")).await;
    assert_eq!(unknown, Err(ProposeError::Unknown));
    let ended = tokio::time::timeout(SOON, node.replica.ended()).await.expect("in time");
    let Ended::Broken(why) = ended else { panic!("{ended:?}") };
    assert!(why.contains("the disk is gone"), "{why}");
    let new = cluster.leader_but(&[leader]).await;
    cluster.propose(new, "on").await;
}
