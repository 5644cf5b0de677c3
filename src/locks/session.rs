//! A session in memory, and the window of its requests. Section 5 of the
//! contract.

use std::collections::{BTreeMap, BTreeSet};

use super::command::WINDOW_MAX;
use super::effect::Outcome;
use super::ids::{RequestId, ResourceName, Revision, SessionId, Token};
use super::rows::{OutcomeRow, SessionRow, WindowRow};

/// A live session with all that belongs to it.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// Identity, owner, ttl, when seen.
    pub row: SessionRow,
    /// Its requests.
    pub window: Window,
    /// Where it stands, by resource: at most one grant or wait on each.
    pub places: BTreeMap<ResourceName, Place>,
    /// Its live grants.
    pub grants: BTreeSet<Token>,
    /// Its waits.
    pub waits: BTreeSet<RequestId>,
}

/// A session's one place on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Holds it under this token.
    Held(Token),
    /// Waits for it under this request id.
    Waiting(RequestId),
}

impl Session {
    pub fn new(row: SessionRow) -> Self {
        Self {
            row,
            window: Window::default(),
            places: BTreeMap::new(),
            grants: BTreeSet::new(),
            waits: BTreeSet::new(),
        }
    }

    /// How many more outcomes, waits and ranges the session may keep. A wait keeps
    /// room for its outcome.
    pub fn window_room(&self) -> usize {
        let kept = self.window.outcomes.len() + self.window.finished.len() + self.waits.len();
        WINDOW_MAX.saturating_sub(kept)
    }

    pub fn window_row(&self) -> WindowRow {
        let finished = self.window.finished.iter().map(|(first, last)| (*first, *last)).collect();
        WindowRow {
            session: self.row.session,
            floor: self.window.floor,
            finished,
            changed_at: self.window.changed_at,
        }
    }
}

/// A finished request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finished {
    /// Of its contents; `None` for a cancel that came before its acquire.
    pub fingerprint: Option<u64>,
    /// Its answer.
    pub outcome: Outcome,
}

impl Finished {
    pub fn row(&self, session: SessionId, request: RequestId) -> OutcomeRow {
        let (fingerprint, outcome) = (self.fingerprint, self.outcome.clone());
        OutcomeRow { session, request, fingerprint, outcome }
    }
}

/// How far a session's requests are settled.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// The highest `oldest_outstanding` received. Never falls, whatever order
    /// requests arrive in.
    pub floor: RequestId,
    /// Ranges of finished ids at or above the floor whose answers the client has.
    /// Apart from each other: ranges that meet are joined.
    pub finished: BTreeMap<RequestId, RequestId>,
    /// Answers that may still be asked for; none below the floor.
    pub outcomes: BTreeMap<RequestId, Finished>,
    /// The last change to the session's grants and waits.
    pub changed_at: Revision,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            floor: RequestId::FIRST,
            finished: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            changed_at: Revision::default(),
        }
    }
}

impl Window {
    /// Whether the id is settled and its answer forgotten.
    pub fn is_forgotten(&self, id: RequestId) -> bool {
        id < self.floor || self.range_around(id).is_some()
    }

    /// Raises the floor and says which outcomes fall below it.
    pub fn raise_floor(&mut self, to: RequestId) -> Vec<RequestId> {
        if to <= self.floor {
            return Vec::new();
        }
        self.floor = to;
        let kept = self.outcomes.split_off(&to);
        let dropped = std::mem::replace(&mut self.outcomes, kept).into_keys().collect();
        while let Some((first, last)) = self.finished.first_key_value().map(|(f, l)| (*f, *l)) {
            if first >= to {
                break;
            }
            self.finished.remove(&first);
            if last >= to {
                self.finished.insert(to, last);
            }
        }
        dropped
    }

    /// Notes that the client has the answer of this id; says whether an outcome was
    /// kept for it and is no longer.
    pub fn answered(&mut self, id: RequestId) -> bool {
        if self.is_forgotten(id) {
            return false;
        }
        let mut range = (id, id);
        if let Some((first, last)) = self.finished.range(..id).next_back().map(|(f, l)| (*f, *l))
            && last.next() == id
        {
            range.0 = first;
        }
        if let Some(last) = self.finished.remove(&id.next()) {
            range.1 = last;
        }
        self.finished.insert(range.0, range.1);
        self.outcomes.remove(&id).is_some()
    }

    fn range_around(&self, id: RequestId) -> Option<(RequestId, RequestId)> {
        let (first, last) = self.finished.range(..=id).next_back()?;
        (id <= *last).then_some((*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> RequestId {
        RequestId::new(n).expect("tests use ids from 1")
    }

    fn ranges(window: &Window) -> Vec<(u64, u64)> {
        window.finished.iter().map(|(f, l)| (f.get(), l.get())).collect()
    }

    #[test]
    fn answered_ids_that_meet_are_one_range() {
        let mut window = Window::default();
        for n in [5, 3, 9, 4] {
            window.answered(id(n));
        }
        assert_eq!(ranges(&window), [(3, 5), (9, 9)]);
        window.answered(id(4));
        assert_eq!(ranges(&window), [(3, 5), (9, 9)]);
    }

    #[test]
    fn a_floor_inside_a_range_cuts_it_and_never_falls() {
        let mut window = Window::default();
        for n in 3..=6 {
            window.answered(id(n));
        }
        window.raise_floor(id(5));
        assert_eq!(ranges(&window), [(5, 6)]);
        window.raise_floor(id(2));
        assert_eq!(window.floor, id(5));
        assert!(window.is_forgotten(id(4)) && window.is_forgotten(id(6)));
        assert!(!window.is_forgotten(id(7)));
    }
}
