//! [I6] An (owner, session, request id) takes effect at most once; what is settled
//! stays settled; an answer speaks of what is.

use std::collections::BTreeSet;

use ringfence::locks::{
    Command, Done, Effects, Event, Fact, Happened, Header, RequestId, SessionId, Token, WaitId,
};

use crate::log::Committed;

#[derive(Default)]
pub struct AtMostOnce {
    /// Everything that was asked.
    asked: BTreeSet<(SessionId, RequestId)>,
    effective: BTreeSet<(SessionId, RequestId)>,
    queued: BTreeSet<WaitId>,
    granted: BTreeSet<WaitId>,
    cancelled: BTreeSet<WaitId>,
    ended: BTreeSet<SessionId>,
    activated: BTreeSet<Token>,
    gone: BTreeSet<Token>,
}

impl AtMostOnce {
    pub fn committed(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        if let Some(header) = seen.command.and_then(header_of) {
            self.request(header, seen.effects)?;
        }
        self.events(seen.effects)?;
        self.outcome(seen)
    }

    /// Whether the request has been in the log before.
    pub fn repeated(&mut self, command: Option<&Command>) -> bool {
        let header = command.and_then(header_of);
        header.is_some_and(|header| !self.asked.insert((header.session, header.id)))
    }

    fn request(&mut self, header: &Header, effects: &Effects) -> Result<(), String> {
        let saw = effects.facts.iter().any(|fact| matches!(fact, Fact::Seen { .. }));
        // A grant to one who waited is no effect of the request that made room, still less
        // of one that only came when an earlier entry had left it to do.
        let waited = |event: &Event| matches!(&event.what, Happened::Granted { wait, .. } if self.queued.contains(wait));
        if effects.events.iter().all(waited) && !saw {
            return Ok(());
        }
        let key = (header.session, header.id);
        if self.ended.contains(&header.session) {
            return Err(format!("a late request {key:?} of a session that has ended took effect"));
        }
        if !self.effective.insert(key) {
            return Err(format!("{key:?} took effect twice"));
        }
        Ok(())
    }

    fn events(&mut self, effects: &Effects) -> Result<(), String> {
        for event in &effects.events {
            let fresh = match &event.what {
                Happened::Queued { wait, .. } => {
                    self.queued.insert(*wait) && !self.cancelled.contains(wait)
                }
                Happened::Granted { wait, .. } => {
                    self.granted.insert(*wait) && !self.cancelled.contains(wait)
                }
                Happened::Ended { session, .. } => self.ended.insert(*session),
                Happened::Activated { token, .. } => self.activated.insert(*token),
                Happened::GrantEnded { token, .. } => self.gone.insert(*token),
                Happened::Opened { .. }
                | Happened::LeftQueue { .. }
                | Happened::ValueChanged { .. }
                | Happened::Asked { .. }
                | Happened::Reopened { .. }
                | Happened::Frozen { .. }
                | Happened::Thawed { .. }
                | Happened::Resized { .. } => true,
            };
            if !fresh {
                return Err(format!("settled before, and yet {:?}", event.what));
            }
        }
        Ok(())
    }

    /// A grant that is told is live; a cancel that is told stands.
    fn outcome(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        match (&seen.effects.outcome, seen.command) {
            (Ok(Done::Granted { token }), _) if seen.table.grant(*token).is_none() => {
                Err(format!("{:?} is told token {token}, which has ended", seen.command))
            }
            (Ok(Done::CancelledTarget), Some(Command::Cancel { header, target })) => {
                self.cancelled.insert(WaitId { session: header.session, request: *target });
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn header_of(command: &Command) -> Option<&Header> {
    match command {
        Command::SetTtl { header, .. }
        | Command::Acquire { header, .. }
        | Command::Cancel { header, .. }
        | Command::Confirm { header, .. }
        | Command::SetValue { header, .. }
        | Command::Release { header, .. } => Some(header),
        Command::Bootstrap(_)
        | Command::OpenSession { .. }
        | Command::CloseSession { .. }
        | Command::MarkSeen { .. }
        | Command::ExpireSessions { .. }
        | Command::ExpireWaits { .. }
        | Command::Revoke { .. }
        | Command::Freeze { .. }
        | Command::Thaw { .. }
        | Command::Resize { .. }
        | Command::AskRelease { .. }
        | Command::ExpireBarriers { .. }
        | Command::EndClosures { .. }
        | Command::Settle => None,
    }
}
