//! Nobody waits for ever: a wait stands in a queue exactly if it would be granted some
//! day, supposing that every session that waits for nothing gives up what it holds and
//! grants then go by the rules. Said again here as simply as can be.

use std::collections::{BTreeMap, VecDeque};

use ringfence::locks::{
    Blocked, Claim, Command, Happened, LockTable, Mode, Refusal, SessionId, WaitId,
};

use super::books::{Books, PLACES, apart, place};
use crate::log::Committed;

/// A table in which everybody gives up.
struct Play {
    holders: [Vec<(SessionId, Mode)>; PLACES],
    queues: [VecDeque<WaitId>; PLACES],
    slots: [Option<u32>; PLACES],
    waits: BTreeMap<WaitId, (Vec<usize>, Mode)>,
}

/// After an entry. `fresh` says whether the request is in the log for the first time.
pub fn check(books: &Books, seen: &Committed<'_>, fresh: bool) -> Result<(), String> {
    for event in &seen.effects.events {
        if let Happened::Queued { wait, .. } = &event.what
            && books.waits.contains_key(wait)
            && !is_let_in(books, *wait)
            && !Play::of(books).grants(*wait)
        {
            return Err(format!("{wait:?} would never be granted, and yet it waits"));
        }
    }
    match (seen.command, &seen.effects.outcome) {
        (Some(Command::Acquire { header, claim, .. }), Err(Refusal::Deadlock { cycle }))
            if fresh =>
        {
            let wait = WaitId { session: header.session, request: header.id };
            let mut play = Play::of(books);
            play.queue(wait, claim);
            let waits = |step: &Blocked| {
                let places = play.waits.iter().filter(|(id, _)| id.session == step.session);
                places.flat_map(|(_, (places, _))| places).any(|at| *at == place(&step.resource))
            };
            if cycle.is_empty() || !cycle.iter().all(waits) {
                return Err(format!("{wait:?} is told a cycle of who does not wait: {cycle:?}"));
            }
            match play.grants(wait) {
                true => Err(format!("{wait:?} would be granted, and is told of a deadlock")),
                false => Ok(()),
            }
        }
        (Some(Command::Acquire { claim, .. }), Err(Refusal::Busy { .. }))
            if fresh && seen.effects.events.is_empty() =>
        {
            let free =
                |at: usize| books.places[at].queue.is_empty() && books.admits(at, claim.mode);
            match claim.names.iter().map(place).all(free) {
                true => Err(format!("{claim:?} is free and is answered BUSY")),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Fewer slots can make a circle of waits that were no circle. Who has nothing is not part
/// of it, and is let into the queue behind it without a search.
fn is_let_in(books: &Books, wait: WaitId) -> bool {
    let others = books.waits.keys().filter(|other| other.session == wait.session);
    let mut held = books.places.iter().flat_map(|here| &here.holders);
    books.places.iter().any(|here| here.shrunk)
        && others.count() == 1
        && !held.any(|token| books.grants[token].wait.session == wait.session)
}

impl Play {
    fn of(books: &Books) -> Self {
        let holder = |token| {
            let grant = &books.grants[token];
            (grant.wait.session, grant.granted.mode)
        };
        let at = |at: usize| &books.places[at];
        let waits = books.waits.iter();
        Self {
            holders: std::array::from_fn(|n| at(n).holders.iter().map(holder).collect()),
            queues: std::array::from_fn(|n| at(n).queue.clone()),
            slots: std::array::from_fn(|n| at(n).slots),
            waits: waits.map(|(id, wait)| (*id, (wait.places.clone(), wait.mode))).collect(),
        }
    }

    fn queue(&mut self, wait: WaitId, claim: &Claim) {
        let places: Vec<_> = claim.names.iter().map(place).collect();
        for at in &places {
            self.queues[*at].push_back(wait);
        }
        self.waits.insert(wait, (places, claim.mode));
    }

    /// Whether this wait is granted in the end.
    fn grants(mut self, asked: WaitId) -> bool {
        while self.waits.contains_key(&asked) {
            if !self.grant_one() && !self.give_up_one() {
                return false;
            }
        }
        true
    }

    fn grant_one(&mut self) -> bool {
        let goes = |wait: &WaitId| {
            let (places, mode) = &self.waits[wait];
            places
                .iter()
                .all(|at| self.queues[*at].front() == Some(wait) && self.admits(*at, *mode))
        };
        let heads: Vec<_> = self.queues.iter().filter_map(VecDeque::front).copied().collect();
        let Some(wait) = heads.into_iter().find(goes) else { return false };
        let (places, mode) = self.waits.remove(&wait).expect("it goes");
        for at in places {
            self.queues[at].pop_front();
            self.holders[at].push((wait.session, mode));
        }
        true
    }

    fn admits(&self, at: usize, mode: Mode) -> bool {
        let held = &self.holders[at];
        let beside = held.iter().all(|(_, other)| !apart(*other, mode));
        beside && mode.slots().is_none_or(|of| held.len() < self.slots[at].unwrap_or(of) as usize)
    }

    fn give_up_one(&mut self) -> bool {
        let waits = |session: SessionId| self.waits.keys().any(|wait| wait.session == session);
        let idle = self.holders.iter().flatten().map(|(session, _)| *session);
        let Some(idle) = idle.into_iter().find(|session| !waits(*session)) else { return false };
        for held in &mut self.holders {
            held.retain(|(session, _)| *session != idle);
        }
        true
    }
}

/// When nobody has a session any more, nothing is held or awaited, and no resource is
/// known that is not frozen or closed. Says whether it came to that.
pub fn all_free(books: &Books, table: &LockTable) -> Result<bool, String> {
    let closed = books.places.iter().any(|at| at.frozen.is_some() || !at.closures.is_empty());
    if table.counts().0 > 0 || closed {
        return Ok(false);
    }
    match table.resources_with_prefix("job", None).next() {
        Some(left) => Err(format!("{} is left when nobody is", left.name)),
        None if table.counts() == (0, 0, 0) => Ok(true),
        None => Err(format!("sessions, grants, waits: {:?} are left", table.counts())),
    }
}

#[test]
fn a_circle_of_waits_is_noticed() {
    use super::made_up::{granted, queued};
    let mut books = Books::default();
    books.take(&granted(1, "job/1", 1), 0);
    books.take(&granted(2, "job/2", 2), 0);
    books.take(&queued(1, "job/2"), 0);
    let request = ringfence::locks::RequestId::FIRST;
    let wait = |session| WaitId { session: SessionId(session), request };
    assert!(Play::of(&books).grants(wait(1)));
    books.take(&queued(2, "job/1"), 0);
    assert!(!Play::of(&books).grants(wait(2)));
    assert!(!Play::of(&books).grants(wait(1)));
}
