//! [I5] A release or a renewal by anyone but the current owner changes nothing.

use std::collections::BTreeMap;

use ringfence::locks::{Command, Happened, OwnerId, ResourceName, SessionId, Token};

use crate::log::Committed;
use crate::time::Micros;

#[derive(Default)]
pub struct StaleChangesNothing {
    grants: BTreeMap<Token, (SessionId, Vec<ResourceName>)>,
    owners: BTreeMap<SessionId, OwnerId>,
    ended: BTreeMap<SessionId, Micros>,
}

impl StaleChangesNothing {
    pub fn committed(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        if let Some(Command::Release { header, resource, token }) = seen.command {
            let current = self.grants.get(token).is_some_and(|(session, names)| {
                *session == header.session
                    && names.contains(resource)
                    && self.owners.get(session) == Some(&header.owner)
            });
            if !current && !seen.effects.events.is_empty() {
                let events = &seen.effects.events;
                return Err(format!("a stale release of {token} on {resource} did {events:?}"));
            }
        }
        for event in &seen.effects.events {
            match &event.what {
                Happened::Granted { wait, names, grant, .. } => {
                    self.grants.insert(grant.token, (wait.session, names.clone()));
                }
                Happened::GrantEnded { token, .. } => {
                    self.grants.remove(token);
                }
                Happened::Opened { session } => {
                    if let Some(Command::OpenSession { owner, .. }) = seen.command {
                        self.owners.insert(*session, *owner);
                    }
                }
                Happened::Ended { session, .. } => {
                    self.ended.insert(*session, seen.now);
                }
                Happened::Queued { .. }
                | Happened::LeftQueue { .. }
                | Happened::Activated { .. }
                | Happened::ValueChanged { .. }
                | Happened::Asked { .. }
                | Happened::Reopened { .. }
                | Happened::Frozen { .. }
                | Happened::Thawed { .. }
                | Happened::Resized { .. } => {}
            }
        }
        Ok(())
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
}
