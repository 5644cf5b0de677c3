//! Acquire, wait, cancel. Section 4 of the contract.
//!
//! A claim names one or more resources and stands in the queue of each. It is
//! granted, whole and under one token, in the entry in which it heads all its
//! queues and all its resources are free (`grants`).

use super::claim::{Claim, Mode};
use super::command::{Header, Wait, WaitId};
use super::deadlock::{SEARCH_STEPS_MAX, Verdict};
use super::effect::{Done, Fact, Happened, LeaveCause, Limit, Outcome, Refusal, Timer};
use super::entry::Entry;
use super::hash::Canon;
use super::ids::{Millis, RequestId, ResourceName, Revision};
use super::rows::{RowKey, WaitRow};
use super::session::Place;
use super::switches::Rule;
use super::table::LockTable;

/// How many hold or await one resource in mode shared together.
pub const SHARED_MAX: usize = 65_536;
/// How many lock delays may run on one resource before a grant with another one is
/// refused.
pub const CLOSURES_MAX: usize = 10_000;

impl Entry<'_> {
    pub(super) fn acquire(&mut self, header: &Header, claim: &Claim, wait: Wait) -> Outcome {
        let fingerprint = fingerprint_of(claim, wait);
        self.request(header, fingerprint, |entry, session| {
            let id = WaitId { session, request: header.id };
            entry.no_place_yet(id, claim)?;
            entry.table.may_be_asked(claim, wait)?;
            if entry.table.is_free(&claim.names, claim.mode, None) {
                let token = entry.grant(id, claim)?;
                return Ok(Done::Granted { token });
            }
            match wait {
                Wait::Try => Err(entry.table.busy(claim)),
                Wait::UpTo(deadline) => entry.enqueue(id, fingerprint, claim, deadline),
            }
        })
    }

    /// Settles an acquire of the same session: queued, it leaves the queue; granted,
    /// the answer is the grant; not yet seen, it is recorded as cancelled and a later
    /// arrival does nothing.
    pub(super) fn cancel(&mut self, header: &Header, target: RequestId) -> Outcome {
        let mut contents = Canon::default();
        contents.number(1, 3);
        contents.number(2, target.get());
        let answer = self.request(header, contents.fingerprint(), |entry, session| {
            let wait = WaitId { session, request: target };
            if let Some(queued) = entry.table.waits.get(&wait) {
                let fingerprint = queued.fingerprint;
                entry.leave_queue(wait, LeaveCause::Cancelled);
                entry.record(session, target, Some(fingerprint), Err(Refusal::Cancelled));
                return Ok(Done::CancelledTarget);
            }
            let window = &entry.table.sessions[&session].window;
            if let Some(finished) = window.outcomes.get(&target) {
                return match &finished.outcome {
                    Ok(Done::Granted { token }) => Ok(Done::Granted { token: *token }),
                    Err(_) => Ok(Done::CancelledTarget),
                    Ok(_) => Err(Refusal::RequestChanged),
                };
            }
            if window.is_forgotten(target) {
                return Err(Refusal::StaleRequest);
            }
            // Two outcomes: the cancel's own and the target's.
            entry.room_for(session, 2)?;
            if entry.table.holds(Rule::CancelIsRecorded) {
                entry.record(session, target, None, Err(Refusal::Cancelled));
            }
            Ok(Done::CancelledTarget)
        });
        self.table.current(&answer)
    }

    pub(super) fn expire_waits(&mut self, waits: &[WaitId]) -> Outcome {
        for wait in waits {
            let Some(queued) = self.table.waits.get(wait) else { continue };
            let fingerprint = queued.fingerprint;
            self.leave_queue(*wait, LeaveCause::TimedOut);
            let refused = Err(Refusal::WaitTimeout);
            self.record(wait.session, wait.request, Some(fingerprint), refused);
        }
        Ok(Done::Nothing)
    }

    /// Takes a wait out of its queues; whoever stood behind it may be next.
    pub(super) fn leave_queue(&mut self, wait: WaitId, cause: LeaveCause) {
        let queued = self.remove_wait(wait);
        self.give_up_slots(&queued.names, queued.mode);
        self.opened(&queued.names);
        let at = self.happened(Happened::LeftQueue { wait, names: queued.names, cause });
        self.session_changed(wait, at);
    }

    /// A session has at most one grant or wait on a resource.
    fn no_place_yet(&self, id: WaitId, claim: &Claim) -> Result<(), Refusal> {
        let live = &self.table.sessions[&id.session];
        for name in &claim.names {
            let resource = name.clone();
            match live.places.get(name) {
                Some(Place::Held(token)) => {
                    let (mode, phase) = {
                        let grant = &self.table.grants[token];
                        (grant.mode, grant.phase)
                    };
                    return Err(Refusal::AlreadyHeld { resource, token: *token, mode, phase });
                }
                Some(Place::Waiting(request)) => {
                    return Err(Refusal::AlreadyWaiting { resource, request: *request });
                }
                None => {}
            }
        }
        let max = self.table.meta.limits.places_per_session_max;
        if (live.places.len() + claim.names.len()) as u64 > max {
            return Err(Refusal::LimitReached { limit: Limit::PlacesPerSession, max });
        }
        Ok(())
    }

    fn enqueue(
        &mut self,
        wait: WaitId,
        fingerprint: u64,
        claim: &Claim,
        deadline: Millis,
    ) -> Outcome {
        let max = self.table.meta.limits.waiters_per_resource_max;
        let longest = claim.names.iter().map(|n| self.table.queue_length(n)).max().unwrap_or(0);
        if longest >= max {
            return Err(Refusal::QueueFull { max });
        }
        match self.table.would_ever_be_granted(wait.session, claim) {
            Verdict::Granted => {}
            Verdict::Stuck(cycle) => return Err(Refusal::Deadlock { cycle }),
            Verdict::NotFound => {
                return Err(Refusal::TooEntangled { max: SEARCH_STEPS_MAX as u64 });
            }
        }
        self.touch(RowKey::Wait(wait));
        let queued_at = self.revision();
        let (names, mode) = (claim.names.clone(), claim.mode);
        for name in &names {
            self.table.change_resource(name, |r| {
                r.queue.insert(queued_at.index, wait);
                r.use_slots(mode);
            });
        }
        let session = self.session(wait.session);
        session.waits.insert(wait.request);
        for name in &names {
            session.places.insert(name.clone(), Place::Waiting(wait.request));
        }
        let row = WaitRow {
            wait,
            fingerprint,
            names: names.clone(),
            mode,
            deadline,
            queued_at,
            terms: claim.terms.clone(),
        };
        self.table.waits.insert(wait, row);
        self.happened(Happened::Queued { wait, names, mode });
        self.fact(Fact::TimerBegan { timer: Timer::Wait(wait), after: deadline });
        Ok(Done::Queued { ahead: longest })
    }

    /// Takes it out of the books; what it keeps of slots is given up by the caller.
    pub(super) fn remove_wait(&mut self, wait: WaitId) -> WaitRow {
        self.touch(RowKey::Wait(wait));
        let queued = self.table.waits.remove(&wait).expect("the caller found the wait queued");
        if let Some(session) = self.table.sessions.get_mut(&wait.session) {
            session.waits.remove(&wait.request);
            for name in &queued.names {
                session.places.remove(name);
            }
        }
        for name in &queued.names {
            self.table.change_resource(name, |r| {
                r.queue.remove(&queued.queued_at.index);
            });
        }
        self.fact(Fact::TimerEnded { timer: Timer::Wait(wait) });
        queued
    }

    /// Notes the revision that a renewal's answer tells the client to read from.
    pub(super) fn session_changed(&mut self, wait: WaitId, at: Revision) {
        self.touch(RowKey::Window(wait.session));
        let told = self.table.holds(Rule::ChangesAreTold);
        if let Some(session) = self.table.sessions.get_mut(&wait.session).filter(|_| told) {
            session.window.changed_at = at;
        }
    }
}

