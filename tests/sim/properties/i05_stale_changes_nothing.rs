//! [I5] A release, a renewal, a confirmation or a value by anyone but the current owner
//! changes nothing; a revoke that names a stale token hits nobody. Nothing happens to a
//! grant or a wait but what was asked for by who may ask it.

use std::collections::BTreeMap;

use ringfence::locks::{
    Administered, Command, Done, EndCause, GrantEndCause, Happened, Header, LeaveCause, OwnerId,
    Refusal, ResourceName, SessionId, Token, WaitId,
};

use super::books::{Books, place};
use crate::log::Committed;
use crate::time::Micros;

#[derive(Default)]
pub struct StaleChangesNothing {
    owners: BTreeMap<SessionId, OwnerId>,
    ended: BTreeMap<SessionId, Micros>,
}

impl StaleChangesNothing {
    /// One event, judged by the books before it.
    pub fn check(
        &mut self,
        books: &Books,
        seen: &Committed<'_>,
        what: &Happened,
    ) -> Result<(), String> {
        match what {
            Happened::Opened { session } => {
                if let Some(Command::OpenSession { owner, .. }) = seen.command {
                    self.owners.insert(*session, *owner);
                }
            }
            Happened::Ended { session, .. } => {
                self.ended.insert(*session, seen.now);
            }
            Happened::Queued { .. }
            | Happened::Granted { .. }
            | Happened::Activated { .. }
            | Happened::ValueChanged { .. }
            | Happened::Asked { .. }
            | Happened::GrantEnded { .. }
            | Happened::Reopened { .. }
            | Happened::LeftQueue { .. }
            | Happened::Frozen { .. }
            | Happened::Thawed { .. }
            | Happened::Resized { .. } => {}
        }
        let asked = seen.command.is_some_and(|command| self.may(books, command, what));
        if asked || is_a_grant_to_a_waiter(books, what) {
            return Ok(());
        }
        Err(format!("a stale or strange {:?} did {what:?}", seen.command))
    }

    /// Whether the command may bring this about.
    fn may(&self, books: &Books, command: &Command, what: &Happened) -> bool {
        match what {
            Happened::Opened { .. } => matches!(command, Command::OpenSession { .. }),
            Happened::Ended { session, cause } => ends(command, *session, *cause),
            Happened::Queued { wait, .. } | Happened::Granted { wait, .. } => {
                matches!(command, Command::Acquire { header, .. } if *wait == id_of(header))
            }
            Happened::Activated { token, .. } => match command {
                Command::Confirm { header, resource, token: named } => {
                    named == token && self.owns(books, header, resource, *token)
                }
                _ => false,
            },
            Happened::ValueChanged { token, value, .. } => match command {
                Command::SetValue { header, resource, token: named, value: asked } => {
                    named == token && value == asked && self.owns(books, header, resource, *token)
                }
                _ => false,
            },
            Happened::Asked { token, .. } => {
                matches!(command, Command::AskRelease { token: named, .. } if named == token)
            }
            Happened::GrantEnded { token, cause, .. } => {
                self.may_end(books, command, *token, cause)
            }
            Happened::LeftQueue { wait, cause, .. } => leaves(command, *wait, cause),
            Happened::Reopened { token, .. } => {
                matches!(command, Command::EndClosures { tokens } if tokens.contains(token))
            }
            Happened::Frozen { name, .. } => {
                matches!(command, Command::Freeze { resource, .. } if resource == name)
            }
            Happened::Thawed { name, token, .. } => {
                matches!(command, Command::Thaw { resource, token: named, .. }
                    if resource == name && named == token
                        && books.places[place(name)].frozen == Some(*token))
            }
            Happened::Resized { name, slots, .. } => {
                matches!(command, Command::Resize { resource, slots: asked, .. }
                    if resource == name && asked == slots)
            }
        }
    }

    fn may_end(
        &self,
        books: &Books,
        command: &Command,
        token: Token,
        cause: &GrantEndCause,
    ) -> bool {
        let Some(grant) = books.live(token) else { return false };
        match (cause, command) {
            (GrantEndCause::Released, Command::Release { header, resource, token: named }) => {
                *named == token && self.owns(books, header, resource, token)
            }
            (GrantEndCause::Session(cause), command) => ends(command, grant.wait.session, *cause),
            (GrantEndCause::Unconfirmed, Command::ExpireBarriers { tokens }) => {
                tokens.contains(&token) && grant.active_since.is_none()
            }
            (GrantEndCause::Revoked { .. }, Command::Revoke { resource, token: named, .. }) => {
                *named == token && grant.places.contains(&place(resource))
            }
            (GrantEndCause::Frozen { .. }, Command::Freeze { resource, .. }) => {
                grant.places.contains(&place(resource))
            }
            _ => false,
        }
    }

    /// Whether the grant is live, on that resource, of that session and owner.
    fn owns(&self, books: &Books, header: &Header, resource: &ResourceName, token: Token) -> bool {
        let live = books.live(token);
        live.is_some_and(|grant| {
            grant.wait.session == header.session
                && grant.places.contains(&place(resource))
                && self.owners.get(&header.session) == Some(&header.owner)
        })
    }

