//! One watch: it is polled when its client has room, and reads only then.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::stream::unfold;
use tokio::time::Instant;
use tonic::Status;

use super::messages::{Fitting, Told, of_events, of_progress, of_state, piece};
use crate::api::refusals::{compacted, cut_off, stopping};
use crate::authority::Authority;
use crate::clock;
use crate::feed::{Behind, EntryEvents, Over, Read, Seat, Topic, Turn, names_of};
use crate::locks::{Event, ResourceName, Revision};
use crate::wire::v1;
use crate::wire::v1::watch_response::Part;

/// How many events are read under one lock, the last entry's beside.
const EVENTS_PER_READ: usize = 256;
/// How long a watch of which nothing happens says nothing, at most, while other things
/// happen.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// How often it looks whether that is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon after events it tells that there are no more: one event is not followed by
/// two messages if others follow it.
const QUIET: Duration = Duration::from_millis(100);
/// After so many entries it tells at the next look: before a node that keeps few events
/// has dropped what a resume would need.
const PROGRESS_ENTRIES: u64 = 4_096;

/// What one watch answers.
pub(super) type Responses = Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send>>;

/// What a watch begins with.
pub(super) struct Beginning {
    pub seat: Seat,
    pub topic: Topic,
    /// Up to here the client knows all, or is told the state.
    pub read: Revision,
    pub with_state: bool,
    /// The cluster that answers.
    pub cluster: Bytes,
}

struct Watching {
    authority: Arc<Authority>,
    seat: Seat,
    topic: Topic,
    /// Named by the first answer.
    cluster: Bytes,
    /// Up to here everything is in `ready`, or was.
    read: Revision,
    /// An entry of which there is more to tell than fitted. What a node keeps of others
    /// for one watch is a revision.
    rest: Option<Arc<EntryEvents>>,
    /// Up to here the client has been told.
    told: Revision,
    told_at: Instant,
    /// Whether it was told of an event last.
    told_event: bool,
    stage: Stage,
    ready: VecDeque<v1::WatchResponse>,
}

enum Stage {
    /// The state is sent, up to here so far.
    State(Option<Told>),
    Events,
    /// It has ended, with this if it was not told yet.
    Over(Option<Status>),
}

/// The answers of a watch.
pub(super) fn responses(authority: Arc<Authority>, beginning: Beginning) -> Responses {
    Box::pin(unfold(Watching::begin(authority, beginning), |mut watching| async move {
        let answer = watching.next().await?;
        Some((answer, watching))
    }))
}

impl Watching {
    fn begin(authority: Arc<Authority>, beginning: Beginning) -> Self {
        let Beginning { seat, topic, read, with_state, cluster } = beginning;
        let stage = if with_state { Stage::State(None) } else { Stage::Events };
        Self {
            authority,
            seat,
            topic,
            cluster,
            read,
            rest: None,
            told: read,
            told_at: clock::timer(),
            told_event: false,
            stage,
            ready: VecDeque::new(),
        }
    }

