//! Who watches on this node, and who is woken by what.
//!
//! Whoever has read everything of its topic stands in an index by topic and is not
//! looked at until something of it happens; from then on, until it has read that too,
//! it is left alone. So an event costs a look-up for each of its names, not a look at
//! each watcher, and a watcher is woken once however much has come up meanwhile.
//!
//! All of it happens in a task of its own ([`Watchers::look_through`]): applying does
//! no more than set it off. Nobody here waits for a watcher, and the lock of this part
//! is never held together with the authority's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{Behind, Read, Topic, names_of};
use crate::locks::{Event, Revision};

/// How many may watch on one node if nothing else is set.
pub const WATCHERS_MAX: usize = 10_000;

/// How many events are looked through under one hold of the lock.
const EVENTS_PER_LOCK: usize = 32;

/// Everybody who watches on this node.
#[derive(Debug, Default)]
pub struct Watchers {
    seats: Mutex<Seats>,
    count: AtomicUsize,
    news: Notify,
    gone: Notify,
}

#[derive(Debug, Default)]
struct Seats {
    /// All up to here has been looked through for those who are idle.
    position: Revision,
    next: u64,
    by_id: BTreeMap<u64, Taken>,
    /// Those who have read all there is of their topic.
    idle: BTreeMap<Topic, Vec<u64>>,
    /// Lengths in bytes of the prefixes in `idle`, and how many prefixes have each.
    lengths: BTreeMap<usize, usize>,
    max: Option<usize>,
    over: Option<Over>,
}

#[derive(Debug)]
struct Taken {
    topic: Topic,
    /// Up to here it has read, and its client has taken.
    read: Revision,
    state: State,
    wake: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// Something of its topic may have happened after this.
    Reads(Revision),
}

/// As many watch as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{max} watch on this node already")]
pub struct TooMany {
    /// How many may.
    pub max: usize,
}

/// What a watcher does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nothing of its topic happened up to here: it waits to be woken.
    Idle(Revision),
    /// It reads what happened after this.
    Read(Revision),
    /// What it had not taken is no longer kept.
    Cut {
        /// Up to where it had.
        read: Revision,
    },
    /// The watch ends, as all do here.
    Over {
        /// Nothing of its topic that it has not read happened up to here.
        read: Revision,
        /// Why.
        why: Over,
    },
}

/// Why every watch on a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The node has lost the others: what happens is not learned here.
    CutOff,
    /// The node stops.
    Stops,
}

impl Watchers {
    /// So many may watch.
    pub fn limit(&self, max: usize) {
        self.seats.lock().max = Some(max);
    }

    /// How many watch.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether nobody watches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A place for one who has read up to `read`, which may be ahead of what this node
    /// has applied, `now`. It is given up when it is dropped.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn sit_down(
        self: &Arc<Self>,
        topic: Topic,
        read: Revision,
        now: Revision,
    ) -> Result<Seat, TooMany> {
        let mut seats = self.seats.lock();
        let max = seats.max.unwrap_or(WATCHERS_MAX);
        if seats.by_id.len() >= max {
            return Err(TooMany { max });
        }
        if seats.by_id.is_empty() {
            seats.position = seats.position.max(now); // for nobody who is idle
        }
        let (id, wake) = (seats.next, Arc::new(Notify::new()));
        seats.next += 1;
        let state = State::Reads(read);
        seats.by_id.insert(id, Taken { topic, read, state, wake: Arc::clone(&wake) });
        self.count.store(seats.by_id.len(), Ordering::Relaxed);
        drop(seats);
        self.news.notify_one();
        Ok(Seat { watchers: Arc::clone(self), id, wake })
    }

    /// Something was applied.
    pub fn applied(&self) {
        if !self.is_empty() {
            self.news.notify_one();
        }
    }

    /// Resolves when something was applied since the last time.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Up to where everything has been looked through.
    pub fn position(&self) -> Revision {
        self.seats.lock().position
    }

    /// Wakes whom the events concern. An overrun concerns all: what happened is not
    /// known.
    ///
    /// Those who take their turns are not held up for longer than a few events take.
    pub fn look_through(&self, read: &Result<Read, Behind>) {
        match read {
            Ok(read) => {
                let events: Vec<&Event> = read.entries.iter().flat_map(|e| &e.events).collect();
                for some in events.chunks(EVENTS_PER_LOCK) {
                    let mut seats = self.seats.lock();
                    seats.happened(some);
                    MutexGuard::unlock_fair(seats); // to who waits for it, not to this again
                }
                let mut seats = self.seats.lock();
                seats.position = seats.position.max(read.to);
            }
            Err(Behind { read, since }) => {
                let mut seats = self.seats.lock();
                seats.wake_all(*read);
                seats.position = seats.position.max(*since);
            }
        }
    }

    /// Cuts those who have left untaken what is no longer kept.
    pub fn cut_before(&self, since: Revision) {
        let mut seats = self.seats.lock();
        let behind = |taken: &Taken| match taken.state {
            State::Idle => false,
            State::Reads(after) => after.max(taken.read) < since,
        };
        let cut = seats.by_id.iter().filter(|(_, taken)| behind(taken)).map(|(id, _)| *id);
        for id in cut.collect::<Vec<_>>() {
            if let Some(taken) = seats.by_id.remove(&id) {
                taken.wake.notify_one();
            }
        }
        self.count.store(seats.by_id.len(), Ordering::Relaxed);
    }

    /// Ends every watch from now on.
    pub fn end(&self, why: Over) {
        let mut seats = self.seats.lock();
        if seats.over != Some(Over::Stops) {
            seats.over = Some(why);
        }
        for taken in seats.by_id.values() {
            taken.wake.notify_one();
        }
    }

    /// Whether watches are refused here because no majority is heard of.
    pub fn is_cut_off(&self) -> bool {
        self.seats.lock().over == Some(Over::CutOff)
    }

    /// Watches go on that were cut off and have not ended yet, and new ones last.
    pub fn go_on(&self) {
        let mut seats = self.seats.lock();
        if seats.over == Some(Over::CutOff) {
            seats.over = None;
        }
    }

    /// Resolves when nobody watches any longer.
    pub async fn all_gone(&self) {
        loop {
            let gone = self.gone.notified();
            if self.is_empty() {
                return;
            }
            gone.await;
        }
    }
}

