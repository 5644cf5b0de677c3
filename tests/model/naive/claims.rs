//! Section 4: acquire, wait, cancel.

use ringfence::locks::{
    Claim, Done, Happened, Header, LeaveCause, Limit, Mode, Outcome, Refusal, RequestId,
    ResourceName, Token, WINDOW_MAX, Wait, WaitId,
};

use super::{Naive, Waiting};

impl Naive {
    pub fn acquire(&mut self, header: &Header, claim: &Claim, wait: Wait) -> Outcome {
        let waits = matches!(wait, Wait::UpTo(_));
        let contents = format!("acquire {claim:?} {waits}");
        let id = WaitId { session: header.session, request: header.id };
        self.request(header, contents.clone(), |all| {
            all.has_no_place(id, claim)?;
            all.may_ask(claim, waits)?;
            if all.is_free(&claim.names, claim.mode, None) {
                if all.token == Token::MAX {
                    return Err(Refusal::LimitReached { limit: Limit::Tokens, max: Token::MAX });
                }
                return Ok(Done::Granted { token: all.grant(id, claim) });
            }
            let Wait::UpTo(deadline) = wait else { return Err(all.busy(claim)) };
            let max = all.limits().waiters_per_resource_max;
            let ahead = claim.names.iter().map(|name| all.queue(name).len() as u64);
            let ahead = ahead.max().unwrap_or(0);
            if ahead >= max {
                return Err(Refusal::QueueFull { max });
            }
            let (names, mode) = (claim.names.clone(), claim.mode);
            let terms = claim.terms.clone();
            let waiting =
                Waiting { wait: id, contents, names, mode, terms, deadline, at: all.now() };
            all.may_wait(waiting)?;
            let names = claim.names.clone();
            all.events.push(Happened::Queued { wait: id, names, mode });
            Ok(Done::Queued { ahead })
        })
    }

    pub fn cancel(&mut self, header: &Header, target: RequestId) -> Outcome {
        let id = WaitId { session: header.session, request: target };
        let answer = self.request(header, format!("cancel {target}"), |all| {
            if let Some(left) = all.leave(id, LeaveCause::Cancelled) {
                all.answer(id, Some(left.contents), Err(Refusal::Cancelled));
                return Ok(Done::CancelledTarget);
            }
            let answers = &all.of(id.session).answers;
            match answers.iter().find(|a| a.id == target).map(|a| a.outcome.clone()) {
                Some(Ok(Done::Granted { token })) => Ok(Done::Granted { token }),
                Some(Ok(_)) => Err(Refusal::RequestChanged),
                Some(Err(_)) => Ok(Done::CancelledTarget),
                None if all.is_forgotten(id) => Err(Refusal::StaleRequest),
                None if all.kept(id.session) + 2 > WINDOW_MAX => Err(Refusal::WindowFull),
                None => {
                    all.answer(id, None, Err(Refusal::Cancelled));
                    Ok(Done::CancelledTarget)
                }
            }
        });
        self.as_of_now(answer)
    }

    pub fn expire_waits(&mut self, waits: &[WaitId]) -> Outcome {
        for wait in waits {
            if let Some(waiting) = self.leave(*wait, LeaveCause::TimedOut) {
                self.answer(*wait, Some(waiting.contents), Err(Refusal::WaitTimeout));
            }
        }
        Ok(Done::Nothing)
    }

    pub fn queue(&self, name: &ResourceName) -> Vec<WaitId> {
        self.waits.iter().filter(|w| w.names.contains(name)).map(|w| w.wait).collect()
    }

    pub fn ahead(&self, waiting: &Waiting) -> u64 {
        let places = waiting.names.iter().map(|name| {
            self.queue(name).iter().position(|w| *w == waiting.wait).expect("it stands there")
        });
        places.max().unwrap_or(0) as u64
    }

    pub fn leave(&mut self, wait: WaitId, cause: LeaveCause) -> Option<Waiting> {
        let place = self.waits.iter().position(|w| w.wait == wait)?;
        let waiting = self.waits.remove(place);
        self.changed(wait.session);
        self.events.push(Happened::LeftQueue { wait, names: waiting.names.clone(), cause });
        self.freed.extend(waiting.names.clone());
        self.forget_unused_slots();
        Some(waiting)
    }

    /// One grant or wait of a session on a resource.
    fn has_no_place(&self, id: WaitId, claim: &Claim) -> Result<(), Refusal> {
        let held = || self.grants.iter().filter(|g| g.wait.session == id.session);
        let waits = || self.waits.iter().filter(|w| w.wait.session == id.session);
        for name in &claim.names {
            let resource = name.clone();
            if let Some(grant) = held().find(|g| g.names.contains(name)) {
                let (token, mode, phase) = (grant.token, grant.mode, grant.phase);
                return Err(Refusal::AlreadyHeld { resource, token, mode, phase });
            }
            if let Some(other) = waits().find(|w| w.names.contains(name)) {
                return Err(Refusal::AlreadyWaiting { resource, request: other.wait.request });
            }
        }
        let max = self.limits().places_per_session_max;
        let places = held().map(|g| g.names.len()).chain(waits().map(|w| w.names.len()));
        if (places.sum::<usize>() + claim.names.len()) as u64 > max {
            return Err(Refusal::LimitReached { limit: Limit::PlacesPerSession, max });
        }
        Ok(())
    }

    /// All users of slots name one number; only single waiters stand before what is frozen.
    fn may_ask(&self, claim: &Claim, waits: bool) -> Result<(), Refusal> {
        for name in &claim.names {
            let resource = name.clone();
            if let (Mode::Slots { of }, Some(slots)) = (claim.mode, self.slots(name))
                && of != slots
            {
                return Err(Refusal::CapacityMismatch { resource, slots });
            }
            if let Some(freeze) = self.freezes.iter().find(|f| f.name == *name)
                && !(waits && claim.names.len() == 1)
            {
                return Err(Refusal::Frozen { resource, token: freeze.token });
            }
        }
        Ok(())
    }

    fn busy(&self, claim: &Claim) -> Refusal {
        let one = |name: &ResourceName| self.is_free(std::slice::from_ref(name), claim.mode, None);
        let first = claim.names.iter().find(|name| !one(name)).expect("one of them is not free");
        let holder = self.holders(first).first().map(|grant| grant.token);
        Refusal::Busy { holder, waiting: self.queue(first).len() as u64 }
    }
}
