//! The contract once more, in the simplest form: lists that are searched from the
//! front. Written from sections 3 to 5, not from `locks`; only the words (commands,
//! outcomes, events, rows) are shared.

mod claims;
mod requests;

use ringfence::locks::{
    Bootstrap, Command, Done, EndCause, GrantEndCause, Happened, LeaveCause, Limit, Limits, Millis,
    Outcome, OwnerId, Position, Refusal, RequestId, ResourceName, Revision, SessionId, Token, Wait,
    WaitId,
};

/// Everything, as lists.
#[derive(Default)]
pub struct Naive {
    pub at: Position,
    pub bootstrap: Option<Bootstrap>,
    pub token: u64,
    /// In the order of their opening.
    pub sessions: Vec<Session>,
    /// In the order of their grants.
    pub grants: Vec<Grant>,
    /// In the order in which they were queued.
    pub waits: Vec<Waiting>,
    /// Of the last entry.
    pub events: Vec<Happened>,
}

pub struct Session {
    pub id: SessionId,
    pub owner: OwnerId,
    pub ttl: Millis,
    pub seen: Position,
    pub floor: RequestId,
    pub answers: Vec<Answer>,
    /// Each id alone, in no order.
    pub answered: Vec<RequestId>,
    pub changed_at: Revision,
}

#[derive(Clone)]
pub struct Answer {
    pub id: RequestId,
    /// None if anything may be asked under this id.
    pub contents: Option<String>,
    pub outcome: Outcome,
}

#[derive(Clone)]
pub struct Grant {
    pub token: Token,
    pub wait: WaitId,
    pub names: Vec<ResourceName>,
    pub at: Revision,
}

#[derive(Clone)]
pub struct Waiting {
    pub wait: WaitId,
    pub contents: String,
    pub names: Vec<ResourceName>,
    pub deadline: Millis,
    pub at: Revision,
}

impl Naive {
    /// Applies one entry.
    pub fn apply(&mut self, at: Position, command: Option<&Command>) -> Outcome {
        self.at = at;
        self.events.clear();
        match command {
            None => Ok(Done::Nothing),
            Some(Command::Bootstrap(bootstrap)) => self.bootstrap(bootstrap),
            Some(Command::OpenSession { owner, ttl, .. }) => self.open(*owner, *ttl),
            Some(Command::CloseSession { owner, session }) => {
                self.is_live(*owner, *session)?;
                self.end(&[*session], EndCause::Closed);
                Ok(Done::Closed)
            }
            Some(Command::SetTtl { header, ttl }) => {
                self.ttl_fits(*ttl)?;
                self.request(header, format!("ttl {ttl:?}"), |all| {
                    let at = all.at;
                    let session = all.of(header.session);
                    (session.ttl, session.seen) = (*ttl, at);
                    Ok(Done::TtlSet { ttl: *ttl })
                })
            }
            Some(Command::MarkSeen { sessions }) => {
                for session in self.sessions.iter_mut().filter(|s| sessions.contains(&s.id)) {
                    session.seen = at;
                }
                Ok(Done::Nothing)
            }
            Some(Command::Acquire { header, claim, wait }) => {
                let waits = matches!(wait, Wait::UpTo(_));
                let contents = format!("acquire {:?} {waits}", claim.names);
                let told = contents.clone();
                self.request(header, contents, |all| {
                    all.acquire(&told, header, &claim.names, *wait)
                })
            }
            Some(Command::Cancel { header, target }) => {
                let contents = format!("cancel {target}");
                let answer = self.request(header, contents, |all| all.cancel(header, *target));
                self.as_of_now(answer)
            }
            Some(Command::Release { header, resource, token }) => {
                let contents = format!("release {resource:?} {token}");
                self.request(header, contents, |all| all.release(header, resource, *token))
            }
            Some(Command::ExpireSessions { sessions }) => {
                let overdue = self.sessions.iter().filter(|s| {
                    sessions.iter().any(|o| o.session == s.id && s.seen.index <= o.seen)
                });
                let overdue: Vec<_> = overdue.map(|s| s.id).collect();
                self.end(&overdue, EndCause::Expired);
                Ok(Done::Nothing)
            }
            Some(Command::ExpireWaits { waits }) => {
                self.expire_waits(waits);
                Ok(Done::Nothing)
            }
        }
    }

