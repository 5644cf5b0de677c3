//! Who leads.

use ringfence::raft::{ProposeError, Role, TransferError};

use crate::cluster::{Cluster, command, eventually};

#[tokio::test]
async fn a_follower_names_the_leader_and_its_address() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let hint = Some((leader, cluster.members[&leader].clone()));
    for follower in cluster.others(leader) {
        let refused = cluster.node(follower).replica.propose(command("x")).await;
        assert_eq!(refused, Err(ProposeError::NotLeader { leader: hint.clone() }));
    }
    assert!(cluster.nodes.values().all(|node| node.commands().is_empty()));
}

#[tokio::test]
async fn leadership_moves_on_request_and_the_log_goes_on() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    cluster.propose(leader, "before").await;
    let refused = cluster.node(cluster.others(leader)[0]).replica.transfer_leadership().await;
    assert_eq!(refused, Err(TransferError::NotLeader));
    let successor = cluster.node(leader).replica.transfer_leadership().await.expect("moved");
    assert_ne!(successor, leader);
    assert_eq!(cluster.leader().await, successor);
    cluster.propose(successor, "after").await;
    cluster.caught_up(&[1, 2, 3], 2).await;
}

#[tokio::test]
async fn shutting_the_leader_down_hands_over_first() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let term = cluster.node(leader).replica.status().term;
    let begun = std::time::Instant::now();
    cluster.node(leader).replica.shutdown().await;
    let successor = cluster.leader_but(&[leader]).await;
    // One term further: nobody had to find out by an election timeout.
    assert_eq!(cluster.node(successor).replica.status().term.0, term.0 + 1);
    println!("handover took {:?}", begun.elapsed());
    assert_eq!(cluster.node(leader).replica.status().role, Role::Stopped);
}

#[tokio::test]
async fn a_lone_leader_has_no_successor() {
    let cluster = Cluster::of(1).await;
    let leader = cluster.leader().await;
    let refused = cluster.node(leader).replica.transfer_leadership().await;
    assert_eq!(refused, Err(TransferError::NoSuccessor));
    cluster.propose(leader, "alone").await;
}

#[tokio::test]
async fn a_restarted_leader_never_takes_up_its_term_again() {
    let mut cluster = Cluster::of(1).await;
    cluster.leader().await;
    let before = cluster.node(1).replica.status().term;
    cluster.restart(1).await;
    cluster.leader().await;
    assert!(cluster.node(1).replica.status().term > before);
}

#[tokio::test]
async fn the_leader_sees_how_far_each_member_is() {
    let cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    let at = cluster.propose(leader, "x").await;
    eventually("all members match", || {
        let status = cluster.node(leader).replica.status();
        let matched = status.members.iter().all(|m| m.voter && m.matched >= Some(at.index));
        (matched && status.quorum_ack_age.is_some()).then_some(())
    })
    .await;
}
