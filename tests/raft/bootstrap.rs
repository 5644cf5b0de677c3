//! N fresh nodes become one cluster; what does not belong is told so.

use std::collections::BTreeSet;

use ringfence::locks::ClusterId;
use ringfence::raft::{BootstrapError, LogLimits, MemberStatus};

use crate::cluster::{Cluster, SOON, eventually, patient};
use crate::store::Disk;

async fn outcome(cluster: &mut Cluster, id: u64) -> Result<ClusterId, BootstrapError> {
    let bootstrap = cluster.nodes.get_mut(&id).expect("a node").bootstrap.take();
    let bootstrap = bootstrap.expect("just booted");
    tokio::time::timeout(SOON, bootstrap).await.expect("in time").expect("not killed")
}

#[tokio::test]
async fn fresh_nodes_agree_on_one_cluster_id_and_record_each_folder() {
    let cluster = Cluster::of(3).await;
    let ids: BTreeSet<_> =
        cluster.nodes.values().map(|n| n.disk.home.cluster.lock().map(|c| *c.as_bytes())).collect();
    assert_eq!(ids.len(), 1);
    assert!(ids.first().expect("one").is_some());
    cluster.leader().await;
    for node in cluster.nodes.values() {
        for member in node.replica.status().members {
            let identity = cluster.node(member.node).disk.home.identity;
            assert_eq!(member.incarnation, identity.incarnation);
            assert_eq!(member.address, cluster.members[&member.node]);
        }
    }
}

#[tokio::test]
async fn a_restarted_node_needs_no_invitation() {
    let mut cluster = Cluster::of(3).await;
    let leader = cluster.leader().await;
    cluster.propose(leader, "x").await;
    for id in 1..=3 {
        cluster.restart(id).await;
        outcome(&mut cluster, id).await.expect("still a member");
        cluster.leader().await;
    }
    cluster.caught_up(&[1, 2, 3], 1).await;
}

#[tokio::test]
async fn a_wiped_node_is_told_so_and_takes_no_part() {
    for wiped in [1, 3] {
        let mut cluster = Cluster::of(3).await;
        cluster.leader().await;
        let recorded = cluster.node(wiped).disk.home.identity.incarnation;
        cluster.kill(wiped);
        cluster.boot(Disk::fresh(wiped)).await;
        let present = cluster.node(wiped).disk.home.identity.incarnation;
        let refused = outcome(&mut cluster, wiped).await.expect_err("wiped");
        let BootstrapError::Wiped { node, present: p, recorded: r, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!((*node, *p, *r), (wiped, present, recorded));
        assert!(refused.to_string().contains("removed from the cluster and added anew"));
        // The others go on without it, and it hears nothing.
        let leader = cluster.leader_but(&[wiped]).await;
        let at = cluster.propose(leader, "without").await;
        eventually("the others have it", || {
            let status = cluster.node(leader).replica.status();
            let matched = |m: &&MemberStatus| m.matched >= Some(at.index);
            (status.members.iter().filter(matched).count() == 2).then_some(())
        })
        .await;
        assert!(cluster.node(wiped).replica.status().last_log.is_none());
    }
}

#[tokio::test]
async fn a_folder_of_another_cluster_is_refused() {
    let mut cluster = Cluster::of(3).await;
    cluster.leader().await;
    cluster.kill(2);
    let disk = Disk::fresh(2);
    let foreign = ClusterId::new([7; 16]);
    *disk.home.cluster.lock() = Some(foreign);
    cluster.boot(disk).await;
    let refused = outcome(&mut cluster, 2).await.expect_err("foreign");
    assert!(matches!(refused, BootstrapError::Wiped { .. }), "{refused}");
}

#[tokio::test]
async fn an_unformed_node_of_another_cluster_stops_the_bootstrap() {
    let mut cluster = empty(2).await;
    let disk = Disk::fresh(2);
    *disk.home.cluster.lock() = Some(ClusterId::new([7; 16]));
    cluster.boot(disk).await;
    cluster.boot(Disk::fresh(1)).await;
    let refused = outcome(&mut cluster, 1).await.expect_err("foreign");
    let BootstrapError::OtherCluster { by: 2, theirs, ours: None, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(theirs, ClusterId::new([7; 16]));
    assert!(cluster.node(1).disk.home.cluster.lock().is_none(), "drew an id too early");
}

#[tokio::test]
async fn differing_member_lists_are_refused_by_both_names() {
    let mut cluster = empty(2).await;
    cluster.boot(Disk::fresh(2)).await;
    cluster.members.insert(3, "127.0.0.1:1".into());
    cluster.boot(Disk::fresh(1)).await;
    let refused = outcome(&mut cluster, 1).await.expect_err("differs");
    assert!(refused.to_string().contains("the member lists differ"), "{refused}");
}

#[tokio::test]
async fn a_bootstrap_that_crashed_half_way_goes_on_where_it_was() {
    let mut cluster = empty(3).await;
    cluster.boot(Disk::fresh(1)).await;
    cluster.boot(Disk::fresh(2)).await;
    // Node 1 waits for node 3; it crashes, and drew no id yet.
    cluster.restart(1).await;
    // As if it had drawn and invited node 2 before the next crash.
    let id = ClusterId::new([5; 16]);
    cluster.kill(1);
    cluster.kill(2);
    for n in [1, 2] {
        let disk = cluster.node(n).disk.clone();
        *disk.home.cluster.lock() = Some(id);
        cluster.boot(disk).await;
    }
    cluster.boot(Disk::fresh(3)).await;
    for n in 1..=3 {
        assert_eq!(outcome(&mut cluster, n).await, Ok(id));
    }
    let leader = cluster.leader().await;
    cluster.propose(leader, "formed").await;
}

/// The doors of `n` nodes that are not there yet.
async fn empty(n: u64) -> Cluster {
    let net = crate::net::Net::new();
    let mut members = std::collections::BTreeMap::new();
    for id in 1..=n {
        members.insert(id, net.door(id).await.to_string());
    }
    let limits = LogLimits::default();
    Cluster { net, nodes: Default::default(), members, timing: patient(), limits }
}
