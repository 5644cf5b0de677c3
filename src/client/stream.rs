//! The streams of the keep-alive: one that is fed, and at most two before it whose
//! late answers still count.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::keepers::{Broken, Note};
use super::network::Target;
use super::operations::sessions;
use super::route::Address;
use crate::clock::BootMoment;
use crate::locks::SessionId;
use crate::wire::reason::{Told, key};
use crate::wire::v1;

/// Streams that were left and are still listened to.
const OLD_MAX: usize = 2;
/// Messages that wait for the connection.
const MESSAGES_MAX: usize = 64;
/// A stream whose renewals have gone unanswered for a sixth of the ttl, within
/// these bounds, is left for another.
const STALL_MIN: Duration = Duration::from_millis(100);
const STALL_MAX: Duration = Duration::from_secs(3);

/// One call of `KeepAlive`.
#[derive(Debug)]
pub(super) struct Stream {
    pub number: u64,
    pub node: Address,
    forwards: bool,
    requests: mpsc::Sender<v1::KeepAliveRequest>,
    task: JoinHandle<()>,
    unanswered: BTreeSet<SessionId>,
    /// Since when it has been silent while something is unanswered.
    silent_since: BootMoment,
    patience: Duration,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream {
    /// Whether the node may forward to the leader.
    pub fn forwards(&self) -> bool {
        self.forwards
    }

    /// When it counts as stalled, unless it answers before.
    pub fn stalls_at(&self) -> Option<BootMoment> {
        (!self.unanswered.is_empty()).then(|| self.silent_since.plus(self.patience))
    }

    /// A renewal of this session, of this ttl, is about to be sent.
    pub fn awaits(&mut self, session: SessionId, now: BootMoment, ttl: Duration) {
        let patience = (ttl / 6).clamp(STALL_MIN, STALL_MAX);
        if self.unanswered.is_empty() {
            self.silent_since = now;
            self.patience = patience;
        }
        self.patience = self.patience.min(patience);
        self.unanswered.insert(session);
    }

    /// Sends, or drops what finds no room: then the stream stalls anyway.
    pub fn send(&self, message: v1::KeepAliveRequest) {
        let _ = self.requests.try_send(message);
    }
}

/// The streams of one client, the newest last.
#[derive(Debug)]
pub(super) struct Streams {
    current: Option<Stream>,
    old: VecDeque<Stream>,
    opened: u64,
    notes: mpsc::WeakUnboundedSender<Note>,
}

impl Streams {
    pub fn new(notes: mpsc::WeakUnboundedSender<Note>) -> Self {
        Self { current: None, old: VecDeque::new(), opened: 0, notes }
    }

    pub fn current(&self) -> Option<&Stream> {
        self.current.as_ref()
    }

    pub fn current_mut(&mut self) -> Option<&mut Stream> {
        self.current.as_mut()
    }

    /// Opens a stream; it becomes the current one.
    pub fn open(&mut self, node: Address, target: Target) {
        self.opened += 1;
        let (requests, messages) = mpsc::channel(MESSAGES_MAX);
        let forwards = target.forwards();
        let task = tokio::spawn(listen(target, messages, self.opened, self.notes.clone()));
        self.current = Some(Stream {
            number: self.opened,
            node,
            forwards,
            requests,
            task,
            unanswered: BTreeSet::new(),
            silent_since: BootMoment::default(),
            patience: STALL_MAX,
        });
    }

    /// Leaves the current stream; says where it led and what it has not answered.
    pub fn retire(&mut self) -> Option<(Address, BTreeSet<SessionId>)> {
        let mut stream = self.current.take()?;
        let left = (stream.node.clone(), std::mem::take(&mut stream.unanswered));
        self.old.push_back(stream);
        if self.old.len() > OLD_MAX {
            self.old.pop_front();
        }
        Some(left)
    }

    /// An answer came in. True if it is the current stream's.
    pub fn answered(&mut self, number: u64, session: SessionId, now: BootMoment) -> bool {
        let current = self.current.as_mut().filter(|stream| stream.number == number);
        if let Some(stream) = current {
            stream.unanswered.remove(&session);
            stream.silent_since = now;
            return true;
        }
        false
    }

    pub fn drop_old(&mut self, number: u64) {
        self.old.retain(|stream| stream.number != number);
    }

    pub fn drop_all_old(&mut self) {
        self.old.clear();
    }

    pub fn clear(&mut self) {
        self.current = None;
        self.old.clear();
    }
}

/// Makes the call and passes on what it brings.
async fn listen(
    target: Target,
    messages: mpsc::Receiver<v1::KeepAliveRequest>,
    number: u64,
    notes: mpsc::WeakUnboundedSender<Note>,
) {
    let tell = |note| {
        if let Some(notes) = notes.upgrade() {
            // The task that reads the notes holds this one and ends it.
            let _ = notes.send(note);
        }
    };
    let request = target.request(ReceiverStream::new(messages));
    let broken = |status: Option<&Status>| {
        let told = status.map(Told::of);
        let leader = told.iter().flatten().find_map(leader);
        let told = told.is_none_or(|told| told.is_some());
        Note::Broken(Broken { number, told, leader })
    };
    let mut answers = match sessions(&target).keep_alive(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return tell(broken(Some(&status))),
    };
    loop {
        match answers.message().await {
            Ok(Some(message)) => tell(Note::Answers(number, message.answers)),
            Ok(None) => return tell(broken(None)),
            Err(status) => return tell(broken(Some(&status))),
        }
    }
}

/// The leader that a refusal names.
fn leader(told: &Told) -> Option<Address> {
    told.text(key::LEADER).and_then(|leader| Address::parse(leader).ok())
}