/// Tells requests apart by what they ask. The length of the wait is left out: the
/// first arrival sets it, and a retry may name what is left of it.
fn fingerprint_of(claim: &Claim, wait: Wait) -> u64 {
    let mut contents = Canon::default();
    contents.number(1, 2);
    contents.names(2, &claim.names);
    contents.mode(3, claim.mode);
    contents.number(4, u64::from(matches!(wait, Wait::UpTo(_))));
    contents.terms(5, &claim.terms);
    contents.fingerprint()
}

impl LockTable {
    /// Whether the claim may be asked for, now or in a queue.
    fn may_be_asked(&self, claim: &Claim, wait: Wait) -> Result<(), Refusal> {
        for name in &claim.names {
            let Some(known) = self.resources.get(name) else { continue };
            let resource = name.clone();
            if let (Some(asked), Some(in_force)) = (claim.mode.slots(), known.capacity)
                && asked != in_force.slots
            {
                return Err(Refusal::CapacityMismatch { resource, slots: in_force.slots });
            }
            // A set would keep other resources closed for an administrator.
            let waits = claim.names.len() == 1 && wait != Wait::Try;
            if let Some(token) = known.frozen
                && !waits
            {
                return Err(Refusal::Frozen { resource, token });
            }
            let together = known.holders.len() + known.queue.len();
            if claim.mode == Mode::Shared && together >= SHARED_MAX {
                let max = SHARED_MAX as u64;
                return Err(Refusal::LimitReached { limit: Limit::Holders, max });
            }
            if claim.terms.lock_delay.0 > 0 && known.closures.len() >= CLOSURES_MAX {
                let max = CLOSURES_MAX as u64;
                return Err(Refusal::LimitReached { limit: Limit::Closures, max });
            }
        }
        Ok(())
    }