    fn bootstrap(&mut self, bootstrap: &Bootstrap) -> Outcome {
        if self.bootstrap.is_some() {
            return Err(Refusal::NotBootstrapped);
        }
        self.token = bootstrap.token_floor.min(Token::MAX);
        self.bootstrap = Some(bootstrap.clone());
        Ok(Done::Nothing)
    }

    fn expire_waits(&mut self, waits: &[WaitId]) {
        let mut freed = Vec::new();
        for wait in waits {
            if let Some(waiting) = self.leave(*wait, LeaveCause::TimedOut) {
                freed.extend(waiting.names);
                self.answer(*wait, Some(waiting.contents), Err(Refusal::WaitTimeout));
            }
        }
        self.hand_on(freed);
    }

    fn limits(&self) -> Limits {
        self.bootstrap.as_ref().map(|b| b.limits).unwrap_or_default()
    }

    fn of(&mut self, session: SessionId) -> &mut Session {
        self.sessions.iter_mut().find(|s| s.id == session).expect("asked only of live sessions")
    }

    /// Section 3, "Open is idempotent by owner id".
    fn open(&mut self, owner: OwnerId, ttl: Millis) -> Outcome {
        if self.bootstrap.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        self.ttl_fits(ttl)?;
        let at = self.at;
        if let Some(live) = self.sessions.iter_mut().find(|s| s.owner == owner) {
            live.seen = at;
            return Ok(Done::Opened { session: live.id, ttl: live.ttl, created: false });
        }
        let max = self.limits().sessions_max;
        if self.sessions.len() as u64 == max {
            return Err(Refusal::LimitReached { limit: Limit::Sessions, max });
        }
        let id = SessionId(at.index);
        self.sessions.push(Session {
            id,
            owner,
            ttl,
            seen: at,
            floor: RequestId::FIRST,
            answers: Vec::new(),
            answered: Vec::new(),
            changed_at: Revision::default(),
        });
        self.events.push(Happened::Opened { session: id });
        Ok(Done::Opened { session: id, ttl, created: true })
    }

    fn ttl_fits(&self, ttl: Millis) -> Result<(), Refusal> {
        let (min, max) = (self.limits().ttl_min, self.limits().ttl_max);
        if min <= ttl && ttl <= max { Ok(()) } else { Err(Refusal::TtlOutOfBounds { min, max }) }
    }

    /// Section 1, "session id".
    fn is_live(&self, owner: OwnerId, session: SessionId) -> Result<(), Refusal> {
        if self.sessions.iter().any(|s| s.id == session && s.owner == owner) {
            return Ok(());
        }
        let others = self.sessions.iter().any(|s| s.id == session);
        if others || session.0 < self.at.index {
            return Err(Refusal::SessionExpired);
        }
        Err(Refusal::SessionUnknown)
    }

    /// All leave before anybody is granted.
    fn end(&mut self, sessions: &[SessionId], cause: EndCause) {
        let mut freed = Vec::new();
        for session in sessions {
            let mut waits: Vec<_> = self.waits.iter().map(|w| w.wait).collect();
            waits.retain(|w| w.session == *session);
            waits.sort();
            for wait in waits {
                let left = self.leave(wait, LeaveCause::Session(cause));
                freed.extend(left.expect("it was waiting").names);
            }
            let held = self.grants.iter().filter(|g| g.wait.session == *session);
            for token in held.map(|g| g.token).collect::<Vec<_>>() {
                freed.extend(self.end_grant(token, GrantEndCause::Session(cause)));
            }
            self.sessions.retain(|s| s.id != *session);
            self.events.push(Happened::Ended { session: *session, cause });
        }
        self.hand_on(freed);
    }
}
