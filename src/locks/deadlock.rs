//! Whether a wait could ever be granted. Section 4 of the contract.
//!
//! It could not if it is still waiting after every session that waits for nothing has
//! given up what it holds, and grants went by the rules as far as they go. So this
//! plays that out, on a copy of only what the wait depends on: the holders of its
//! resources, those who stand before it, and whatever these wait for in turn. Each
//! holder and each place in a queue is visited once, up to [`SEARCH_STEPS_MAX`]: a search
//! takes O(n log n) in what it visits, however large the table is. Freezes and lock delays are taken
//! to end: waiting for an administrator or a timer is no deadlock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::claim::{Claim, Mode};
use super::command::WaitId;
use super::effect::Blocked;
use super::ids::{ResourceName, SessionId};
use super::switches::Rule;
use super::table::LockTable;

/// How many holders and places in queues one search visits.
pub const SEARCH_STEPS_MAX: usize = 10_000;
/// How many steps of a cycle are told.
pub const CYCLE_TOLD_MAX: usize = 16;

/// What a search finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The wait ends some day, if everybody gives back what it holds.
    Granted,
    /// It never does: who waits for what, in a circle, as far as it is told.
    Stuck(Vec<Blocked>),
    /// [`SEARCH_STEPS_MAX`] were not enough to know.
    NotFound,
}

impl LockTable {
    /// Whether a wait of this session for this claim, behind all who wait now, could ever
    /// be granted.
    pub(super) fn would_ever_be_granted(&self, session: SessionId, claim: &Claim) -> Verdict {
        let live = &self.sessions[&session];
        if live.grants.is_empty() && live.waits.is_empty() {
            return Verdict::Granted; // nobody waits for one that has nothing
        }
        if !self.holds(Rule::WaitIsChecked) {
            return Verdict::Granted;
        }
        let mut play = Play::new(self);
        if play.explore(session, claim).is_none() {
            return Verdict::NotFound;
        }
        play.run();
        match play.waits[ASKED].granted {
            true => Verdict::Granted,
            false => Verdict::Stuck(play.cycle()),
        }
    }
}

/// The wait in question is the first that is explored.
const ASKED: usize = 0;

/// The part of the table that is played out. Waits, resources and sessions are named by
/// their places in these lists.
struct Play<'t> {
    table: &'t LockTable,
    steps: usize,
    waits: Vec<Waiter<'t>>,
    wait_ids: BTreeMap<WaitId, usize>,
    resources: Vec<Place<'t>>,
    resource_ids: BTreeMap<&'t ResourceName, usize>,
    sessions: Vec<Party>,
    session_ids: BTreeMap<SessionId, usize>,
    /// Waits whose resources are not looked at yet.
    ahead: Vec<usize>,
    /// Sessions that wait for nothing and have not given up yet.
    finished: Vec<usize>,
    /// Resources at whose first waiter somebody should look.
    changed: VecDeque<usize>,
}

struct Waiter<'t> {
    session: usize,
    names: &'t [ResourceName],
    resources: Vec<usize>,
    mode: Mode,
    /// Its place in every queue.
    index: u64,
    granted: bool,
}

struct Place<'t> {
    name: &'t ResourceName,
    /// Sessions that hold it, all in one mode.
    holders: BTreeSet<usize>,
    mode: Option<Mode>,
    slots: Option<u32>,
    /// Waits that were found, by their places.
    queue: BTreeMap<u64, usize>,
    /// All before this place were found.
    found: u64,
}

struct Party {
    id: SessionId,
    waits: usize,
    holds: Vec<usize>,
}

impl<'t> Play<'t> {
    const fn new(table: &'t LockTable) -> Self {
        Self {
            table,
            steps: 0,
            waits: Vec::new(),
            wait_ids: BTreeMap::new(),
            resources: Vec::new(),
            resource_ids: BTreeMap::new(),
            sessions: Vec::new(),
            session_ids: BTreeMap::new(),
            ahead: Vec::new(),
            finished: Vec::new(),
            changed: VecDeque::new(),
        }
    }