    /// What administrators are told is so. `books` are those before the entry.
    pub fn outcome(&self, books: &Books, seen: &Committed<'_>) -> Result<(), String> {
        let holds = |name: &ResourceName, token| books.holds(place(name), token);
        let right = match (seen.command, &seen.effects.outcome) {
            (Some(Command::Revoke { resource, token, .. }), outcome) => match outcome {
                Ok(Done::Administered(Administered::Revoked { token: by, floor, .. })) => {
                    holds(resource, *token) && floor <= by
                }
                Err(Refusal::NotHeld) => !holds(resource, *token),
                Ok(_) | Err(_) => false,
            },
            (Some(Command::Freeze { resource, .. }), outcome) => {
                let frozen = books.places[place(resource)].frozen;
                match outcome {
                    Ok(Done::Administered(Administered::Frozen { .. })) => frozen.is_none(),
                    Err(Refusal::Frozen { token, .. }) => frozen == Some(*token),
                    Err(Refusal::NotBootstrapped) => true,
                    Ok(_) | Err(_) => false,
                }
            }
            (Some(Command::Thaw { resource, token, .. }), outcome) => {
                let named = books.places[place(resource)].frozen == Some(*token);
                named == outcome.is_ok()
            }
            (Some(Command::Resize { resource, .. }), outcome) => {
                books.places[place(resource)].slots.is_some() == outcome.is_ok()
            }
            (Some(Command::AskRelease { resource, token, .. }), outcome) => {
                holds(resource, *token) == outcome.is_ok()
            }
            _ => true,
        };
        let (command, outcome) = (seen.command, &seen.effects.outcome);
        right.then_some(()).ok_or_else(|| format!("{command:?} is answered {outcome:?}"))
    }

    /// A renewal that arrived then was acknowledged: by its owner, and not after the
    /// session had ended.
    pub fn renewed(
        &self,
        owner: OwnerId,
        session: SessionId,
        arrived: Micros,
    ) -> Result<(), String> {
        if self.owners.get(&session) != Some(&owner) {
            return Err(format!("{session} was renewed by somebody else"));
        }
        match self.ended.get(&session) {
            Some(ended) if *ended <= arrived => {
                Err(format!("{session} ended at {ended} us and was renewed at {arrived} us"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A client is told that it does not hold what it was granted and did not give back:
    /// it must have been taken from it.
    pub fn not_held(books: &Books, token: Token) -> Result<(), String> {
        let ended = books.grants.get(&token).and_then(|grant| grant.ended.as_ref());
        match ended {
            Some(end) if end.taken => Ok(()),
            Some(_) | None => Err(format!("{token} was not taken from its holder, and is gone")),
        }
    }
}

fn id_of(header: &Header) -> WaitId {
    WaitId { session: header.session, request: header.id }
}

fn is_a_grant_to_a_waiter(books: &Books, what: &Happened) -> bool {
    matches!(what, Happened::Granted { wait, .. } if books.waits.contains_key(wait))
}

fn ends(command: &Command, session: SessionId, cause: EndCause) -> bool {
    match cause {
        EndCause::Closed => {
            matches!(command, Command::CloseSession { session: named, .. } if *named == session)
        }
        EndCause::Expired => matches!(command, Command::ExpireSessions { sessions }
            if sessions.iter().any(|overdue| overdue.session == session)),
    }
}

fn leaves(command: &Command, wait: WaitId, cause: &LeaveCause) -> bool {
    match cause {
        LeaveCause::Cancelled => matches!(command, Command::Cancel { header, target }
            if header.session == wait.session && *target == wait.request),
        LeaveCause::TimedOut => {
            matches!(command, Command::ExpireWaits { waits } if waits.contains(&wait))
        }
        LeaveCause::Session(cause) => ends(command, wait.session, *cause),
        LeaveCause::Frozen { resource, .. } => {
            matches!(command, Command::Freeze { resource: named, .. } if named == resource)
        }
    }
}

#[test]
fn a_stale_revoke_that_ends_a_newer_grant_is_noticed() {
    use super::made_up::{committed, granted};
    use ringfence::locks::{Millis, Note};
    let mut books = Books::default();
    books.take(&granted(1, "job/1", 7), 0);
    let grant = &books.grants[&Token::new(7).expect("small")];
    let by = Token::new(8).expect("small");
    let ended = Happened::GrantEnded {
        wait: grant.wait,
        names: vec![super::books::resource(0)],
        slot: None,
        token: grant.granted.token,
        cause: GrantEndCause::Revoked { by, note: Note::default() },
        delay: Millis(0),
    };
    let check = |named: u64| {
        let token = Token::new(named).expect("small");
        let (resource, note) = (super::books::resource(0), Note::default());
        let revoke = Command::Revoke { resource, token, note };
        committed(ended.clone(), |seen| {
            let seen = Committed { command: Some(&revoke), ..*seen };
            StaleChangesNothing::default().check(&books, &seen, &ended)
        })
    };
    assert!(check(7).is_ok());
    assert!(check(6).is_err());
}
