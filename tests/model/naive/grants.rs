//! Sections 4, 6 and 7: who may hold what together, and what holders do.

use ringfence::locks::{
    Claim, Done, GrantEndCause, Granted, Handoff, Happened, Header, Millis, Mode, Outcome, Phase,
    Refusal, ResourceName, Revision, Token, Value, WaitId,
};

use super::{Closure, Grant, Naive};

/// Many share, or many have slots, and else one stands alone.
fn together(a: Mode, b: Mode) -> bool {
    matches!((a, b), (Mode::Shared, Mode::Shared) | (Mode::Slots { .. }, Mode::Slots { .. }))
}

impl Naive {
    pub fn holders(&self, name: &ResourceName) -> Vec<&Grant> {
        self.grants.iter().filter(|g| g.names.contains(name)).collect()
    }

    pub fn closures_of(&self, name: &ResourceName) -> Vec<&Closure> {
        self.closures.iter().filter(|c| c.names.contains(name)).collect()
    }

    /// How many slots there are, while anybody holds or awaits one.
    pub fn slots(&self, name: &ResourceName) -> Option<u32> {
        let held = self.grants.iter().filter(|g| g.names.contains(name)).map(|g| g.mode);
        let asked = self.waits.iter().filter(|w| w.names.contains(name)).map(|w| w.mode);
        let mut named = held.chain(asked).filter_map(|mode| match mode {
            Mode::Slots { of } => Some(of),
            Mode::Exclusive | Mode::Shared => None,
        });
        let first = named.next()?;
        let changed = self.resizes.iter().find(|r| r.name == *name);
        Some(changed.map_or(first, |changed| changed.slots))
    }

    /// Slots that are held, or closed by a lock delay.
    fn taken(&self, name: &ResourceName) -> Vec<u32> {
        let held = self.holders(name).into_iter().filter_map(|g| g.slot);
        held.chain(self.closures_of(name).into_iter().filter_map(|c| c.slot)).collect()
    }

    /// Whether these can be granted now, to nobody's disadvantage.
    pub fn is_free(&self, names: &[ResourceName], mode: Mode, who: Option<WaitId>) -> bool {
        names.iter().all(|name| {
            let first = self.queue(name).first().copied();
            let room = match mode {
                Mode::Exclusive | Mode::Shared => true,
                Mode::Slots { of } => {
                    self.taken(name).len() < self.slots(name).unwrap_or(of) as usize
                }
            };
            (first.is_none() || first == who)
                && self.freezes.iter().all(|f| f.name != *name)
                && self.holders(name).into_iter().all(|g| together(g.mode, mode))
                && self.closures_of(name).into_iter().all(|c| together(c.mode, mode))
                && room
        })
    }

    pub fn next_token(&mut self) -> Token {
        self.token += 1;
        Token::new(self.token).expect("the caller saw that one is left")
    }

    pub fn grant(&mut self, wait: WaitId, claim: &Claim) -> Token {
        let (names, mode, terms) = (claim.names.clone(), claim.mode, claim.terms.clone());
        let token = self.next_token();
        let others = names.iter().flat_map(|name| self.holders(name)).map(|g| g.token);
        let floor = others.chain([token]).min().expect("its own is among them");
        let slot = match mode {
            Mode::Exclusive | Mode::Shared => None,
            Mode::Slots { .. } => {
                let taken = self.taken(&names[0]);
                (0..).find(|slot| !taken.contains(slot))
            }
        };
        let phase = match terms.handoff {
            Handoff::Plain => Phase::Active,
            Handoff::Strict { barrier } => Phase::Barrier { deadline: barrier },
        };
        let (at, delay, value) = (self.now(), terms.lock_delay, terms.value);
        self.changed(wait.session);
        self.grants.push(Grant {
            token,
            floor,
            wait,
            names: names.clone(),
            mode,
            at,
            slot,
            phase,
            delay,
            value,
            asked: None,
        });
        let grant = Granted { token, floor, mode, slot, phase };
        self.events.push(Happened::Granted { wait, names, grant });
        token
    }

    /// Ends a grant. What its holder may not know of closes its names, or its slot, for
    /// the lock delay.
    pub fn end_grant(&mut self, token: Token, cause: GrantEndCause) -> Revision {
        use ringfence::locks::EndCause::Closed;
        let place = self.grants.iter().position(|g| g.token == token).expect("it was live");
        let Grant { wait, names, mode, slot, delay, .. } = self.grants.remove(place);
        let willing = matches!(cause, GrantEndCause::Released | GrantEndCause::Session(Closed));
        let delay = if willing { Millis(0) } else { delay };
        let since = self.now();
        if delay.0 > 0 {
            let names = names.clone();
            self.closures.push(Closure { token, names, mode, slot, delay, since });
        }
        if cause != GrantEndCause::Released {
            self.changed(wait.session);
        }
        self.freed.extend(names.clone());
        self.events.push(Happened::GrantEnded { wait, names, slot, token, cause, delay });
        self.forget_unused_slots();
        since
    }

