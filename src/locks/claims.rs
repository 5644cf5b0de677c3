//! Acquire, wait, cancel, release. Section 4 of the contract.
//!
//! A claim names one or more resources and stands in the queue of each. It is
//! granted, whole and under one token, in the entry in which it heads all its
//! queues and all its resources are free.

use std::collections::BTreeSet;

use super::command::{Claim, Header, Wait, WaitId};
use super::effect::{Done, Fact, GrantEndCause, Happened, LeaveCause, Limit, Outcome, Refusal};
use super::entry::Entry;
use super::hash::Canon;
use super::ids::{Millis, RequestId, ResourceName, Revision, Token};
use super::rows::{GrantRow, RowKey, WaitRow};
use super::session::Place;
use super::switches::Rule;
use super::table::LockTable;

impl Entry<'_> {
    pub(super) fn acquire(&mut self, header: &Header, claim: &Claim, wait: Wait) -> Outcome {
        let fingerprint = fingerprint_of(claim, wait);
        self.request(header, fingerprint, |entry, session| {
            let id = WaitId { session, request: header.id };
            entry.no_place_yet(id, claim)?;
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
                let freed = entry.leave_queue(wait, LeaveCause::Cancelled);
                entry.record(session, target, Some(fingerprint), Err(Refusal::Cancelled));
                entry.settle(freed);
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

    /// (I5) Only the grant that is named, of the session that is named: a stale
    /// release changes nothing.
    pub(super) fn release(
        &mut self,
        header: &Header,
        resource: &ResourceName,
        token: Token,
    ) -> Outcome {
        let mut contents = Canon::default();
        contents.number(1, 4);
        contents.text(2, resource.as_str().as_bytes());
        contents.number(3, token.get());
        self.request(header, contents.fingerprint(), |entry, session| {
            let held = entry.table.grants.get(&token);
            if !held.is_some_and(|g| g.wait.session == session && g.names.contains(resource)) {
                return Err(Refusal::NotHeld);
            }
            let (at, freed) = entry.end_grant(token, GrantEndCause::Released);
            entry.settle(freed);
            Ok(Done::Released { at })
        })
    }

    pub(super) fn expire_waits(&mut self, waits: &[WaitId]) -> Outcome {
        let mut freed = BTreeSet::new();
        for wait in waits {
            let Some(queued) = self.table.waits.get(wait) else { continue };
            let fingerprint = queued.fingerprint;
            freed.extend(self.leave_queue(*wait, LeaveCause::TimedOut));
            let refused = Err(Refusal::WaitTimeout);
            self.record(wait.session, wait.request, Some(fingerprint), refused);
        }
        self.settle(freed);
        Ok(Done::Nothing)
    }

    /// Takes a wait out of its queues and says which resources may have a new head.
    pub(super) fn leave_queue(&mut self, wait: WaitId, cause: LeaveCause) -> Vec<ResourceName> {
        let queued = self.remove_wait(wait);
        let names = queued.names.clone();
        let at = self.happened(Happened::LeftQueue { wait, names: queued.names, cause });
        self.session_changed(wait, at);
        names
    }

    /// Ends a grant and says when, and which resources it leaves.
    pub(super) fn end_grant(
        &mut self,
        token: Token,
        cause: GrantEndCause,
    ) -> (Revision, Vec<ResourceName>) {
        self.touch(RowKey::Grant(token));
        let grant = self.table.grants.remove(&token).expect("the caller found the grant live");
        let session = self.session(grant.wait.session);
        session.grants.remove(&token);
        for name in &grant.names {
            session.places.remove(name);
        }
        for name in &grant.names {
            self.table.change_resource(name, |r| {
                r.holders.remove(&token);
            });
        }
        let (wait, names) = (grant.wait, grant.names.clone());
        let at = self.happened(Happened::GrantEnded { wait, names, token, cause });
        (at, grant.names)
    }

    /// Grants what these resources' first waiters can have now. (I4) Nobody is
    /// granted before the one who heads the queue.
    pub(super) fn settle(&mut self, names: impl IntoIterator<Item = ResourceName>) {
        let mut open: BTreeSet<ResourceName> = names.into_iter().collect();
        while let Some(name) = open.pop_first() {
            while let Some(wait) = self.table.grantable_head(&name) {
                let queued = self.remove_wait(wait);
                let claim = Claim { names: queued.names, mode: queued.mode };
                let token =
                    self.grant(wait, &claim).expect("a head is grantable with a token left");
                let outcome = Ok(Done::Granted { token });
                self.record(wait.session, wait.request, Some(queued.fingerprint), outcome);
            }
        }
    }

    /// A session has at most one grant or wait on a resource.
    fn no_place_yet(&self, id: WaitId, claim: &Claim) -> Result<(), Refusal> {
        let live = &self.table.sessions[&id.session];
        for name in &claim.names {
            let resource = name.clone();
            match live.places.get(name) {
                Some(Place::Held(token)) => {
                    let mode = self.table.grants[token].mode;
                    return Err(Refusal::AlreadyHeld { resource, token: *token, mode });
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

    /// Issues the next token and makes the grant. (I1)
    fn grant(&mut self, wait: WaitId, claim: &Claim) -> Result<Token, Refusal> {
        let exhausted = Refusal::LimitReached { limit: Limit::Tokens, max: Token::MAX };
        let token = Token::new(self.table.meta.token + 1).map_err(|_| exhausted)?;
        self.table.meta.token = token.get();
        self.touch(RowKey::Grant(token));
        let at = self.revision();
        let names = claim.names.clone();
        let row = GrantRow { token, floor: token, wait, names, mode: claim.mode, granted_at: at };
        self.table.grants.insert(token, row);
        for name in &claim.names {
            self.table.change_resource(name, |r| {
                r.holders.insert(token);
            });
        }
        if let Some(session) = self.table.sessions.get_mut(&wait.session) {
            session.grants.insert(token);
            for name in &claim.names {
                session.places.insert(name.clone(), Place::Held(token));
            }
        }
        let (names, mode) = (claim.names.clone(), claim.mode);
        self.happened(Happened::Granted { wait, names, mode, token });
        self.session_changed(wait, at);
        Ok(token)
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
        self.touch(RowKey::Wait(wait));
        let queued_at = self.revision();
        let (names, mode) = (claim.names.clone(), claim.mode);
        for name in &names {
            self.table.change_resource(name, |r| {
                r.queue.insert(queued_at.index, wait);
            });
        }
        let session = self.session(wait.session);
        session.waits.insert(wait.request);
        for name in &names {
            session.places.insert(name.clone(), Place::Waiting(wait.request));
        }
        let row = WaitRow { wait, fingerprint, names: names.clone(), mode, deadline, queued_at };
        self.table.waits.insert(wait, row);
        self.happened(Happened::Queued { wait, names, mode });
        self.fact(Fact::WaitBegan { wait, deadline });
        Ok(Done::Queued { ahead: longest })
    }

    fn remove_wait(&mut self, wait: WaitId) -> WaitRow {
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
        self.fact(Fact::WaitEnded { wait });
        queued
    }

    /// Notes the revision that a renewal's answer tells the client to read from.
    fn session_changed(&mut self, wait: WaitId, at: Revision) {
        self.touch(RowKey::Window(wait.session));
        if let Some(session) = self.table.sessions.get_mut(&wait.session) {
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
    contents.fingerprint()
}

impl LockTable {
    fn busy(&self, claim: &Claim) -> Refusal {
        let taken = claim.names.iter().find_map(|n| self.resources.get(n));
        Refusal::Busy {
            holder: taken.and_then(|r| r.holders.first().copied()),
            waiting: taken.map_or(0, |r| r.queue.len() as u64),
        }
    }
}
