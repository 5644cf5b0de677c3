//! Section 8: revoke, freeze, thaw, resize, and asking for a grant back.

use ringfence::locks::{
    Administered, Asked, Done, GrantEndCause, Happened, LeaveCause, Limit, Millis, Note, Outcome,
    Refusal, ResourceName, Token,
};

use super::{Freeze, Grant, Naive, Resize};

impl Naive {
    pub fn revoke(&mut self, resource: &ResourceName, token: Token, note: &Note) -> Outcome {
        let grant = self.live_on(resource, token)?.clone();
        let by = self.token_of_administrator()?;
        self.end_grant(token, GrantEndCause::Revoked { by, note: note.clone() });
        let floor = self.lowest(resource).unwrap_or(by);
        let (names, slot) = (grant.names, grant.slot);
        Ok(Done::Administered(Administered::Revoked { names, slot, token: by, floor }))
    }

    pub fn freeze(&mut self, resource: &ResourceName, note: &Note) -> Outcome {
        if self.bootstrap.is_none() {
            return Err(Refusal::NotBootstrapped);
        }
        if let Some(other) = self.freezes.iter().find(|f| f.name == *resource) {
            return Err(Refusal::Frozen { resource: resource.clone(), token: other.token });
        }
        let by = self.token_of_administrator()?;
        let held: Vec<_> = self.holders(resource).iter().map(|g| g.token).collect();
        for token in held {
            self.end_grant(token, GrantEndCause::Frozen { by });
        }
        for wait in self.queue(resource) {
            let of_set = self.waits.iter().any(|w| w.wait == wait && w.names.len() > 1);
            if of_set {
                let cause = LeaveCause::Frozen { resource: resource.clone(), by };
                let left = self.leave(wait, cause).expect("it was waiting");
                let answer = Refusal::Frozen { resource: resource.clone(), token: by };
                self.answer(wait, Some(left.contents), Err(answer));
            }
        }
        let (name, since) = (resource.clone(), self.now());
        self.freezes.push(Freeze { token: by, name: name.clone(), note: note.clone(), since });
        self.events.push(Happened::Frozen { name, token: by, note: note.clone() });
        Ok(Done::Administered(Administered::Frozen { token: by }))
    }

    pub fn thaw(&mut self, resource: &ResourceName, token: Token, note: &Note) -> Outcome {
        let place = self.freezes.iter().position(|f| f.name == *resource && f.token == token);
        self.freezes.remove(place.ok_or(Refusal::NotHeld)?);
        self.freed.push(resource.clone());
        let (name, at) = (resource.clone(), self.now());
        self.events.push(Happened::Thawed { name, token, note: note.clone() });
        Ok(Done::Administered(Administered::Thawed { at }))
    }

    pub fn resize(&mut self, resource: &ResourceName, slots: u32, note: &Note) -> Outcome {
        let before = self.slots(resource).ok_or(Refusal::NotHeld)?;
        let token = self.token_of_administrator()?;
        self.shrunk |= slots < before;
        let floor = self.lowest(resource).unwrap_or(token);
        self.resizes.retain(|r| r.name != *resource);
        let (name, since) = (resource.clone(), self.now());
        self.resizes.push(Resize { token, name: name.clone(), slots, note: note.clone(), since });
        self.freed.push(name.clone());
        self.events.push(Happened::Resized { name, slots, token, note: note.clone() });
        let end = self.taken(resource).into_iter().max().map_or(0, |last| last + 1);
        let removed = slots..before.max(end).max(slots);
        Ok(Done::Administered(Administered::Resized { slots, token, floor, removed }))
    }

    pub fn ask(
        &mut self,
        resource: &ResourceName,
        token: Token,
        within: Millis,
        note: &Note,
    ) -> Outcome {
        let session = self.live_on(resource, token)?.wait.session;
        let at = self.now();
        self.changed(session);
        let grant = self.grants.iter_mut().find(|g| g.token == token).expect("it is live");
        grant.asked = Some(Asked { at, within, note: note.clone() });
        let (wait, names) = (grant.wait, grant.names.clone());
        self.events.push(Happened::Asked { wait, names, token, within, note: note.clone() });
        Ok(Done::Administered(Administered::Asked { at }))
    }

    fn live_on(&self, resource: &ResourceName, token: Token) -> Result<&Grant, Refusal> {
        let holders = self.holders(resource);
        holders.into_iter().find(|g| g.token == token).ok_or(Refusal::NotHeld)
    }

    fn lowest(&self, resource: &ResourceName) -> Option<Token> {
        self.holders(resource).iter().map(|g| g.token).min()
    }

    fn token_of_administrator(&mut self) -> Result<Token, Refusal> {
        if self.token == Token::MAX {
            return Err(Refusal::LimitReached { limit: Limit::Tokens, max: Token::MAX });
        }
        Ok(self.next_token())
    }
}