    /// The next answer; after a refusal there is none.
    async fn next(&mut self) -> Option<Result<v1::WatchResponse, Status>> {
        loop {
            if let Some(mut message) = self.ready.pop_front() {
                self.tell(&message);
                message.cluster_id = std::mem::take(&mut self.cluster);
                return Some(Ok(message));
            }
            let read = match (self.rest.take(), &mut self.stage) {
                (_, Stage::Over(status)) => return status.take().map(Err),
                (Some(entry), Stage::State(_) | Stage::Events) => self.read_on(entry),
                (None, Stage::State(told)) => {
                    let told = told.clone();
                    self.read_state(told.as_ref())
                }
                (None, Stage::Events) => self.read_events().await,
            };
            if let Err(status) = read {
                self.stage = Stage::Over(Some(status));
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
        self.told_event = matches!(message.part, Some(Part::Events(_)));
        self.told_at = clock::timer();
    }

    /// Reads the next piece of the state. What the client has so far is first brought to
    /// the same revision by what happened to it since: so all that it has is always of
    /// one revision, and no event is lost or told twice.
    fn read_state(&mut self, told: Option<&Told>) -> Result<(), Status> {
        if let Some(to) = self.may_go_on(self.read)? {
            // Nothing of this watch: what else happened need not be kept for it.
            self.read = self.read.max(to);
        }
        let state = self.authority.lock();
        let now = Revision::end_of(state.feed.position());
        let since = match told {
            Some(_) => Some(state.feed.after(self.read, EVENTS_PER_READ).map_err(fell_behind)?),
            None => None,
        };
        let caught_up = since.as_ref().is_none_or(|read| read.all && are_few(read));
        let piece = caught_up.then(|| piece(&state, &self.topic, told));
        drop(state);
        if let Some(since) = since {
            self.add_events(&since.entries, since.to);
            // Few, and all before the piece.
            while piece.is_some() && self.rest.take().is_some() {
                self.add_events(&since.entries, since.to);
            }
        }
        if let Some(piece) = piece {
            self.read = now;
            self.stage = match &piece.next {
                Some(next) => Stage::State(Some(next.clone())),
                None => Stage::Events,
            };
            self.ready.push_back(of_state(piece, now));
        }
        Ok(())
    }

    /// Reads what has happened, or waits until something has.
    async fn read_events(&mut self) -> Result<(), Status> {
        match self.seat.turn(self.read) {
            Turn::Read(after) => {
                let read = self.authority.lock().feed.after(after, EVENTS_PER_READ);
                let read = read.map_err(fell_behind)?;
                self.read = after;
                self.add_events(&read.entries, read.to);
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
                let look = if self.told_event { QUIET } else { LOOK_EVERY };
                // Whichever it is, the next turn tells.
                let _looks = tokio::time::timeout(look, self.seat.woken()).await;
            }
            Turn::Cut { read } => return Err(self.cut(read)),
            Turn::Over { read, why } => {
                if read > self.told {
                    self.ready.push_back(of_progress(read)); // to go on from elsewhere
                }
                return Err(over(why));
            }
        }
        Ok(())
    }

    /// Tells more of an entry, kept here or not.
    fn read_on(&mut self, entry: Arc<EntryEvents>) -> Result<(), Status> {
        let to = Revision::end_of(entry.index());
        self.may_go_on(to)?;
        self.add_events(&[entry], to);
        Ok(())
    }

    /// Up to which revision nothing of this watch has happened since, if that is known.
    fn may_go_on(&self, read: Revision) -> Result<Option<Revision>, Status> {
        match self.seat.turn(read) {
            Turn::Read(_) => Ok(None),
            Turn::Idle(to) => Ok(Some(to)),
            Turn::Cut { read } => Err(self.cut(read)),
            Turn::Over { why, .. } => Err(over(why)),
        }
    }

    /// Makes a message of what follows in these entries, which go up to `to`. What does
    /// not fit is left: of one entry in `rest`, of others where they are kept.
    fn add_events(&mut self, entries: &[Arc<EntryEvents>], to: Revision) {
        let told = match &self.stage {
            Stage::State(told) => told.as_ref().map(|told| &told.name),
            Stage::Events | Stage::Over(_) => None,
        };
        let asked = |event: &Event| {
            let of_told = told.is_none_or(|told| concerns_up_to(event, told));
            event.at > self.read && of_told && self.topic.includes(event)
        };
        let Fitting { message, cut } = of_events(entries, asked);
        self.ready.extend(message);
        (self.read, self.rest) = match cut {
            Some((read, entry)) => (read, Some(Arc::clone(&entries[entry]))),
            None => (to, None),
        };
    }

    fn progress_is_due(&self) -> bool {
        let entries = self.read.index.saturating_sub(self.told.index);
        let silent = clock::timer().saturating_duration_since(self.told_at);
        self.read > self.told
            && ((self.told_event && silent >= QUIET)
                || (entries > 0 && silent >= PROGRESS_EVERY)
                || entries >= PROGRESS_ENTRIES)
    }

    fn cut(&self, read: Revision) -> Status {
        compacted(read, self.authority.lock().feed.since())
    }
}

fn over(why: Over) -> Status {
    match why {
        Over::CutOff => cut_off(),
        Over::Stops => stopping(),
    }
}

/// Whether it is no more than is read at a time of many entries.
fn are_few(read: &Read) -> bool {
    read.entries.iter().map(|entry| entry.events.len()).sum::<usize>() <= EVENTS_PER_READ
}

fn fell_behind(behind: Behind) -> Status {
    compacted(behind.read, behind.since)
}

/// What has no name is of everybody.
fn concerns_up_to(event: &Event, to: &ResourceName) -> bool {
    let names = names_of(event);
    names.is_empty() || names.iter().any(|name| name <= to)
}

#[cfg(test)]
mod tests;