    /// Names the first resource that stands in the way.
    fn busy(&self, claim: &Claim) -> Refusal {
        let taken =
            |name: &&ResourceName| !self.is_free(std::slice::from_ref(*name), claim.mode, None);
        let taken = claim.names.iter().find(taken).and_then(|name| self.resources.get(name));
        Refusal::Busy {
            holder: taken.and_then(|r| r.holders.first().copied()),
            waiting: taken.map_or(0, |r| r.queue.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Resource;
    use super::super::{Terms, Token};
    use super::*;

    fn name() -> ResourceName {
        ResourceName::new("pool").expect("a good name")
    }

    /// A table that knows of so many tokens on one resource.
    fn crowded(tokens: usize, put: fn(&mut Resource, Token)) -> LockTable {
        let mut table = LockTable::new();
        table.change_resource(&name(), |resource| {
            for token in (1..=tokens as u64).filter_map(|n| Token::new(n).ok()) {
                put(resource, token);
            }
        });
        table
    }

    fn asked(table: &LockTable, mode: Mode, lock_delay: u64) -> Result<(), Refusal> {
        let terms = Terms { lock_delay: Millis(lock_delay), ..Terms::default() };
        let claim = Claim::new(vec![name()], mode, terms).expect("a good claim");
        table.may_be_asked(&claim, Wait::Try)
    }

    #[test]
    fn a_resource_has_so_many_who_share_and_no_more() {
        let hold = |resource: &mut Resource, token| {
            resource.holders.insert(token);
        };
        assert_eq!(asked(&crowded(SHARED_MAX - 1, hold), Mode::Shared, 0), Ok(()));
        let full = crowded(SHARED_MAX, hold);
        let refused = Refusal::LimitReached { limit: Limit::Holders, max: 65_536 };
        assert_eq!(asked(&full, Mode::Shared, 0), Err(refused));
        assert_eq!(asked(&full, Mode::Exclusive, 0), Ok(()));
    }

    #[test]
    fn a_resource_has_so_many_lock_delays_and_no_more() {
        let close = |resource: &mut Resource, token| {
            resource.closures.insert(token);
        };
        assert_eq!(asked(&crowded(CLOSURES_MAX - 1, close), Mode::Shared, 1), Ok(()));
        let full = crowded(CLOSURES_MAX, close);
        let refused = Refusal::LimitReached { limit: Limit::Closures, max: 10_000 };
        assert_eq!(asked(&full, Mode::Shared, 1), Err(refused));
        assert_eq!(asked(&full, Mode::Shared, 0), Ok(()));
    }
}
