//! The append stream to one follower: many requests under way, answers in order,
//! and an end as soon as the oldest of them waits too long for its answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use openraft::errors::RPCError;
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Streaming;

use super::convert;
use super::link::Link;
use crate::clock;
use crate::raft_types::TypeConfig;
use crate::wire::peer;

/// Requests encoded and not yet taken by the connection.
const AHEAD: usize = 8;

type Answer = Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>;

/// Opens the stream and sends `input` on it, once there is something to send:
/// openraft's pauses between attempts are pauses of `input`.
pub(super) async fn open<S>(
    link: Link,
    mut input: S,
) -> Result<BoxStream<'static, Answer>, RPCError<TypeConfig>>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
{
    let Some(first) = input.next().await else { return Ok(futures::stream::empty().boxed()) };
    let input = futures::stream::iter([first]).chain(input);
    let under_way = Arc::new(UnderWay::default());
    let (to_wire, messages) = mpsc::channel(AHEAD);
    // openraft locks its stream state while `input` is polled. A task of our own
    // drops `input` as soon as this session ends, however long the connection
    // holds on to the request body.
    let pump = AbortOnDropHandle::new(tokio::spawn(pump(input, to_wire, under_way.clone())));
    let open = link.call(ReceiverStream::new(messages), link.timing().connect, {
        |mut client, request| async move { client.append(request).await }
    });
    let incoming = open.await?;
    let answers = Answers { link, incoming, under_way, _pump: pump };
    Ok(futures::stream::unfold(Some(answers), Answers::step).boxed())
}

async fn pump<S>(mut input: S, to_wire: mpsc::Sender<peer::AppendRequest>, under_way: Arc<UnderWay>)
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
{
    while let Some(request) = input.next().await {
        let message = convert::append_to_wire(&request);
        under_way.sent();
        if to_wire.send(message).await.is_err() {
            return;
        }
    }
    under_way.exhausted.store(true, Ordering::Release);
}

/// When the unanswered requests were sent, oldest first.
#[derive(Default)]
struct UnderWay {
    sent: Mutex<VecDeque<Instant>>,
    exhausted: AtomicBool,
}

impl UnderWay {
    fn sent(&self) {
        self.sent.lock().push_back(clock::timer());
    }

    fn answered(&self) {
        self.sent.lock().pop_front();
    }

    fn oldest(&self) -> Option<Duration> {
        self.sent.lock().front().map(Instant::elapsed)
    }
}

struct Answers {
    link: Link,
    incoming: Streaming<peer::AppendResponse>,
    under_way: Arc<UnderWay>,
    _pump: AbortOnDropHandle<()>,
}

impl Answers {
    /// The next answer; after an error, the end.
    async fn step(state: Option<Self>) -> Option<(Answer, Option<Self>)> {
        let mut answers = state?;
        let answer = answers.next().await?;
        let more = matches!(answer, Ok(Ok(_)));
        Some((answer, more.then_some(answers)))
    }

    async fn next(&mut self) -> Option<Answer> {
        let limit = self.link.timing().unacknowledged;
        loop {
            let arrived = tokio::time::timeout(limit / 4, self.incoming.next()).await;
            return match arrived {
                Ok(Some(Ok(message))) => {
                    self.under_way.answered();
                    let answer = convert::appended_from_wire(message);
                    Some(answer.map_err(|malformed| self.link.unreachable(malformed)))
                }
                Ok(Some(Err(status))) => Some(Err(self.link.failed(&status))),
                Ok(None) if self.under_way.exhausted.load(Ordering::Acquire) => None,
                Ok(None) => Some(Err(self.link.unreachable("the append stream was ended"))),
                Err(_) => match self.under_way.oldest() {
                    Some(age) if age >= limit => {
                        let why = format!("entries unacknowledged for {age:?}");
                        Some(Err(self.link.unreachable(why)))
                    }
                    Some(_) | None => continue,
                },
            };
        }
    }
}