    /// Finds all that the wait in question depends on; `None` if that is too much.
    fn explore(&mut self, session: SessionId, claim: &'t Claim) -> Option<()> {
        self.waits.push(Waiter {
            session: 0,
            names: &claim.names,
            resources: Vec::new(),
            mode: claim.mode,
            index: u64::MAX,
            granted: false,
        });
        self.ahead.push(ASKED);
        let session = self.party(session)?;
        self.sessions[session].waits += 1;
        self.waits[ASKED].session = session;
        while let Some(wait) = self.ahead.pop() {
            for (nth, name) in self.waits[wait].names.iter().enumerate() {
                if nth > 0 {
                    self.step()?; // for the first one it was taken when the wait was found
                }
                let resource = self.place(name)?;
                self.waits[wait].resources.push(resource);
                let index = self.waits[wait].index;
                self.resources[resource].queue.insert(index, wait);
                self.find_before(resource, index)?;
            }
        }
        // Known only now: the party of the wait in question counts it.
        let idle = |party: &Party| party.waits == 0;
        let idle = self.sessions.iter().enumerate().filter(|(_, party)| idle(party));
        self.finished = idle.map(|(at, _)| at).collect();
        self.changed = (0..self.resources.len()).collect();
        Some(())
    }

    /// Finds those who stand before a place in a queue.
    fn find_before(&mut self, resource: usize, index: u64) -> Option<()> {
        let place = &mut self.resources[resource];
        let from = place.found;
        if index <= from {
            return Some(());
        }
        place.found = index;
        let Some(known) = self.table.resources.get(place.name) else { return Some(()) };
        for wait in known.queue.range(from..index).map(|(_, wait)| *wait) {
            self.step()?;
            self.waiter(wait)?;
        }
        Some(())
    }

    fn waiter(&mut self, id: WaitId) -> Option<()> {
        if self.wait_ids.contains_key(&id) {
            return Some(());
        }
        let row = &self.table.waits[&id];
        let at = self.waits.len();
        self.wait_ids.insert(id, at);
        self.waits.push(Waiter {
            session: 0,
            names: &row.names,
            resources: Vec::new(),
            mode: row.mode,
            index: row.queued_at.index,
            granted: false,
        });
        self.ahead.push(at);
        self.waits[at].session = self.party(id.session)?;
        Some(())
    }

    /// A session gives up what it holds when all its waits are granted: so they matter.
    fn party(&mut self, id: SessionId) -> Option<usize> {
        if let Some(at) = self.session_ids.get(&id) {
            return Some(*at);
        }
        let live = self.table.sessions.get(&id);
        let requests: Vec<_> = live.iter().flat_map(|s| s.waits.iter().copied()).collect();
        let at = self.sessions.len();
        self.session_ids.insert(id, at);
        self.sessions.push(Party { id, waits: requests.len(), holds: Vec::new() });
        for request in requests {
            self.step()?;
            self.waiter(WaitId { session: id, request })?;
        }
        Some(at)
    }

    fn place(&mut self, name: &'t ResourceName) -> Option<usize> {
        if let Some(at) = self.resource_ids.get(name) {
            return Some(*at);
        }
        let known = self.table.resources.get(name);
        let tokens: Vec<_> = known.iter().flat_map(|r| r.holders.iter().copied()).collect();
        let at = self.resources.len();
        self.resource_ids.insert(name, at);
        self.resources.push(Place {
            name,
            holders: BTreeSet::new(),
            mode: tokens.first().map(|token| self.table.grants[token].mode),
            slots: known.and_then(|r| r.capacity).map(|capacity| capacity.slots),
            queue: BTreeMap::new(),
            found: 0,
        });
        for token in tokens {
            self.step()?;
            let holder = self.party(self.table.grants[&token].wait.session)?;
            self.resources[at].holders.insert(holder);
            self.sessions[holder].holds.push(at);
        }
        Some(at)
    }

    fn step(&mut self) -> Option<()> {
        self.steps += 1;
        (self.steps <= SEARCH_STEPS_MAX).then_some(())
    }

