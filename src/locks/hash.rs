//! The state hash: the sum of the hashes of all rows, so that a changed row costs
//! one subtraction and one addition. (I10)
//!
//! Each row is written down canonically first: a field is its number and its
//! content, and an absent or zero field is not written, so that a later version
//! that adds a field agrees with an older one for as long as nobody uses it.

use xxhash_rust::xxh3::xxh3_128;

use super::claim::{Handoff, Mode, Note, Phase, Terms, Value};
use super::command::{Labels, WaitId};
use super::effect::{Done, Outcome, Refusal};
use super::ids::{Position, ResourceName, Revision, Token};
use super::rows::{
    ClosureRow, FrozenRow, GrantRow, MetaRow, OutcomeRow, ResizedRow, Row, SessionRow, WaitRow,
    WindowRow,
};

/// A hash over all rows of a table; equal on replicas at the same index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StateHash(pub u128);

impl StateHash {
    pub(super) const fn add(&mut self, row: RowHash) {
        self.0 = self.0.wrapping_add(row.0);
    }

    pub(super) const fn remove(&mut self, row: RowHash) {
        self.0 = self.0.wrapping_sub(row.0);
    }
}

/// The hash of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RowHash(u128);

impl RowHash {
    pub(super) fn of(row: &Row) -> Self {
        let mut text = Canon::default();
        match row {
            Row::Meta(row) => text.meta(row),
            Row::Session(row) => text.session(row),
            Row::Window(row) => text.window(row),
            Row::Outcome(row) => text.outcome_row(row),
            Row::Grant(row) => text.grant(row),
            Row::Wait(row) => text.wait_row(row),
            Row::Closure(row) => text.closure(row),
            Row::Frozen(row) => text.frozen(row),
            Row::Resized(row) => text.resized(row),
        }
        Self(xxh3_128(&text.bytes))
    }
}

/// Writes fields down in one way only.
#[derive(Default)]
pub(super) struct Canon {
    bytes: Vec<u8>,
}

