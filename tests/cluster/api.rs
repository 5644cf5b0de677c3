//! The API as it is served: every call on every node, health, reflection, and the
//! door when too much is under way.

use std::time::{Duration, Instant};

use ringfence::wire::v1::cluster_client::ClusterClient;
use ringfence::wire::{Reason, Told, v1};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{Wire, owner, reason, refused};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn every_call_works_on_every_node() {
    let cluster = Cluster::start(3).await;
    for id in cluster.ids() {
        let node = Wire::to(cluster.address(id));
        let name = format!("job/{id}");
        let me = node.open(owner(id), LONG).await.expect("open");
        assert_eq!(node.renew(&me).await.expect("renew").ttl_ms, 60_000);
        assert_eq!(node.set_ttl(me.next(), 50_000).await.expect("set ttl"), 50_000);
        let grant = node.try_acquire(&me, &name).await.expect("acquire");
        assert!(node.check(&name, grant.token).await.expect("check"));
        assert_eq!(node.get(&name).await.expect("get").holders.len(), 1);
        assert_eq!(node.list(&name).await.expect("list").len(), 1);
        let held = node.held(&me).await.expect("held");
        assert!(matches!(&held.grants[..], [held] if held.token == grant.token));
        let sessions = node.list_sessions().await.expect("list sessions");
        assert!(sessions.iter().any(|s| s.session == me.session && s.ttl_ms == 50_000));
        let settled = node.cancel(me.header(9, 2), 2).await.expect("cancel").grant;
        assert_eq!(settled.map(|grant| grant.token), Some(grant.token), "granted already");
        node.release(me.header(10, 10), &name, grant.token).await.expect("release");
        let waiter = wait_in_vain(&node, &me, &name).await;
        assert_eq!(waiter, Reason::Cancelled);
        node.close(&me).await.expect("close");
        let mut client = ClusterClient::new(node.channel());
        let status = client.status(v1::StatusRequest {}).await.expect("status").into_inner();
        assert_eq!((status.node_id, status.members.len()), (id, 3));
    }
}

/// Queues behind another holder on the same node and is cancelled there.
async fn wait_in_vain(node: &Wire, me: &crate::wire::Owner, name: &str) -> Reason {
    let other = node.open(owner(1_000), LONG).await.expect("open");
    let token = node.try_acquire(&other, name).await.expect("free").token;
    let waiting = node.acquire(me.header(11, 11), name, LONG);
    let cancel = async {
        let until = Instant::now() + PATIENCE;
        while node.get(name).await.expect("get").waiting == 0 {
            assert!(Instant::now() < until, "it never queued");
        }
        let settled = node.cancel(me.header(12, 11), 11).await.expect("cancel");
        assert_eq!(settled.grant, None);
    };
    let (told, ()) = tokio::join!(waiting, cancel);
    node.release(other.next(), name, token).await.expect("held");
    node.close(&other).await.expect("close");
    refused(told)
}

/// A call that was forwarded, or that must not be, ends at a node that does not lead:
/// it names the leader, and no call goes in circles.
#[tokio::test]
async fn a_call_that_must_not_be_forwarded_is_told_where_the_leader_is() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let direct = Wire::to(cluster.address(leader)).without_forwarding();
    let me = direct.open(owner(1), LONG).await.expect("the leader answers itself");
    for id in cluster.ids().into_iter().filter(|id| *id != leader) {
        let node = Wire::to(cluster.address(id)).without_forwarding();
        let told = node.try_acquire(&me, "job/7").await.expect_err("it does not lead");
        let told = Told::of(&told).expect("a refusal of ours");
        assert_eq!(told.reason, Some(Reason::NotLeader));
        assert_eq!(told.text("leader"), Some(cluster.address(leader)));
        assert_eq!(refused(node.get("job/7").await), Reason::NotLeader);
        assert_eq!(refused(node.held(&me).await), Reason::NotLeader);
        assert_eq!(refused(node.list_sessions().await), Reason::NotLeader);
        assert_eq!(node.renew(&me).await.expect_err("it does not lead").0, "NOT_LEADER");
    }
}

