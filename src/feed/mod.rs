//! What one node keeps of what happened, for those who watch: the last events, in the
//! order of the log, bounded by number and by bytes. Section 9 of the contract.
//!
//! It is not part of the replicated state: every node fills its own from the entries
//! it applies, and begins anew when it is started or takes a snapshot up. It always
//! knows from where on it is complete ([`Feed::since`]).
//!
//! Adding to it costs the same however many watch, and waits for nobody: whoever reads
//! too slowly finds that what it needs is gone. Who is woken by what is the business of
//! [`Watchers`].

mod topic;
mod watchers;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::locks::{Event, Happened, ResourceName, Revision};

pub use topic::Topic;
pub use watchers::{Over, Seat, TooMany, Turn, WATCHERS_MAX, Watchers};

/// How many events a node keeps if nothing else is set.
pub const EVENTS_MAX: usize = 65_536;
/// How many bytes of them it keeps if nothing else is set, about.
pub const BYTES_MAX: usize = 32 << 20;

/// How much is kept. What the last entry of the log brought about is kept whatever its
/// size, which the rules bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedLimits {
    /// Events.
    pub events: usize,
    /// Bytes, about.
    pub bytes: usize,
}

impl Default for FeedLimits {
    fn default() -> Self {
        Self { events: EVENTS_MAX, bytes: BYTES_MAX }
    }
}

/// The last events of one node.
#[derive(Debug, Default)]
pub struct Feed {
    entries: VecDeque<Arc<EntryEvents>>,
    limits: FeedLimits,
    /// All events after it are kept.
    since: Revision,
    /// The last entry applied.
    position: u64,
    events: usize,
    bytes: usize,
}

/// What one entry of the log brought about: at least one event.
#[derive(Debug)]
pub struct EntryEvents {
    /// In order.
    pub events: Box<[Event]>,
    index: u64,
    bytes: usize,
}

/// What is read at a time.
#[derive(Debug)]
pub struct Read {
    /// In order. The first entry may hold events that the reader has.
    pub entries: Vec<Arc<EntryEvents>>,
    /// All up to here has been read.
    pub to: Revision,
    /// Whether that is all there is.
    pub all: bool,
}

/// What a reader needs is no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    /// Up to where it has read.
    pub read: Revision,
    /// After which all is kept.
    pub since: Revision,
}

impl Feed {
    /// Nothing is kept of what was applied before `position`.
    pub fn new(position: u64) -> Self {
        Self { position, since: Revision::end_of(position), ..Self::default() }
    }

    /// Keeps so much from now on.
    pub fn limit(&mut self, limits: FeedLimits) {
        self.limits = limits;
        self.drop_oldest();
    }

    /// Another table has taken the place of the one that the events led to.
    pub fn reset(&mut self, position: u64) {
        *self = Self { limits: self.limits, ..Self::new(position) };
    }

    /// Adds what the entry at `index` brought about.
    pub fn append(&mut self, index: u64, events: Vec<Event>) {
        self.position = index;
        if events.is_empty() {
            return;
        }
        // They are kept for long: what the list has to spare would weigh more than they do.
        let events = events.into_boxed_slice();
        let bytes = ENTRY_BYTES + events.iter().map(weight).sum::<usize>();
        self.events += events.len();
        self.bytes += bytes;
        self.entries.push_back(Arc::new(EntryEvents { events, index, bytes }));
        self.drop_oldest();
    }

    /// After which all is kept.
    pub const fn since(&self) -> Revision {
        self.since
    }

    /// The last entry applied.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// How many events are kept.
    pub const fn len(&self) -> usize {
        self.events
    }

    /// Whether none is kept.
    pub const fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// What happened after a revision: whole entries, and no more of them when `max`
    /// events are reached. Nothing at a revision that this node has not come to yet.
    ///
    /// # Errors
    /// [`Behind`] if something after it may be gone.
    pub fn after(&self, after: Revision, max: usize) -> Result<Read, Behind> {
        if after < self.since {
            return Err(Behind { read: after, since: self.since });
        }
        let first = self.entries.partition_point(|entry| entry.last() <= after);
        let mut room = max;
        let mut entries = Vec::new();
        for entry in self.entries.range(first..) {
            if room == 0 {
                break;
            }
            room = room.saturating_sub(entry.events.len());
            entries.push(Arc::clone(entry));
        }
        let all = first + entries.len() == self.entries.len();
        let to = match entries.last() {
            Some(last) if !all => Revision::end_of(last.index),
            Some(_) | None => after.max(Revision::end_of(self.position)),
        };
        Ok(Read { entries, to, all })
    }

    /// The last entries before the one at `index`, the latest first: at least one if
    /// there is one, and no more of them when `max` events are reached.
    pub fn before(&self, index: u64, max: usize) -> Vec<Arc<EntryEvents>> {
        let end = self.entries.partition_point(|entry| entry.index < index);
        let mut room = max;
        let mut entries = Vec::new();
        for entry in self.entries.range(..end).rev() {
            if room == 0 {
                break;
            }
            room = room.saturating_sub(entry.events.len());
            entries.push(Arc::clone(entry));
        }
        entries
    }

    fn drop_oldest(&mut self) {
        while self.entries.len() > 1
            && (self.events > self.limits.events || self.bytes > self.limits.bytes)
            && let Some(oldest) = self.entries.pop_front()
        {
            self.events -= oldest.events.len();
            self.bytes -= oldest.bytes;
            self.since = Revision::end_of(oldest.index);
        }
    }
}

impl EntryEvents {
    /// Its index in the log.
    pub const fn index(&self) -> u64 {
        self.index
    }

    fn last(&self) -> Revision {
        self.events.last().map_or(Revision::end_of(self.index), |event| event.at)
    }
}

/// The names that an event concerns; none for the beginning and end of a session.
pub fn names_of(event: &Event) -> &[ResourceName] {
    match &event.what {
        Happened::Opened { .. } | Happened::Ended { .. } => &[],
        Happened::Queued { names, .. }
        | Happened::Granted { names, .. }
        | Happened::Activated { names, .. }
        | Happened::ValueChanged { names, .. }
        | Happened::Asked { names, .. }
        | Happened::GrantEnded { names, .. }
        | Happened::Reopened { names, .. }
        | Happened::LeftQueue { names, .. } => names,
        Happened::Frozen { name, .. }
        | Happened::Thawed { name, .. }
        | Happened::Resized { name, .. } => std::slice::from_ref(name),
    }
}

/// Bytes of an entry beside its events: two counts and a pointer to them.
const ENTRY_BYTES: usize = size_of::<EntryEvents>() + 3 * size_of::<usize>();

/// Bytes of an event, about: as if it shared nothing with the table.
fn weight(event: &Event) -> usize {
    let name = |name: &ResourceName| size_of::<ResourceName>() + name.as_str().len();
    let names: usize = names_of(event).iter().map(name).sum();
    let value = match &event.what {
        Happened::ValueChanged { value, .. } => value.as_bytes().len(),
        Happened::Opened { .. }
        | Happened::Ended { .. }
        | Happened::Queued { .. }
        | Happened::Granted { .. }
        | Happened::Activated { .. }
        | Happened::Asked { .. }
        | Happened::GrantEnded { .. }
        | Happened::Reopened { .. }
        | Happened::LeftQueue { .. }
        | Happened::Frozen { .. }
        | Happened::Thawed { .. }
        | Happened::Resized { .. } => 0,
    };
    size_of::<Event>() + names + value
}

#[cfg(test)]
mod tests;
