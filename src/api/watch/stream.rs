//! One watch: it is polled when its client has room, and reads only then.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream::unfold;
use tokio::time::Instant;
use tonic::Status;

use super::messages::{of_events, of_progress, of_state, piece};
use crate::api::refusals::{compacted, stopping};
use crate::authority::Authority;
use crate::clock;
use crate::feed::{Behind, Read, Seat, Topic, Turn, names_of};
use crate::locks::{Event, ResourceName, Revision};
use crate::wire::v1;
use crate::wire::v1::watch_response::Part;

/// How many events are read under one lock.
const EVENTS_PER_READ: usize = 256;
/// How long a watch of which nothing happens says nothing, at most, while other things
/// happen.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// How often it looks whether that is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so many entries it tells at the next look: before a node that keeps few events
/// has dropped what a resume would need.
const PROGRESS_ENTRIES: u64 = 4_096;

/// What one watch answers.
pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

struct Watching {
    authority: Arc<Authority>,
    seat: Seat,
    topic: Topic,
    /// Up to here everything is in `ready`, or was.
    read: Revision,
    /// Up to here the client has been told.
    told: Revision,
    told_at: Instant,
    stage: Stage,
    ready: VecDeque<v1::WatchResponse>,
}

enum Stage {
    /// The state is sent, up to this name so far.
    State {
        to: Option<ResourceName>,
    },
    Events,
    Over,
}

/// The answers of a watch that has read up to a revision; with the state first, or
/// without.
pub(super) fn responses(
    authority: Arc<Authority>,
    seat: Seat,
    topic: Topic,
    read: Revision,
    with_state: bool,
) -> Responses {
    let stage = if with_state { Stage::State { to: None } } else { Stage::Events };
    let (told, told_at, ready) = (read, clock::timer(), VecDeque::new());
    let watching = Watching { authority, seat, topic, read, told, told_at, stage, ready };
    Box::pin(unfold(watching, |mut watching| async move {
        let answer = watching.next().await?;
        Some((answer, watching))
    }))
}

impl Watching {
    /// The next answer; after a refusal there is none.
    async fn next(&mut self) -> Option<Result<v1::WatchResponse, Status>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                self.tell(&message);
                return Some(Ok(message));
            }
            let read = match &self.stage {
                Stage::State { to } => {
                    let to = to.clone();
                    self.read_state(to.as_ref())
                }
                Stage::Events => self.read_events().await,
                Stage::Over => return None,
            };
            if let Err(status) = read {
                self.stage = Stage::Over;
                return Some(Err(status));
            }
        }
    }

    fn tell(&mut self, message: &v1::WatchResponse) {
        let at = match &message.part {
            Some(Part::State(state)) => state.at,
            Some(Part::Events(events)) => events.events.last().and_then(|event| event.at),
            Some(Part::Progress(at)) => Some(*at),
            None => None,
        };
        if let Some(at) = at {
            self.told = Revision::from(&at);
        }
        self.told_at = clock::timer();
    }

    /// Reads the next piece of the state. What the client has so far, the names up to
    /// `to`, is first brought to the same revision by what happened to them since: so
    /// all that it has is always of one revision, and no event is lost or told twice.
    fn read_state(&mut self, to: Option<&ResourceName>) -> Result<(), Status> {
        self.may_go_on()?;
        let state = self.authority.lock();
        let now = Revision::end_of(state.feed.position());
        let since = match to {
            Some(_) => Some(state.feed.after(self.read, EVENTS_PER_READ).map_err(fell_behind)?),
            None => None,
        };
        let caught_up = since.as_ref().is_none_or(|read| read.all);
        let piece = caught_up.then(|| piece(&state, &self.topic, to));
        drop(state);
        if let (Some(read), Some(to)) = (&since, to) {
            self.add_events(read, self.read, |event| concerns_up_to(event, to));
            self.read = read.to;
        }
        if let Some(piece) = piece {
            self.read = now;
            self.stage = match &piece.to {
                Some(to) if !piece.last => Stage::State { to: Some(to.clone()) },
                Some(_) | None => Stage::Events,
            };
            self.ready.extend(of_state(piece, now));
        }
        Ok(())
    }

    /// Reads what has happened, or waits until something has.
    async fn read_events(&mut self) -> Result<(), Status> {
        match self.seat.turn(self.read) {
            Turn::Read(after) => {
                let read = self.authority.lock().feed.after(after, EVENTS_PER_READ);
                let read = read.map_err(fell_behind)?;
                self.add_events(&read, after, |_| true);
                self.read = read.to;
                if self.ready.is_empty() {
                    tokio::task::yield_now().await; // a long way to the next one, perhaps
                }
            }
            Turn::Idle(to) => {
                self.read = to;
                if self.progress_is_due() {
                    self.ready.push_back(of_progress(self.read));
                    return Ok(());
                }
                // Whichever it is, the next turn tells.
                let _looks = tokio::time::timeout(LOOK_EVERY, self.seat.woken()).await;
            }
            Turn::Cut { read } => return Err(self.cut(read)),
            Turn::Closed => return Err(stopping()),
        }
        Ok(())
    }

    fn may_go_on(&self) -> Result<(), Status> {
        match self.seat.turn(self.read) {
            Turn::Read(_) | Turn::Idle(_) => Ok(()),
            Turn::Cut { read } => Err(self.cut(read)),
            Turn::Closed => Err(stopping()),
        }
    }

    fn add_events(&mut self, read: &Read, after: Revision, asked: impl Fn(&Event) -> bool) {
        let topic = &self.topic;
        let asked = |event: &Event| event.at > after && topic.includes(event) && asked(event);
        self.ready.extend(of_events(&read.entries, asked));
    }

    fn progress_is_due(&self) -> bool {
        let moved = self.read.index.saturating_sub(self.told.index);
        let silent = clock::timer().saturating_duration_since(self.told_at);
        moved > 0 && (silent >= PROGRESS_EVERY || moved >= PROGRESS_ENTRIES)
    }

    fn cut(&self, read: Revision) -> Status {
        compacted(read, self.authority.lock().feed.since())
    }
}

fn fell_behind(behind: Behind) -> Status {
    compacted(behind.read, behind.since)
}

/// What has no name is of everybody.
fn concerns_up_to(event: &Event, to: &ResourceName) -> bool {
    let names = names_of(event);
    names.is_empty() || names.iter().any(|name| name <= to)
}