impl Canon {
    pub(super) fn number(&mut self, field: u8, value: u64) {
        if value != 0 {
            self.bytes.push(field);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(super) fn text(&mut self, field: u8, value: &[u8]) {
        if !value.is_empty() {
            self.number(field, value.len() as u64);
            self.bytes.extend_from_slice(value);
        }
    }

    pub(super) fn names(&mut self, field: u8, names: &[ResourceName]) {
        for name in names {
            self.text(field, name.as_str().as_bytes());
        }
    }

    /// A 64-bit hash of what was written, for telling requests apart.
    pub(super) fn fingerprint(&self) -> u64 {
        // 0 stands for "none" in stored rows.
        xxhash_rust::xxh3::xxh3_64(&self.bytes).max(1)
    }

    fn labels(&mut self, field: u8, labels: &Labels) {
        for (key, value) in labels {
            self.text(field, key.as_bytes());
            // A field of its own: an empty value is not written.
            self.text(field + 1, value.as_bytes());
        }
    }

    fn revision(&mut self, field: u8, at: Revision) {
        self.number(field, at.index);
        self.number(field + 1, u64::from(at.ordinal));
    }

    fn position(&mut self, field: u8, at: Position) {
        self.number(field, at.term.0);
        self.number(field + 1, at.index);
    }

    fn wait(&mut self, field: u8, wait: WaitId) {
        self.number(field, wait.session.0);
        self.number(field + 1, wait.request.get());
    }

    fn meta(&mut self, row: &MetaRow) {
        self.bytes.push(1);
        self.text(1, row.cluster.as_ref().map_or(&[], |id| id.as_bytes().as_slice()));
        self.position(2, row.position);
        self.number(4, row.token);
        self.number(5, row.limits.ttl_min.0);
        self.number(6, row.limits.ttl_max.0);
        self.number(7, row.limits.sessions_max);
        self.number(8, row.limits.places_per_session_max);
        self.number(9, row.limits.waiters_per_resource_max);
    }

    fn session(&mut self, row: &SessionRow) {
        self.bytes.push(2);
        self.number(1, row.session.0);
        self.text(2, row.owner.as_bytes());
        self.number(3, row.ttl.0);
        self.position(4, row.seen);
        self.labels(6, &row.labels);
    }

    fn window(&mut self, row: &WindowRow) {
        self.bytes.push(3);
        self.number(1, row.session.0);
        self.number(2, row.floor.get());
        for (first, last) in &row.finished {
            self.number(3, first.get());
            self.number(4, last.get());
        }
        self.revision(5, row.changed_at);
    }

    fn outcome_row(&mut self, row: &OutcomeRow) {
        self.bytes.push(4);
        self.number(1, row.session.0);
        self.number(2, row.request.get());
        self.number(3, row.fingerprint.unwrap_or(0));
        self.outcome(4, &row.outcome);
    }

    fn grant(&mut self, row: &GrantRow) {
        self.bytes.push(5);
        self.number(1, row.token.get());
        self.number(2, row.floor.get());
        self.wait(3, row.wait);
        self.names(5, &row.names);
        self.mode(6, row.mode);
        self.revision(7, row.granted_at);
        self.slot(9, row.slot);
        let barrier = match row.phase {
            Phase::Active => 0,
            Phase::Barrier { deadline } => deadline.0,
        };
        self.number(10, barrier);
        self.number(11, row.lock_delay.0);
        self.value(12, &row.value);
        if let Some(asked) = &row.asked {
            self.revision(13, asked.at);
            self.number(15, asked.within.0);
            self.note(16, &asked.note);
        }
    }

    fn wait_row(&mut self, row: &WaitRow) {
        self.bytes.push(6);
        self.wait(1, row.wait);
        self.number(3, row.fingerprint);
        self.names(4, &row.names);
        self.mode(5, row.mode);
        self.number(6, row.deadline.0);
        self.revision(7, row.queued_at);
        self.terms(9, &row.terms);
    }

    fn closure(&mut self, row: &ClosureRow) {
        self.bytes.push(7);
        self.number(1, row.token.get());
        self.names(2, &row.names);
        self.mode(3, row.mode);
        self.slot(4, row.slot);
        self.number(5, row.delay.0);
        self.revision(6, row.since);
    }

    fn frozen(&mut self, row: &FrozenRow) {
        self.bytes.push(8);
        self.number(1, row.token.get());
        self.text(2, row.name.as_str().as_bytes());
        self.note(3, &row.note);
        self.revision(5, row.since);
    }

    fn resized(&mut self, row: &ResizedRow) {
        self.bytes.push(9);
        self.number(1, row.token.get());
        self.text(2, row.name.as_str().as_bytes());
        self.number(3, u64::from(row.slots));
        self.note(4, &row.note);
        self.revision(6, row.since);
    }

    /// Three fields.
    pub(super) fn terms(&mut self, field: u8, terms: &Terms) {
        self.number(field, terms.lock_delay.0);
        let barrier = match terms.handoff {
            Handoff::Plain => 0,
            Handoff::Strict { barrier } => barrier.0,
        };
        self.number(field + 1, barrier);
        self.value(field + 2, &terms.value);
    }

    pub(super) fn value(&mut self, field: u8, value: &Value) {
        self.text(field, value.as_bytes());
    }

    pub(super) fn mode(&mut self, field: u8, mode: Mode) {
        self.number(field, u64::from(mode.code()));
    }

    fn note(&mut self, field: u8, note: &Note) {
        self.text(field, note.actor.as_bytes());
        self.text(field + 1, note.reason.as_bytes());
    }

    /// Slot 0 is not the same as none.
    fn slot(&mut self, field: u8, slot: Option<u32>) {
        self.number(field, slot.map_or(0, |slot| u64::from(slot) + 1));
    }

    fn outcome(&mut self, field: u8, outcome: &Outcome) {
        match outcome {
            Ok(done) => self.done(field, done),
            Err(refusal) => self.refusal(field, refusal),
        }
    }

    fn done(&mut self, field: u8, done: &Done) {
        match done {
            Done::Nothing => self.number(field, 1),
            Done::Opened { session, ttl, created } => {
                self.number(field, 2);
                self.number(field + 1, session.0);
                self.number(field + 2, ttl.0);
                self.number(field + 3, u64::from(*created));
            }
            Done::Closed => self.number(field, 3),
            Done::TtlSet { ttl } => self.pair(field, 4, ttl.0, 0),
            Done::Granted { token } => self.pair(field, 5, token.get(), 0),
            Done::Queued { ahead } => self.pair(field, 6, *ahead, 0),
            Done::Released { at } => {
                self.number(field, 7);
                self.revision(field + 1, *at);
            }
            Done::CancelledTarget => self.number(field, 8),
            Done::Confirmed { at } => {
                self.number(field, 9);
                self.revision(field + 1, *at);
            }
            Done::ValueSet { at } => {
                self.number(field, 10);
                self.revision(field + 1, *at);
            }
            // Belongs to no session, and so is never kept.
            Done::Administered(_) => self.number(field, 99),
        }
    }

    fn refusal(&mut self, field: u8, refusal: &Refusal) {
        match refusal {
            Refusal::SessionExpired => self.number(field, 101),
            Refusal::SessionUnknown => self.number(field, 102),
            Refusal::NotBootstrapped => self.number(field, 103),
            Refusal::StaleRequest => self.number(field, 104),
            Refusal::WindowFull => self.number(field, 105),
            Refusal::RequestChanged => self.number(field, 106),
            Refusal::Busy { holder, waiting } => {
                self.pair(field, 107, holder.map_or(0, Token::get), *waiting);
            }
            Refusal::AlreadyHeld { resource, token, mode, phase } => {
                let barrier = match phase {
                    Phase::Active => 0,
                    Phase::Barrier { deadline } => deadline.0,
                };
                self.pair(field, 108, token.get(), barrier);
                self.mode(field + 3, *mode);
                self.text(field + 4, resource.as_str().as_bytes());
            }
            Refusal::AlreadyWaiting { resource, request } => {
                self.pair(field, 109, request.get(), 0);
                self.text(field + 4, resource.as_str().as_bytes());
            }
            Refusal::GrantEnded { token } => self.pair(field, 110, token.get(), 0),
            Refusal::Cancelled => self.number(field, 111),
            Refusal::WaitTimeout => self.number(field, 112),
            Refusal::NotHeld => self.number(field, 113),
            Refusal::QueueFull { max } => self.pair(field, 114, *max, 0),
            Refusal::LimitReached { limit, max } => {
                self.pair(field, 115, u64::from(limit.code()), *max);
            }
            Refusal::TtlOutOfBounds { min, max } => self.pair(field, 116, min.0, max.0),
            Refusal::TooEntangled { max } => self.pair(field, 117, *max, 0),
            Refusal::Deadlock { cycle } => {
                self.number(field, 118);
                for blocked in cycle {
                    self.number(field + 1, blocked.session.0);
                    self.text(field + 4, blocked.resource.as_str().as_bytes());
                }
            }
            Refusal::CapacityMismatch { resource, slots } => {
                self.pair(field, 119, u64::from(*slots), 0);
                self.text(field + 4, resource.as_str().as_bytes());
            }
            Refusal::Frozen { resource, token } => {
                self.pair(field, 120, token.get(), 0);
                self.text(field + 4, resource.as_str().as_bytes());
            }
        }
    }

    fn pair(&mut self, field: u8, kind: u64, first: u64, second: u64) {
        self.number(field, kind);
        self.number(field + 1, first);
        self.number(field + 2, second);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Millis, OwnerId, SessionId};
    use super::*;

    #[test]
    fn labels_that_differ_have_different_hashes() {
        let hash = |labels: [(&str, &str); 2]| {
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let (session, owner) = (SessionId(1), OwnerId::new([7; 16]));
            let seen = Position::default();
            let row = SessionRow { session, owner, ttl: Millis(1), seen, labels: labels.into() };
            RowHash::of(&Row::Session(row))
        };
        assert_ne!(hash([("host", ""), ("pid", "zone")]), hash([("host", "pid"), ("zone", "")]));
    }
}
