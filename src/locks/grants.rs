//! Grants: made, confirmed, given back, ended. Sections 4, 6 and 7 of the contract.

use super::claim::{Claim, Mode, Phase, Value};
use super::command::{Header, WaitId};
use super::effect::{Done, Fact, GrantEndCause, Granted, Happened, Limit, Outcome, Refusal, Timer};
use super::entry::Entry;
use super::hash::Canon;
use super::ids::{Millis, ResourceName, Revision, Token};
use super::rows::{ClosureRow, GrantRow, RowKey};
use super::session::Place;
use super::switches::Rule;

/// How many names one entry grants to waiters; the rest is left for the next ones.
pub const GRANTS_PER_ENTRY_MAX: usize = 1_024;

impl Entry<'_> {
    /// Grants what first waiters can have now. (I4) Nobody is granted before the one who
    /// heads the queue. Every entry ends with it, after all who leave have left: so no
    /// token is spent on a waiter that ends in the same entry.
    pub(super) fn settle(&mut self) {
        self.table.unsettled.extend(self.opened.iter().cloned());
        let large = self.table.holds(Rule::EntriesAreLarge);
        let mut room = if large { GRANTS_PER_ENTRY_MAX } else { 2 };
        while room > 0
            && let Some(name) = self.table.unsettled.first().cloned()
        {
            let Some(wait) = self.table.grantable_head(&name) else {
                self.table.unsettled.remove(&name);
                continue;
            };
            let queued = self.remove_wait(wait);
            room = room.saturating_sub(queued.names.len());
            let (names, mode, terms) = (queued.names, queued.mode, queued.terms);
            let claim = Claim { names, mode, terms };
            let token = self.grant(wait, &claim).expect("a head is grantable with a token left");
            self.give_up_slots(&claim.names, mode); // the wait's; the grant has its own
            self.opened.extend(claim.names);
            let outcome = Ok(Done::Granted { token });
            self.record(wait.session, wait.request, Some(queued.fingerprint), outcome);
        }
        self.note_what_is_left();
        self.tell_of_the_rest();
    }

    /// What is left over are exactly the names whose first waiters can be granted: so a table
    /// made of the rows, which knows no more, grants in the same order.
    fn note_what_is_left(&mut self) {
        if self.table.unsettled.is_empty() {
            return;
        }
        for name in std::mem::take(&mut self.opened) {
            match self.table.grantable_head(&name) {
                Some(wait) => {
                    let names = self.table.waits[&wait].names.iter().cloned();
                    self.table.unsettled.extend(names);
                }
                None => drop(self.table.unsettled.remove(&name)),
            }
        }
    }

    /// Issues the next token. (I1)
    pub(super) fn issue_token(&mut self) -> Result<Token, Refusal> {
        let exhausted = Refusal::LimitReached { limit: Limit::Tokens, max: Token::MAX };
        let token = Token::new(self.table.meta.token + 1).map_err(|_| exhausted)?;
        self.table.meta.token = token.get();
        Ok(token)
    }

    /// Makes a grant that the caller found free.
    pub(super) fn grant(&mut self, wait: WaitId, claim: &Claim) -> Result<Token, Refusal> {
        let token = self.issue_token()?;
        self.touch(RowKey::Grant(token));
        let at = self.revision();
        let mode = claim.mode;
        let (slot, floor) = (self.table.next_slot(claim), self.table.floor(claim, token));
        for name in &claim.names {
            self.table.change_resource(name, |r| {
                r.holders.insert(token);
                r.use_slots(mode);
                if let Some(slot) = slot {
                    r.slots.take(slot);
                }
            });
        }
        if let Some(session) = self.table.sessions.get_mut(&wait.session) {
            session.grants.insert(token);
            for name in &claim.names {
                session.places.insert(name.clone(), Place::Held(token));
            }
        }
        let strict = self.table.holds(Rule::BarrierFirst);
        let phase = if strict { claim.terms.handoff.phase() } else { Phase::Active };
        if let Phase::Barrier { deadline } = phase {
            self.fact(Fact::TimerBegan { timer: Timer::Barrier(token), after: deadline });
        }
        let row = GrantRow {
            token,
            floor,
            wait,
            names: claim.names.clone(),
            mode,
            granted_at: at,
            slot,
            phase,
            lock_delay: claim.terms.lock_delay,
            value: claim.terms.value.clone(),
            asked: None,
        };
        self.table.grants.insert(token, row);
        let grant = Granted { token, floor, mode, slot, phase };
        self.happened(Happened::Granted { wait, names: claim.names.clone(), grant });
        self.session_changed(wait, at);
        Ok(token)
    }

    /// The owner has raised the fence at every destination it named. (I9) Once is
    /// enough: a grant that is active stays so.
    pub(super) fn confirm(
        &mut self,
        header: &Header,
        resource: &ResourceName,
        token: Token,
    ) -> Outcome {
        let contents = of_holder(5, resource, token).fingerprint();
        self.request(header, contents, |entry, session| {
            let (wait, names, phase) = entry.held(session, resource, token)?;
            if phase == Phase::Active {
                return Ok(Done::Confirmed { at: entry.revision() });
            }
            entry.touch(RowKey::Grant(token));
            entry.live_grant(token).phase = Phase::Active;
            entry.fact(Fact::TimerEnded { timer: Timer::Barrier(token) });
            let at = entry.happened(Happened::Activated { wait, names, token });
            entry.session_changed(wait, at);
            Ok(Done::Confirmed { at })
        })
    }

    pub(super) fn set_value(
        &mut self,
        header: &Header,
        resource: &ResourceName,
        token: Token,
        value: &Value,
    ) -> Outcome {
        let mut contents = of_holder(6, resource, token);
        contents.value(4, value);
        self.request(header, contents.fingerprint(), |entry, session| {
            let (wait, names, _) = entry.held(session, resource, token)?;
            entry.touch(RowKey::Grant(token));
            entry.live_grant(token).value = value.clone();
            let value = value.clone();
            let at = entry.happened(Happened::ValueChanged { wait, names, token, value });
            Ok(Done::ValueSet { at })
        })
    }

    /// (I5) Only the grant that is named, of the session that is named: a stale
    /// release changes nothing.
    pub(super) fn release(
        &mut self,
        header: &Header,
        resource: &ResourceName,
        token: Token,
    ) -> Outcome {
        let contents = of_holder(4, resource, token).fingerprint();
        self.request(header, contents, |entry, session| {
            entry.held(session, resource, token)?;
            Ok(Done::Released { at: entry.end_grant(token, GrantEndCause::Released) })
        })
    }

    /// (I9) A grant that nobody confirmed in time ends.
    pub(super) fn expire_barriers(&mut self, tokens: &[Token]) -> Outcome {
        for token in tokens {
            let grant = self.table.grants.get(token);
            let ends = self.table.holds(Rule::UnconfirmedEnds);
            if grant.is_some_and(|grant| grant.phase != Phase::Active) && ends {
                self.end_grant(*token, GrantEndCause::Unconfirmed);
            }
        }
        Ok(Done::Nothing)
    }

    /// The lock delays after these grants are over.
    pub(super) fn end_closures(&mut self, tokens: &[Token]) -> Outcome {
        for &token in tokens {
            self.touch(RowKey::Closure(token));
            let Some(closure) = self.table.closures.remove(&token) else { continue };
            let slot = closure.slot;
            for name in &closure.names {
                self.table.change_resource(name, |r| {
                    r.closures.remove(&token);
                    if let Some(slot) = slot {
                        r.slots.free(slot);
                    }
                });
            }
            self.opened(&closure.names);
            self.fact(Fact::TimerEnded { timer: Timer::Closure(token) });
            self.happened(Happened::Reopened { names: closure.names, slot, token });
        }
        Ok(Done::Nothing)
    }

    /// Ends a live grant, begins its lock delay if its end is sudden, and says when.
    pub(super) fn end_grant(&mut self, token: Token, cause: GrantEndCause) -> Revision {
        self.touch(RowKey::Grant(token));
        let grant = self.table.grants.remove(&token).expect("the caller found the grant live");
        if let Some(session) = self.table.sessions.get_mut(&grant.wait.session) {
            session.grants.remove(&token);
            for name in &grant.names {
                session.places.remove(name);
            }
        }
        let (slot, mode) = (grant.slot, grant.mode);
        let delay = if cause.is_sudden() { grant.lock_delay } else { Millis(0) };
        for name in &grant.names {
            self.table.change_resource(name, |r| {
                r.holders.remove(&token);
                if delay.0 > 0 {
                    r.closures.insert(token);
                } else if let Some(slot) = slot {
                    r.slots.free(slot);
                }
            });
        }
        self.give_up_slots(&grant.names, mode);
        if grant.phase != Phase::Active {
            self.fact(Fact::TimerEnded { timer: Timer::Barrier(token) });
        }
        let since = self.revision();
        if delay.0 > 0 {
            self.touch(RowKey::Closure(token));
            let names = grant.names.clone();
            let row = ClosureRow { token, names, mode, slot, delay, since };
            self.table.closures.insert(token, row);
            self.fact(Fact::TimerBegan { timer: Timer::Closure(token), after: delay });
        }
        self.opened(&grant.names);
        let (wait, names) = (grant.wait, grant.names);
        if cause != GrantEndCause::Released {
            self.session_changed(wait, since); // who released it knows
        }
        self.happened(Happened::GrantEnded { wait, names, slot, token, cause, delay });
        since
    }

    /// Notes that somebody else may have these now; [`Entry::settle`] looks.
    pub(super) fn opened(&mut self, names: &[ResourceName]) {
        for name in names {
            if self.table.resources.get(name).is_some_and(|r| !r.queue.is_empty()) {
                self.opened.insert(name.clone());
            }
        }
    }

    /// Somebody holds or awaits a slot no more: with the last one the number of slots is
    /// forgotten.
    pub(super) fn give_up_slots(&mut self, names: &[ResourceName], mode: Mode) {
        if mode.slots().is_none() {
            return;
        }
        for name in names {
            let mut resized = None;
            self.table.change_resource(name, |r| {
                if r.give_up_slots() {
                    resized = r.resized.take();
                }
            });
            if let Some(token) = resized {
                self.touch(RowKey::Resized(token));
                self.table.resized.remove(&token);
            }
        }
    }

    /// The grant of this session that is named, or [`Refusal::NotHeld`].
    fn held(
        &self,
        session: super::SessionId,
        resource: &ResourceName,
        token: Token,
    ) -> Result<(WaitId, Vec<ResourceName>, Phase), Refusal> {
        let grant = self.table.live_grant_on(resource, token);
        let grant = grant.filter(|grant| grant.wait.session == session).ok_or(Refusal::NotHeld)?;
        Ok((grant.wait, grant.names.clone(), grant.phase))
    }

    pub(super) fn live_grant(&mut self, token: Token) -> &mut GrantRow {
        self.table.grants.get_mut(&token).expect("the caller found the grant live")
    }

    /// Who leads makes an entry for what this one left.
    fn tell_of_the_rest(&mut self) {
        if self.had_left_over {
            self.fact(Fact::TimerEnded { timer: Timer::Settle });
        }
        if !self.table.unsettled.is_empty() {
            self.fact(Fact::TimerBegan { timer: Timer::Settle, after: Millis(0) });
        }
    }
}

/// Contents of a request that names a grant.
fn of_holder(kind: u64, resource: &ResourceName, token: Token) -> Canon {
    let mut contents = Canon::default();
    contents.number(1, kind);
    contents.text(2, resource.as_str().as_bytes());
    contents.number(3, token.get());
    contents
}
