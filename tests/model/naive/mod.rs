//! The contract once more, in the simplest form: lists that are searched from the
//! front. Written from sections 3 to 8, not from `locks`; only the words (commands,
//! outcomes, events, rows) are shared. What one entry grants has no bound here: the
//! world of these tests is too small to reach it.

mod administration;
mod claims;
mod grants;
mod reduction;
mod requests;

use ringfence::locks::{
    Asked, Bootstrap, Command, Done, EndCause, GrantEndCause, Happened, Header, LeaveCause, Limit,
    Limits, Millis, Mode, Note, Outcome, OwnerId, Phase, Position, Refusal, RequestId,
    ResourceName, Revision, SessionId, Terms, Token, Value, WaitId,
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
    /// Lock delays that run.
    pub closures: Vec<Closure>,
    /// What administrators keep closed.
    pub freezes: Vec<Freeze>,
    /// Numbers of slots that administrators changed.
    pub resizes: Vec<Resize>,
    /// Of the last entry.
    pub events: Vec<Happened>,
    /// Names at which somebody left or something opened, in the last entry.
    freed: Vec<ResourceName>,
    /// Whether any number of slots was ever made smaller.
    shrunk: bool,
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
    pub floor: Token,
    pub wait: WaitId,
    pub names: Vec<ResourceName>,
    pub mode: Mode,
    pub at: Revision,
    pub slot: Option<u32>,
    pub phase: Phase,
    pub delay: Millis,
    pub value: Value,
    pub asked: Option<Asked>,
}

#[derive(Clone)]
pub struct Waiting {
    pub wait: WaitId,
    pub contents: String,
    pub names: Vec<ResourceName>,
    pub mode: Mode,
    pub terms: Terms,
    pub deadline: Millis,
    pub at: Revision,
}

/// Names (of slots: the slot) that are closed for a while.
#[derive(Clone)]
pub struct Closure {
    pub token: Token,
    pub names: Vec<ResourceName>,
    pub mode: Mode,
    pub slot: Option<u32>,
    pub delay: Millis,
    pub since: Revision,
}

#[derive(Clone)]
pub struct Freeze {
    pub token: Token,
    pub name: ResourceName,
    pub note: Note,
    pub since: Revision,
}

#[derive(Clone)]
pub struct Resize {
    pub token: Token,
    pub name: ResourceName,
    pub slots: u32,
    pub note: Note,
    pub since: Revision,
}

impl Naive {
    /// Applies one entry.
    pub fn apply(&mut self, at: Position, command: Option<&Command>) -> Outcome {
        self.at = at;
        self.events.clear();
        let outcome = command.map_or(Ok(Done::Nothing), |command| self.command(command));
        self.hand_on();
        // Only who takes slots away can bring about what no wait was let in to.
        assert!(self.shrunk || self.stuck().is_empty(), "an undetected stall");
        outcome
    }

    fn command(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Bootstrap(bootstrap) => self.bootstrap(bootstrap),
            Command::OpenSession { owner, ttl, .. } => self.open(*owner, *ttl),
            Command::CloseSession { owner, session } => {
                self.is_live(*owner, *session)?;
                self.end(&[*session], EndCause::Closed);
                Ok(Done::Closed)
            }
            Command::SetTtl { header, ttl } => self.set_ttl(header, *ttl),
            Command::MarkSeen { sessions } => {
                let at = self.at;
                for session in self.sessions.iter_mut().filter(|s| sessions.contains(&s.id)) {
                    session.seen = at;
                }
                Ok(Done::Nothing)
            }
            Command::Acquire { header, claim, wait } => self.acquire(header, claim, *wait),
            Command::Cancel { header, target } => self.cancel(header, *target),
            Command::Confirm { header, resource, token } => self.confirm(header, resource, *token),
            Command::SetValue { header, resource, token, value } => {
                self.set_value(header, resource, *token, value)
            }
            Command::Release { header, resource, token } => self.release(header, resource, *token),
            Command::Revoke { resource, token, note } => self.revoke(resource, *token, note),
            Command::Freeze { resource, note } => self.freeze(resource, note),
            Command::Thaw { resource, token, note } => self.thaw(resource, *token, note),
            Command::Resize { resource, slots, note } => self.resize(resource, *slots, note),
            Command::AskRelease { resource, token, within, note } => {
                self.ask(resource, *token, *within, note)
            }
            Command::ExpireSessions { sessions } => {
                let overdue = self.sessions.iter().filter(|s| {
                    sessions.iter().any(|o| o.session == s.id && s.seen.index <= o.seen)
                });
                let overdue: Vec<_> = overdue.map(|s| s.id).collect();
                self.end(&overdue, EndCause::Expired);
                Ok(Done::Nothing)
            }
            Command::ExpireWaits { waits } => self.expire_waits(waits),
            Command::ExpireBarriers { tokens } => self.expire_barriers(tokens),
            Command::EndClosures { tokens } => self.end_closures(tokens),
            Command::Settle => Ok(Done::Nothing),
        }
    }

    fn set_ttl(&mut self, header: &Header, ttl: Millis) -> Outcome {
        self.ttl_fits(ttl)?;
        self.request(header, format!("ttl {ttl:?}"), |all| {
            let at = all.at;
            let session = all.of(header.session);
            (session.ttl, session.seen) = (ttl, at);
            Ok(Done::TtlSet { ttl })
        })
    }

    fn bootstrap(&mut self, bootstrap: &Bootstrap) -> Outcome {
        if self.bootstrap.is_some() {
            return Err(Refusal::NotBootstrapped);
        }
        self.token = bootstrap.token_floor.min(Token::MAX);
        self.bootstrap = Some(bootstrap.clone());
        Ok(Done::Nothing)
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
        for session in sessions {
            let mut waits: Vec<_> = self.waits.iter().map(|w| w.wait).collect();
            waits.retain(|w| w.session == *session);
            waits.sort();
            for wait in waits {
                self.leave(wait, LeaveCause::Session(cause));
            }
            let held = self.grants.iter().filter(|g| g.wait.session == *session);
            for token in held.map(|g| g.token).collect::<Vec<_>>() {
                self.end_grant(token, GrantEndCause::Session(cause));
            }
            self.sessions.retain(|s| s.id != *session);
            self.events.push(Happened::Ended { session: *session, cause });
        }
    }

    /// The revision of the next event.
    fn now(&self) -> Revision {
        let ordinal = u32::try_from(self.events.len()).expect("few events an entry");
        Revision { index: self.at.index, ordinal }
    }

    /// The next event is a change for the session.
    fn changed(&mut self, session: SessionId) {
        self.of(session).changed_at = self.now();
    }
}