    /// Gives up and grants until nothing moves.
    fn run(&mut self) {
        loop {
            while let Some(resource) = self.changed.pop_front() {
                while let Some(wait) = self.grantable_head(resource) {
                    self.grant(wait);
                }
            }
            let Some(session) = self.finished.pop() else { return };
            for resource in std::mem::take(&mut self.sessions[session].holds) {
                let place = &mut self.resources[resource];
                place.holders.remove(&session);
                place.mode = place.mode.filter(|_| !place.holders.is_empty());
                self.changed.push_back(resource);
            }
        }
    }

    fn grantable_head(&self, resource: usize) -> Option<usize> {
        let wait = *self.resources[resource].queue.first_key_value()?.1;
        self.blocking_resource(wait).is_none().then_some(wait)
    }

    /// The first resource that keeps a wait from its grant.
    fn blocking_resource(&self, wait: usize) -> Option<usize> {
        let waiter = &self.waits[wait];
        waiter.resources.iter().copied().find(|resource| {
            let place = &self.resources[*resource];
            place.queue.first_key_value().map(|(_, first)| *first) != Some(wait)
                || !place.admits(waiter.mode)
        })
    }

    fn grant(&mut self, wait: usize) {
        let waiter = &mut self.waits[wait];
        waiter.granted = true;
        for resource in &waiter.resources {
            let place = &mut self.resources[*resource];
            place.queue.remove(&waiter.index);
            place.holders.insert(waiter.session);
            place.mode = Some(waiter.mode);
            self.changed.push_back(*resource);
        }
        let party = &mut self.sessions[waiter.session];
        party.holds.extend(&waiter.resources);
        // A session that has ended has none; only a test lets such waits stay.
        party.waits = party.waits.saturating_sub(1);
        if party.waits == 0 {
            self.finished.push(waiter.session);
        }
    }

    /// Follows what keeps the wait in question from its grant until it comes round.
    fn cycle(&self) -> Vec<Blocked> {
        let stuck = self.stuck_waits();
        let mut path = Vec::new();
        let mut place_in_path = vec![None; self.waits.len()];
        let mut wait = ASKED;
        while place_in_path[wait].is_none()
            && let Some(resource) = self.blocking_resource(wait)
        {
            place_in_path[wait] = Some(path.len());
            path.push((wait, resource));
            wait = self.in_the_way(wait, resource, &stuck);
        }
        let begin = place_in_path[wait].unwrap_or(0);
        let told = path.into_iter().skip(begin).take(CYCLE_TOLD_MAX);
        let blocked = |(wait, resource): (usize, usize)| Blocked {
            session: self.sessions[self.waits[wait].session].id,
            resource: self.resources[resource].name.clone(),
        };
        told.map(blocked).collect()
    }

    /// Of each session the first wait that was never granted.
    fn stuck_waits(&self) -> Vec<Option<usize>> {
        let mut stuck = vec![None; self.sessions.len()];
        for (at, wait) in self.waits.iter().enumerate().filter(|(_, wait)| !wait.granted) {
            stuck[wait.session].get_or_insert(at);
        }
        stuck
    }

    /// The stuck wait that keeps another one from a resource: that of the queue's head, or
    /// one of a holder.
    fn in_the_way(&self, wait: usize, resource: usize, stuck: &[Option<usize>]) -> usize {
        let place = &self.resources[resource];
        match place.queue.first_key_value() {
            Some((_, head)) if *head != wait => *head,
            _ => place.holders.first().and_then(|holder| stuck[*holder]).unwrap_or(wait),
        }
    }
}

impl Place<'_> {
    fn admits(&self, mode: Mode) -> bool {
        match (self.mode, mode) {
            (None, _) => true,
            (Some(held), Mode::Slots { of }) => {
                let holders = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
                !held.conflicts_with(mode) && holders < self.slots.unwrap_or(of)
            }
            (Some(held), Mode::Exclusive | Mode::Shared) => !held.conflicts_with(mode),
        }
    }
}
