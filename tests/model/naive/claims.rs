//! Section 4: acquire, wait, cancel, release.

use ringfence::locks::{
    Done, GrantEndCause, Happened, Header, LeaveCause, Limit, Mode, Outcome, Refusal, RequestId,
    ResourceName, Revision, SessionId, Token, WINDOW_MAX, Wait, WaitId,
};

use super::{Grant, Naive, Waiting};

impl Naive {
    /// Section 4.
    pub fn acquire(
        &mut self,
        contents: &str,
        header: &Header,
        names: &[ResourceName],
        wait: Wait,
    ) -> Outcome {
        let session = header.session;
        let id = WaitId { session, request: header.id };
        for name in names {
            let mut held = self.grants.iter().filter(|g| g.wait.session == session);
            if let Some(grant) = held.find(|g| g.names.contains(name)) {
                let (resource, token) = (name.clone(), grant.token);
                return Err(Refusal::AlreadyHeld { resource, token, mode: Mode::Exclusive });
            }
            let mut waits = self.waits.iter().filter(|w| w.wait.session == session);
            if let Some(other) = waits.find(|w| w.names.contains(name)) {
                let (resource, request) = (name.clone(), other.wait.request);
                return Err(Refusal::AlreadyWaiting { resource, request });
            }
        }
        let max = self.limits().places_per_session_max;
        let held = self.grants.iter().filter(|g| g.wait.session == session).map(|g| g.names.len());
        let waits = self.waits.iter().filter(|w| w.wait.session == session).map(|w| w.names.len());
        if (held.chain(waits).sum::<usize>() + names.len()) as u64 > max {
            return Err(Refusal::LimitReached { limit: Limit::PlacesPerSession, max });
        }
        if names.iter().all(|name| self.holder(name).is_none() && self.queue(name).is_empty()) {
            if self.token == Token::MAX {
                return Err(Refusal::LimitReached { limit: Limit::Tokens, max: Token::MAX });
            }
            return Ok(Done::Granted { token: self.grant(id, names) });
        }
        let Wait::UpTo(deadline) = wait else {
            let taken = |n: &&ResourceName| self.holder(n).is_some() || !self.queue(n).is_empty();
            let first = names.iter().find(taken).expect("one of them is taken");
            let waiting = self.queue(first).len() as u64;
            return Err(Refusal::Busy { holder: self.holder(first), waiting });
        };
        let max = self.limits().waiters_per_resource_max;
        let ahead = names.iter().map(|name| self.queue(name).len() as u64).max().unwrap_or(0);
        if ahead >= max {
            return Err(Refusal::QueueFull { max });
        }
        let at = Revision { index: self.at.index, ordinal: 0 };
        let (names, contents) = (names.to_vec(), contents.to_owned());
        self.waits.push(Waiting { wait: id, contents, names: names.clone(), deadline, at });
        self.events.push(Happened::Queued { wait: id, names, mode: Mode::Exclusive });
        Ok(Done::Queued { ahead })
    }

    pub fn cancel(&mut self, header: &Header, target: RequestId) -> Outcome {
        let id = WaitId { session: header.session, request: target };
        if let Some(left) = self.leave(id, LeaveCause::Cancelled) {
            self.answer(id, Some(left.contents), Err(Refusal::Cancelled));
            self.hand_on(left.names);
            return Ok(Done::CancelledTarget);
        }
        let answers = &self.of(header.session).answers;
        match answers.iter().find(|a| a.id == target).map(|a| a.outcome.clone()) {
            Some(Ok(Done::Granted { token })) => Ok(Done::Granted { token }),
            Some(Ok(_)) => Err(Refusal::RequestChanged),
            Some(Err(_)) => Ok(Done::CancelledTarget),
            None if self.is_forgotten(id) => Err(Refusal::StaleRequest),
            None if self.kept(header.session) + 2 > WINDOW_MAX => Err(Refusal::WindowFull),
            None => {
                self.answer(id, None, Err(Refusal::Cancelled));
                Ok(Done::CancelledTarget)
            }
        }
    }

    pub fn release(&mut self, header: &Header, resource: &ResourceName, token: Token) -> Outcome {
        let grant = self.grants.iter().find(|g| g.token == token);
        let grant = grant.filter(|g| g.wait.session == header.session);
        if !grant.is_some_and(|g| g.names.contains(resource)) {
            return Err(Refusal::NotHeld);
        }
        let freed = self.end_grant(token, GrantEndCause::Released);
        self.hand_on(freed);
        Ok(Done::Released { at: Revision { index: self.at.index, ordinal: 0 } })
    }

    pub fn holder(&self, name: &ResourceName) -> Option<Token> {
        self.grants.iter().find(|g| g.names.contains(name)).map(|g| g.token)
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

    pub fn grant(&mut self, wait: WaitId, names: &[ResourceName]) -> Token {
        self.token += 1;
        let token = Token::new(self.token).expect("the caller saw that one is left");
        let (names, mode) = (names.to_vec(), Mode::Exclusive);
        let at = self.changed(wait.session);
        self.grants.push(Grant { token, wait, names: names.clone(), at });
        self.events.push(Happened::Granted { wait, names, mode, token });
        token
    }

    pub fn end_grant(&mut self, token: Token, cause: GrantEndCause) -> Vec<ResourceName> {
        let place = self.grants.iter().position(|g| g.token == token).expect("it was live");
        let Grant { wait, names, .. } = self.grants.remove(place);
        self.events.push(Happened::GrantEnded { wait, names: names.clone(), token, cause });
        names
    }

    pub fn leave(&mut self, wait: WaitId, cause: LeaveCause) -> Option<Waiting> {
        let place = self.waits.iter().position(|w| w.wait == wait)?;
        let waiting = self.waits.remove(place);
        self.changed(wait.session);
        self.events.push(Happened::LeftQueue { wait, names: waiting.names.clone(), cause });
        Some(waiting)
    }

    /// The revision of the next event, which is a change for the session.
    pub fn changed(&mut self, session: SessionId) -> Revision {
        let ordinal = u32::try_from(self.events.len()).expect("few events an entry");
        let at = Revision { index: self.at.index, ordinal };
        self.of(session).changed_at = at;
        at
    }

    /// Grants to those who head all their queues. Several that can be granted in one
    /// entry are taken in the order of the names that were freed: the contract leaves
    /// that open, but every replica must do the same.
    pub fn hand_on(&mut self, mut freed: Vec<ResourceName>) {
        freed.sort();
        for name in freed {
            let Some(first) = self.queue(&name).first().copied() else { continue };
            let waiting = self.waits.iter().find(|w| w.wait == first).cloned();
            let waiting = waiting.expect("who heads a queue waits");
            let heads = |n: &ResourceName| self.queue(n).first() == Some(&first);
            let free = waiting.names.iter().all(|n| self.holder(n).is_none() && heads(n));
            if free && self.token < Token::MAX {
                self.waits.retain(|w| w.wait != first);
                let token = self.grant(first, &waiting.names);
                self.answer(first, Some(waiting.contents), Ok(Done::Granted { token }));
            }
        }
    }
}