impl Seats {
    /// Looks through the events that follow the position, and moves it on.
    fn happened(&mut self, events: &[&Event]) {
        let position = self.position;
        for event in events.iter().filter(|event| event.at > position) {
            self.wake_whom_it_concerns(event);
        }
        if let Some(last) = events.last() {
            self.position = self.position.max(last.at);
        }
    }

    fn wake_whom_it_concerns(&mut self, event: &Event) {
        let after = Revision::end_of(event.at.index.saturating_sub(1));
        self.wake(&Topic::Everything, after);
        for name in names_of(event) {
            self.wake(&Topic::Resource(name.clone()), after);
            let text = name.as_str();
            let lengths: Vec<usize> = self.lengths.range(..=text.len()).map(|(l, _)| *l).collect();
            for prefix in lengths.into_iter().filter_map(|length| text.get(..length)) {
                self.wake(&Topic::Prefix(prefix.to_owned()), after);
            }
        }
    }

    /// Takes all who are idle at this topic out of the index.
    fn wake(&mut self, topic: &Topic, after: Revision) {
        let Some(ids) = self.idle.remove(topic) else { return };
        self.forget_length(topic);
        for id in ids {
            if let Some(taken) = self.by_id.get_mut(&id) {
                taken.state = State::Reads(after);
                taken.wake.notify_one();
            }
        }
    }

    fn wake_all(&mut self, after: Revision) {
        for topic in self.idle.keys().cloned().collect::<Vec<_>>() {
            self.wake(&topic, after);
        }
    }

    fn rest(&mut self, id: u64, topic: Topic) {
        let of_prefix = if let Topic::Prefix(prefix) = &topic { Some(prefix.len()) } else { None };
        let there = self.idle.entry(topic).or_default();
        if let Some(length) = of_prefix
            && there.is_empty()
        {
            *self.lengths.entry(length).or_default() += 1;
        }
        there.push(id);
    }

    fn leave(&mut self, id: u64) {
        let Some(taken) = self.by_id.remove(&id) else { return };
        if taken.state != State::Idle {
            return;
        }
        if let Some(there) = self.idle.get_mut(&taken.topic) {
            there.retain(|other| *other != id);
            if there.is_empty() {
                self.idle.remove(&taken.topic);
                self.forget_length(&taken.topic);
            }
        }
    }

    fn forget_length(&mut self, topic: &Topic) {
        let Topic::Prefix(prefix) = topic else { return };
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }
}

/// One who watches.
#[derive(Debug)]
pub struct Seat {
    watchers: Arc<Watchers>,
    id: u64,
    wake: Arc<Notify>,
}

impl Seat {
    /// Says up to where it has read and its client has taken everything, and learns what
    /// to do next. Nothing that happens after the answer is missed.
    pub fn turn(&self, read: Revision) -> Turn {
        let seats = &mut *self.watchers.seats.lock();
        let (position, over) = (seats.position, seats.over);
        let Some(taken) = seats.by_id.get_mut(&self.id) else { return Turn::Cut { read } };
        taken.read = read;
        if let Some(why) = over {
            let read = if taken.state == State::Idle { read.max(position) } else { read };
            return Turn::Over { read, why };
        }
        match taken.state {
            State::Idle => Turn::Idle(read.max(position)),
            State::Reads(after) if read < position => Turn::Read(after.max(read)),
            State::Reads(_) => {
                taken.state = State::Idle;
                let topic = taken.topic.clone();
                seats.rest(self.id, topic);
                Turn::Idle(read)
            }
        }
    }

    /// Resolves when it is to take its turn.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seats = self.watchers.seats.lock();
        seats.leave(self.id);
        self.watchers.count.store(seats.by_id.len(), Ordering::Relaxed);
        drop(seats);
        self.watchers.gone.notify_waiters();
    }
}
