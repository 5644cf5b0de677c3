//! Who is turned away, and why.

use bytes::Bytes;
use prost::Message;
use ringfence::raft::Identity;
use ringfence::wire::peer::peer_client::PeerClient;
use ringfence::wire::peer::{self, AppendRequest, Envelope, VoteRequest};
use tonic::metadata::BinaryMetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::cluster::Cluster;

struct Caller {
    client: PeerClient<Channel>,
    envelope: Envelope,
}

impl Caller {
    /// Somebody who says all the right things about itself: node 2 calling node 1.
    async fn honest(cluster: &Cluster) -> Self {
        let bytes = |b: &[u8; 16]| Bytes::copy_from_slice(b);
        let id = |n: u64| -> Identity { cluster.node(n).disk.home.identity };
        let own = cluster.node(1).disk.home.cluster.lock().expect("formed");
        let envelope = Envelope {
            cluster_id: bytes(own.as_bytes()),
            from_node: 2,
            from_incarnation: bytes(&id(2).incarnation),
            to_node: 1,
            to_incarnation: bytes(&id(1).incarnation),
        };
        let address = format!("http://{}", cluster.node(1).address);
        let client = PeerClient::connect(address).await.expect("reachable");
        Self { client, envelope }
    }

    fn put_in_envelope<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let value = BinaryMetadataValue::from_bytes(&self.envelope.encode_to_vec());
        request.metadata_mut().insert_bin("ringfence-envelope-bin", value);
        request
    }

    /// Asks for a vote in a term long past, which changes nothing.
    async fn vote(&mut self) -> Result<peer::VoteResponse, Status> {
        let vote = Some(peer::Vote { term: 0, node_id: self.envelope.from_node, committed: false });
        let request =
            self.put_in_envelope(VoteRequest { vote, last_log_id: None, ..Default::default() });
        Ok(self.client.vote(request).await?.into_inner())
    }

    async fn refused(&mut self, because: &str) {
        let status = self.vote().await.expect_err("refused");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains(because), "{}", status.message());
    }
}

#[tokio::test]
async fn a_call_in_the_right_envelope_is_heard() {
    let cluster = Cluster::of(2).await;
    cluster.leader().await;
    let answer = Caller::honest(&cluster).await.vote().await.expect("heard");
    assert!(!answer.granted);
}

#[tokio::test]
async fn another_clusters_node_is_refused_with_both_ids() {
    let cluster = Cluster::of(2).await;
    let mut caller = Caller::honest(&cluster).await;
    caller.envelope.cluster_id = Bytes::from_static(&[7; 16]);
    caller.refused("the call is for cluster 07070707070707070707070707070707").await;
}

#[tokio::test]
async fn a_call_meant_for_another_node_at_this_address_is_refused() {
    let cluster = Cluster::of(2).await;
    let mut caller = Caller::honest(&cluster).await;
    caller.envelope.to_node = 3;
    caller.refused("the call is for node 3, but node 1 lives at this address").await;
}

#[tokio::test]
async fn a_node_with_a_wiped_folder_is_refused_on_either_side() {
    let cluster = Cluster::of(2).await;
    let mut caller = Caller::honest(&cluster).await;
    caller.envelope.to_incarnation = Bytes::from_static(&[9; 16]);
    caller.refused("node 1 was recorded with folder 09090909").await;
    let mut caller = Caller::honest(&cluster).await;
    caller.envelope.from_incarnation = Bytes::from_static(&[9; 16]);
    caller.refused("calls from folder 09090909: a wiped node must be removed").await;
}

#[tokio::test]
async fn a_call_without_an_envelope_is_refused() {
    let cluster = Cluster::of(1).await;
    let address = format!("http://{}", cluster.node(1).address);
    let mut client = PeerClient::connect(address).await.expect("reachable");
    let status = client.vote(VoteRequest::default()).await.expect_err("refused");
    assert!(status.message().contains("without a readable envelope"), "{status:?}");
}

#[tokio::test]
async fn unreadable_entries_end_the_stream_with_a_status_and_nothing_else() {
    let cluster = Cluster::of(2).await;
    let leader = cluster.leader().await;
    let caller = Caller::honest(&cluster).await;
    let vote = Some(peer::Vote { term: 0, node_id: 2, committed: true });
    let garbage = AppendRequest {
        vote,
        prev_log_id: None,
        entries: vec![Bytes::from_static(b"\xff\xff\xff")],
        leader_commit: None,
        silent_ms: 0,
    };
    let request = caller.put_in_envelope(futures::stream::iter([garbage]));
    let mut client = caller.client.clone();
    let mut answers = client.append(request).await.expect("opened").into_inner();
    let status = answers.message().await.expect_err("ended");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    cluster.propose(leader, "still here").await;
}

#[tokio::test]
async fn nobody_speaks_in_anothers_name() {
    let cluster = Cluster::of(2).await;
    let mut caller = Caller::honest(&cluster).await;
    let vote = Some(peer::Vote { term: 99, node_id: 1, committed: true });
    let request = caller.put_in_envelope(AppendRequest { vote, ..Default::default() });
    let status = caller.client.heartbeat(request).await.expect_err("refused");
    assert!(status.message().contains("not the sender's"), "{status:?}");
}
