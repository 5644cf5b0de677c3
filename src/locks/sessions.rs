//! Sessions: open, close, ttl, seen, expired. Section 3 of the contract, the part
//! that is in the log.

use std::collections::BTreeSet;

use super::command::{Header, Labels, Overdue};
use super::effect::{
    Done, EndCause, Fact, GrantEndCause, Happened, LeaveCause, Limit, Outcome, Refusal,
};
use super::entry::Entry;
use super::hash::Canon;
use super::ids::{Millis, OwnerId, SessionId};
use super::rows::{RowKey, SessionRow};
use super::session::Session;
use super::switches::Rule;

impl Entry<'_> {
    /// Idempotent by owner: a live session is answered, with the ttl in force, and
    /// counts as seen.
    pub(super) fn open_session(&mut self, owner: OwnerId, ttl: Millis, labels: &Labels) -> Outcome {
        if self.table.meta.cluster.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        self.ttl_in_bounds(ttl)?;
        if let Some(&session) = self.table.owners.get(&owner) {
            if self.table.holds(Rule::OpenSees) {
                self.see(session);
            }
            let ttl = self.table.sessions[&session].row.ttl;
            return Ok(Done::Opened { session, ttl, created: false });
        }
        let max = self.table.meta.limits.sessions_max;
        if self.table.sessions.len() as u64 >= max {
            return Err(Refusal::LimitReached { limit: Limit::Sessions, max });
        }
        let session = SessionId(self.at.index);
        self.touch(RowKey::Session(session));
        self.touch(RowKey::Window(session));
        let row = SessionRow { session, owner, ttl, seen: self.at, labels: labels.clone() };
        self.table.sessions.insert(session, Session::new(row));
        self.table.owners.insert(owner, session);
        self.happened(Happened::Opened { session });
        self.fact(Fact::Seen { session, ttl, term: self.at.term, index: self.at.index });
        Ok(Done::Opened { session, ttl, created: true })
    }

    pub(super) fn close_session(&mut self, owner: OwnerId, session: SessionId) -> Outcome {
        self.owned(owner, session)?;
        let session = self.acting_session(owner, session);
        self.end_sessions(&[session], EndCause::Closed);
        Ok(Done::Closed)
    }

    pub(super) fn set_ttl(&mut self, header: &Header, ttl: Millis) -> Outcome {
        let mut contents = Canon::default();
        contents.number(1, 1);
        contents.number(2, ttl.0);
        self.ttl_in_bounds(ttl)?;
        self.request(header, contents.fingerprint(), |entry, session| {
            entry.touch(RowKey::Session(session));
            entry.session(session).row.ttl = ttl;
            entry.see(session);
            Ok(Done::TtlSet { ttl })
        })
    }

    pub(super) fn mark_seen(&mut self, sessions: &[SessionId]) -> Outcome {
        for session in sessions {
            if self.table.sessions.contains_key(session) {
                self.see(*session);
            }
        }
        Ok(Done::Nothing)
    }

    /// Ends the sessions that nobody saw since the revision that the leader named.
    /// (I2) A repeated expiry names the same revision and so ends nobody who was
    /// seen meanwhile.
    pub(super) fn expire_sessions(&mut self, overdue: &[Overdue]) -> Outcome {
        let unconditional = !self.table.holds(Rule::ExpiryIsConditional);
        let mut ended = BTreeSet::new();
        for Overdue { session, seen } in overdue {
            let live = self.table.sessions.get(session);
            if live.is_some_and(|s| s.row.seen.index <= *seen || unconditional) {
                ended.insert(*session);
            }
        }
        let ended: Vec<_> = ended.into_iter().collect();
        self.end_sessions(&ended, EndCause::Expired);
        Ok(Done::Nothing)
    }

    /// Whether the owner may act in the session. (I5) Another owner's session is as
    /// good as ended: nothing is told of it.
    pub(super) fn owned(&self, owner: OwnerId, session: SessionId) -> Result<(), Refusal> {
        if !self.table.holds(Rule::SessionInRequest) && self.table.owners.contains_key(&owner) {
            return Ok(());
        }
        match self.table.sessions.get(&session) {
            Some(live) if live.row.owner == owner => Ok(()),
            Some(_) => Err(Refusal::SessionExpired),
            None if session.0 < self.at.index => Err(Refusal::SessionExpired),
            None => Err(Refusal::SessionUnknown),
        }
    }

    /// The live session that the caller has found to exist.
    pub(super) fn session(&mut self, session: SessionId) -> &mut Session {
        self.table.sessions.get_mut(&session).expect("the caller checked that the session is live")
    }

    fn ttl_in_bounds(&self, ttl: Millis) -> Result<(), Refusal> {
        let (min, max) = (self.table.meta.limits.ttl_min, self.table.meta.limits.ttl_max);
        if ttl < min || ttl > max {
            return Err(Refusal::TtlOutOfBounds { min, max });
        }
        Ok(())
    }

    fn see(&mut self, session: SessionId) {
        self.touch(RowKey::Session(session));
        let at = self.at;
        let row = &mut self.session(session).row;
        row.seen = at;
        let ttl = row.ttl;
        self.fact(Fact::Seen { session, ttl, term: at.term, index: at.index });
    }

    /// Ends sessions with all their waits and grants. All of them leave before
    /// anybody is granted what they held, so that no token is spent on a waiter that
    /// ends in the same entry.
    fn end_sessions(&mut self, ended: &[SessionId], cause: EndCause) {
        for session in ended {
            self.end_session(*session, cause);
        }
    }

    fn end_session(&mut self, session: SessionId, cause: EndCause) {
        let live = &self.table.sessions[&session];
        let requests: Vec<_> = live.waits.iter().copied().collect();
        let tokens: Vec<_> = live.grants.iter().copied().collect();
        let outcomes: Vec<_> = live.window.outcomes.keys().copied().collect();
        for request in requests {
            let wait = super::WaitId { session, request };
            if self.table.holds(Rule::DeadWaitersLeave) {
                self.leave_queue(wait, LeaveCause::Session(cause));
            }
        }
        for token in tokens {
            self.end_grant(token, GrantEndCause::Session(cause));
        }
        for request in outcomes {
            self.touch(RowKey::Outcome(session, request));
        }
        self.touch(RowKey::Session(session));
        self.touch(RowKey::Window(session));
        let owner = self.table.sessions[&session].row.owner;
        self.table.sessions.remove(&session);
        self.table.owners.remove(&owner);
        self.happened(Happened::Ended { session, cause });
        self.fact(Fact::Ended { session });
    }
}