/// More waits than one connection may carry calls go through a follower, and what
/// else comes there is answered all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_that_a_follower_forwards_hold_up_nothing_else() {
    const WAITERS: u64 = 250;
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.ids().into_iter().find(|id| *id != leader).expect("two of them");
    let at = cluster.address(follower).to_owned();
    let node = Wire::to(&at);
    let holder = node.open(owner(0), LONG).await.expect("a session");
    let token = node.try_acquire(&holder, "job/7").await.expect("free").token;
    let waiters: Vec<_> = (1..=WAITERS)
        .map(|number| {
            let at = at.clone();
            tokio::spawn(async move {
                let node = Wire::to(&at);
                let me = node.open(owner(number), LONG).await.expect("a session");
                let grant = node.acquire(me.next(), "job/7", LONG).await.expect("a turn");
                node.release(me.next(), "job/7", grant.token).await.expect("held");
                grant.token
            })
        })
        .collect();
    let until = Instant::now() + PATIENCE * 2;
    while node.get("job/7").await.expect("a view").waiting < WAITERS {
        assert!(Instant::now() < until, "not all wait");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = Instant::now();
    node.renew(&holder).await.expect("live");
    assert!(asked.elapsed() < Duration::from_secs(2), "a renewal took {:?}", asked.elapsed());
    node.release(holder.next(), "job/7", token).await.expect("held");
    let mut tokens = Vec::new();
    for waiter in waiters {
        tokens.push(waiter.await.expect("every waiter is served"));
    }
    tokens.sort_unstable();
    assert_eq!(tokens, (token + 1..=token + WAITERS).collect::<Vec<_>>());
}

#[tokio::test]
async fn health_speaks_for_the_node_and_for_each_service() {
    let cluster = Cluster::start(1).await;
    let mut health = HealthClient::new(Wire::to(cluster.address(1)).channel());
    for service in ["", "ringfence.v1.Sessions", "ringfence.v1.Locks", "ringfence.v1.Cluster"] {
        let answer = health.check(HealthCheckRequest { service: service.to_owned() }).await;
        let status = answer.expect("known").into_inner().status();
        assert_eq!(status, ServingStatus::Serving, "{service:?}");
    }
    let unknown = health.check(HealthCheckRequest { service: "other".to_owned() }).await;
    assert_eq!(unknown.expect_err("unknown").code(), tonic::Code::NotFound);
}

/// What grpcurl asks first: which services there are, and what their messages are.
#[tokio::test]
async fn reflection_lists_the_public_services_and_describes_them() {
    let cluster = Cluster::start(1).await;
    let mut reflection = ServerReflectionClient::new(Wire::to(cluster.address(1)).channel());
    let questions = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol("ringfence.v1.Locks".to_owned()),
        MessageRequest::FileContainingSymbol("ringfence.v1.RequestHeader".to_owned()),
    ];
    let ask =
        |question| ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let stream = tokio_stream::iter(questions.map(ask));
    let answers = reflection.server_reflection_info(stream).await.expect("an answer");
    let mut answers = answers.into_inner();
    let mut next = async || {
        let answer = answers.message().await.expect("readable").expect("one for each");
        answer.message_response.expect("a response")
    };
    let MessageResponse::ListServicesResponse(listed) = next().await else { panic!("a list") };
    let mut names: Vec<String> = listed.service.into_iter().map(|s| s.name).collect();
    names.sort();
    for name in ["ringfence.v1.Cluster", "ringfence.v1.Locks", "ringfence.v1.Sessions"] {
        assert!(names.iter().any(|listed| listed == name), "{name} in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("peer")), "internal: {names:?}");
    for _ in 0..2 {
        let MessageResponse::FileDescriptorResponse(file) = next().await else {
            panic!("a description")
        };
        assert!(!file.file_descriptor_proto.is_empty());
    }
}

/// The followers sleep, so that nothing that was proposed is answered, and the clocks
/// of the consensus are slow, so that the leader goes on hoping.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_requests_than_are_admitted_are_told_when_to_come_again() {
    let slow = ["--heartbeat-ms", "2000", "--election-ms", "20000", "--admitted-max", "100"];
    let cluster = Cluster::start_with(3, &slow).await;
    let leader = cluster.leader().await;
    let at = cluster.address(leader).to_owned();
    let followers: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    for id in &followers {
        cluster.signal(*id, "STOP");
    }
    let (admitted, beyond) = (100, 30);
    let (send, mut told) = tokio::sync::mpsc::unbounded_channel();
    let node = Wire::to(&at).once();
    for number in 0..admitted + beyond {
        let (node, send) = (node.clone(), send.clone());
        tokio::spawn(async move {
            let opened = node.open_as(owner(number), 60_000).await;
            let _ended = send.send(opened);
        });
    }
    drop(send);
    for _ in 0..beyond {
        let status = told.recv().await.expect("a refusal").expect_err("the others wait");
        assert_eq!(reason(&status), Reason::Overloaded);
        let told = Told::of(&status).expect("a refusal of ours");
        assert!(told.retry_after().is_some_and(|after| !after.is_zero()), "{told:?}");
    }
    for id in &followers {
        cluster.signal(*id, "CONT");
    }
    let mut opened = 0;
    while let Some(answer) = told.recv().await {
        match answer {
            Ok(_) => opened += 1,
            Err(status) => assert_eq!(reason(&status), Reason::OutcomeUnknown),
        }
    }
    println!("{opened} of {admitted} opened when the followers woke");
    let again = Wire::to(&at).open(owner(admitted + beyond), LONG).await;
    again.expect("there is room again");
}
