//! The renewal stream: many sessions, answered as their rounds are confirmed.

use std::pin::Pin;
use std::sync::Arc;

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::node::Node;
use super::refusals::{invalid, not_leader};
use crate::leader::RenewalAnswer;
use crate::leases::Moment;
use crate::locks::{Invalid, OwnerId, SessionId};
use crate::wire::api::session_in;
use crate::wire::reason::Reason;
use crate::wire::v1;
use crate::wire::v1::renewal_answer::Result as Told;
use crate::wire::views::revision_out;

/// How many renewals one message may carry.
const PER_MESSAGE_MAX: usize = 1_024;
/// How many renewals one stream may have under way; beyond, `OVERLOADED`.
const UNDERWAY_MAX: usize = 65_536;

/// The answers of one stream.
pub(super) type Answers = Pin<Box<dyn Stream<Item = Result<v1::KeepAliveResponse, Status>> + Send>>;

/// Serves one stream on the leader. It ends with the caller's.
pub(super) fn serve(node: &Arc<Node>, renewals: Streaming<v1::KeepAliveRequest>) -> Answers {
    let (send, receive) = mpsc::channel(16);
    tokio::spawn(run(Arc::clone(node), renewals, send));
    Box::pin(ReceiverStream::new(receive))
}

/// Hands a stream on to the leader; a broken one ends there too.
pub(super) fn pass_on(
    renewals: Streaming<v1::KeepAliveRequest>,
) -> impl Stream<Item = v1::KeepAliveRequest> + Send + 'static {
    renewals.take_while(|m| std::future::ready(m.is_ok())).filter_map(|m| async { m.ok() })
}

async fn run(
    node: Arc<Node>,
    mut renewals: Streaming<v1::KeepAliveRequest>,
    send: mpsc::Sender<Result<v1::KeepAliveResponse, Status>>,
) {
    let mut underway = FuturesUnordered::new();
    loop {
        tokio::select! {
            message = renewals.next() => {
                let Some(Ok(message)) = message else { return };
                let arrived = Moment::now();
                if message.renewals.len() > PER_MESSAGE_MAX {
                    let too_many = Invalid { field: "renewals", bound: "at most 1024" };
                    let _ended = send.send(Err(invalid(&too_many))).await;
                    return;
                }
                for renewal in message.renewals {
                    let full = underway.len() >= UNDERWAY_MAX;
                    underway.push(renew(Arc::clone(&node), renewal, arrived, full));
                }
            }
            Some(first) = underway.next() => {
                let mut answers = vec![first];
                while answers.len() < PER_MESSAGE_MAX
                    && let Some(Some(next)) = futures::FutureExt::now_or_never(underway.next())
                {
                    answers.push(next);
                }
                if send.send(Ok(v1::KeepAliveResponse { answers })).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn renew(
    node: Arc<Node>,
    renewal: v1::Renewal,
    arrived: Moment,
    full: bool,
) -> v1::RenewalAnswer {
    let (session, sequence) = (renewal.session, renewal.sequence);
    let told = match read(&renewal) {
        Err(bad) => refusal(&invalid(&bad), None),
        Ok(_) if full => told(&node, RenewalAnswer::Overloaded),
        Ok((owner, session)) => told(&node, node.renewals.renew(owner, session, arrived).await),
    };
    v1::RenewalAnswer { session, sequence, result: Some(told) }
}

fn read(renewal: &v1::Renewal) -> Result<(OwnerId, SessionId), Invalid> {
    Ok((OwnerId::from_slice(&renewal.owner_id)?, session_in(renewal.session)?))
}

fn told(node: &Node, answer: RenewalAnswer) -> Told {
    use super::refusals::{no_quorum, outcome_unknown, overloaded, refused};
    use crate::locks::Refusal;
    match answer {
        RenewalAnswer::Renewed { ttl, changed_at } => {
            Told::Renewed(v1::Renewed { ttl_ms: ttl.0, changed_at: Some(revision_out(changed_at)) })
        }
        RenewalAnswer::Expired => refusal(&refused(&Refusal::SessionExpired), None),
        RenewalAnswer::Unknown => refusal(&refused(&Refusal::SessionUnknown), None),
        RenewalAnswer::NotLeading => {
            let leader = node.replica.leadership().borrow().leader.clone();
            let address = leader.as_ref().map(|(_, address)| address.as_str());
            refusal(&not_leader(address), address)
        }
        RenewalAnswer::NoQuorum => refusal(&no_quorum(), None),
        RenewalAnswer::Overloaded => refusal(&overloaded(200), None),
        RenewalAnswer::OutcomeUnknown => refusal(&outcome_unknown(), None),
    }
}

fn refusal(status: &Status, leader: Option<&str>) -> Told {
    Told::Refused(v1::RenewalRefusal {
        reason: Reason::of(status).map_or("", Reason::as_str).to_owned(),
        message: status.message().to_owned(),
        leader: leader.unwrap_or_default().to_owned(),
    })
}