    /// With the last who holds or awaits one, the number of slots is forgotten.
    pub fn forget_unused_slots(&mut self) {
        let mut changed = std::mem::take(&mut self.resizes);
        changed.retain(|r| self.slots(&r.name).is_some());
        self.resizes = changed;
    }

    /// Grants to those who head all their queues. Several that can be granted in one
    /// entry are taken in the order of the names that were freed: the contract leaves
    /// that open, but every replica must do the same.
    pub fn hand_on(&mut self) {
        let mut freed = std::mem::take(&mut self.freed);
        freed.sort();
        freed.dedup();
        for name in freed {
            while let Some(first) = self.queue(&name).first().copied()
                && self.token < Token::MAX
            {
                let place = self.waits.iter().position(|w| w.wait == first);
                let waiting = self.waits[place.expect("who heads a queue waits")].clone();
                if !self.is_free(&waiting.names, waiting.mode, Some(first)) {
                    break;
                }
                self.waits.retain(|w| w.wait != first);
                let (names, mode, terms) = (waiting.names, waiting.mode, waiting.terms);
                let token = self.grant(first, &Claim { names, mode, terms });
                self.answer(first, Some(waiting.contents), Ok(Done::Granted { token }));
            }
        }
        let left = |w: &&super::Waiting| self.is_free(&w.names, w.mode, Some(w.wait));
        let left = self.waits.iter().find(left).map(|w| w.wait);
        assert!(left.is_none() || self.token == Token::MAX, "[I4] {left:?} waits for nothing");
    }

    pub fn release(&mut self, header: &Header, resource: &ResourceName, token: Token) -> Outcome {
        self.request(header, format!("release {resource:?} {token}"), |all| {
            all.held_by(header, resource, token)?;
            Ok(Done::Released { at: all.end_grant(token, GrantEndCause::Released) })
        })
    }

    pub fn confirm(&mut self, header: &Header, resource: &ResourceName, token: Token) -> Outcome {
        self.request(header, format!("confirm {resource:?} {token}"), |all| {
            let place = all.held_by(header, resource, token)?;
            let at = all.now();
            if all.grants[place].phase != Phase::Active {
                all.grants[place].phase = Phase::Active;
                all.changed(header.session);
                let (wait, names) = (all.grants[place].wait, all.grants[place].names.clone());
                all.events.push(Happened::Activated { wait, names, token });
            }
            Ok(Done::Confirmed { at })
        })
    }

    pub fn set_value(
        &mut self,
        header: &Header,
        resource: &ResourceName,
        token: Token,
        value: &Value,
    ) -> Outcome {
        self.request(header, format!("value {resource:?} {token} {value:?}"), |all| {
            let place = all.held_by(header, resource, token)?;
            all.grants[place].value = value.clone();
            let (wait, names) = (all.grants[place].wait, all.grants[place].names.clone());
            let (at, value) = (all.now(), value.clone());
            all.events.push(Happened::ValueChanged { wait, names, token, value });
            Ok(Done::ValueSet { at })
        })
    }

    pub fn expire_barriers(&mut self, tokens: &[Token]) -> Outcome {
        for token in tokens {
            let mut late = self.grants.iter().filter(|g| g.phase != Phase::Active);
            if late.any(|g| g.token == *token) {
                self.end_grant(*token, GrantEndCause::Unconfirmed);
            }
        }
        Ok(Done::Nothing)
    }

    pub fn end_closures(&mut self, tokens: &[Token]) -> Outcome {
        for &token in tokens {
            let Some(place) = self.closures.iter().position(|c| c.token == token) else { continue };
            let Closure { names, slot, .. } = self.closures.remove(place);
            self.freed.extend(names.clone());
            self.events.push(Happened::Reopened { names, slot, token });
        }
        Ok(Done::Nothing)
    }

    /// Where the grant stands in the list, if this session holds it.
    fn held_by(
        &self,
        header: &Header,
        resource: &ResourceName,
        token: Token,
    ) -> Result<usize, Refusal> {
        let place = self.grants.iter().position(|g| g.token == token).ok_or(Refusal::NotHeld)?;
        let grant = &self.grants[place];
        if grant.wait.session != header.session || !grant.names.contains(resource) {
            return Err(Refusal::NotHeld);
        }
        Ok(place)
    }
}
