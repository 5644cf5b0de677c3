//! [I2] A session is not expired in the log before its client's own deadline for the
//! last acknowledged renewal.
//!
//! The client is taken to have every answer at the moment it is given: it could.

use std::collections::BTreeMap;

use ringfence::locks::{EndCause, Happened, Millis, SessionId};

use super::lower;
use crate::log::Committed;
use crate::time::{Clock, Micros, counted};

#[derive(Default)]
pub struct NeverEarly {
    /// Of the clients.
    pub clocks: Vec<Clock>,
    claims: BTreeMap<SessionId, Claim>,
    expired: BTreeMap<SessionId, Micros>,
}

/// Until when a client may believe that it has its session.
#[derive(Default)]
struct Claim {
    until: Micros,
    /// The ttl last settled by an answer.
    settled: Option<Millis>,
    /// Asked for, and not settled yet.
    asked: Option<Millis>,
}

impl NeverEarly {
    pub fn committed(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        for event in &seen.effects.events {
            let Happened::Ended { session, cause: EndCause::Expired } = event.what else {
                continue;
            };
            self.expired.insert(session, seen.now);
            self.still_good(session)?;
        }
        Ok(())
    }

    /// The authority has acknowledged a renewal, an open or a change of the ttl whose
    /// first sending was at `from`.
    pub fn acknowledged(
        &mut self,
        client: usize,
        session: SessionId,
        from: Micros,
        ttl: Millis,
        now: Micros,
    ) -> Result<(), String> {
        let clock = self.clocks[client];
        let claim = self.claims.entry(session).or_default();
        let ttl = lower(lower(ttl, claim.settled), claim.asked);
        let until = from + clock.truly(counted(ttl));
        if until > claim.until {
            claim.until = until;
            if until > now {
                return self.still_good(session);
            }
        }
        Ok(())
    }

    /// The client is about to ask for another ttl: from here on it counts the lower
    /// one.
    pub fn asks_ttl(&mut self, client: usize, session: SessionId, ttl: Millis, now: Micros) {
        let until = now + self.clocks[client].truly(counted(ttl));
        let claim = self.claims.entry(session).or_default();
        claim.until = claim.until.min(until);
        claim.asked = Some(ttl);
    }

    /// The client has the answer.
    pub fn ttl_settled(
        &mut self,
        client: usize,
        session: SessionId,
        from: Micros,
        ttl: Millis,
    ) -> Result<(), String> {
        let until = from + self.clocks[client].truly(counted(ttl));
        let claim = self.claims.entry(session).or_default();
        (claim.settled, claim.asked) = (Some(ttl), None);
        claim.until = claim.until.max(until);
        self.still_good(session)
    }

    fn still_good(&self, session: SessionId) -> Result<(), String> {
        let (Some(claim), Some(expired)) = (self.claims.get(&session), self.expired.get(&session))
        else {
            return Ok(());
        };
        if claim.until <= *expired {
            return Ok(());
        }
        let until = claim.until;
        Err(format!("{session} expired at {expired} us, acknowledged until {until} us"))
    }
}
