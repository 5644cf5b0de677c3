//! What a client holds: from the grant, by way of raising its fence at every destination
//! it names and of confirming, to being told that it is gone. Section 7 of the contract,
//! the client's side.

use std::rc::Rc;

use ringfence::locks::{
    ClusterId, Fence, GrantRow, Outcome, Phase, Refusal, ResourceName, Revision, Token,
};

use super::calls::CallKind;
use super::{Client, Session};
use crate::counts::Count;
use crate::destination::DESTINATIONS;
use crate::faults::ShellRule;
use crate::network::Read;
use crate::properties::StaleChangesNothing;
use crate::world::{Event, World};

/// A grant that its owner knows of.
pub struct Held {
    pub grant: Rc<GrantRow>,
    pub state: State,
}

pub enum State {
    /// It may write.
    Active,
    /// Not confirmed, and nothing is done about it.
    Idle,
    /// Raising at these destinations; so many answers are awaited.
    Raising {
        named: u8,
        left: usize,
    },
    Confirming {
        named: u8,
    },
}

impl Client {
    /// A grant that somebody waits for has arrived.
    pub(super) fn hold(&mut self, world: &mut World, grant: &Rc<GrantRow>) {
        let Some(session) = &mut self.session else { return };
        let token = grant.token;
        if grant.granted_at <= session.changed_at {
            // A late answer: it may be gone by what was read since. Read again.
            session.changed_at = Revision::default();
        }
        let state = match grant.phase {
            Phase::Active => State::Active,
            Phase::Barrier { .. } if world.rng.permille(150) => State::Idle,
            Phase::Barrier { .. } => {
                let named = world.rng.range(1, (1 << DESTINATIONS) - 1) as u8;
                let left = named.count_ones() as usize * grant.names.len();
                State::Raising { named, left }
            }
        };
        let raising = if let State::Raising { named, .. } = state { named } else { 0 };
        session.held.insert(token, Held { grant: Rc::clone(grant), state });
        if raising == 0 {
            return;
        }
        if !world.setup.holds(ShellRule::RaisesBeforeConfirm) {
            self.confirm(world, token, raising);
            return;
        }
        for destination in (0..DESTINATIONS).filter(|at| raising >> at & 1 == 1) {
            for fence in fences(grant) {
                let (client, delay) = (self.id, world.delay());
                if !world.rng.permille(world.profile.lost) {
                    world.after(delay, Event::Raise { client, destination, fence });
                }
            }
        }
    }

    /// A destination has answered a raise: when the last one has, the grant is confirmed;
    /// when one refuses, it is given back.
    pub fn raised(&mut self, world: &mut World, fence: &Fence, accepted: bool) {
        let Some(held) = self.session.as_mut().and_then(|s| s.held.get_mut(&fence.token)) else {
            return;
        };
        let State::Raising { named, left } = &mut held.state else { return };
        if !accepted {
            self.give_back(world, fence.token);
            return;
        }
        *left -= 1;
        if *left == 0 {
            let named = *named;
            self.confirm(world, fence.token, named);
        }
    }

    fn confirm(&mut self, world: &mut World, token: Token, named: u8) {
        let Some(held) = self.session.as_mut().and_then(|s| s.held.get_mut(&token)) else { return };
        held.state = State::Confirming { named };
        let grant = Rc::clone(&held.grant);
        self.begin(world, CallKind::Confirm { grant });
    }

    /// The strict acquire returns, or fails.
    pub(super) fn confirmed(&mut self, world: &mut World, grant: &Rc<GrantRow>, told: &Outcome) {
        let token = grant.token;
        let Some(session) = &mut self.session else { return };
        let Some(held) = session.held.get_mut(&token) else { return };
        let State::Confirming { named } = held.state else { return };
        match told {
            Ok(_) => {
                held.state = State::Active;
                world.counts.add(Count::HandedOver);
                let fences: Vec<_> = fences(grant).collect();
                let World { properties, destinations, .. } = world;
                let verdict = properties.handed_over(destinations, grant, &fences, named);
                world.check("I9", verdict);
            }
            Err(Refusal::NotHeld) => {
                self.taken(world, token);
            }
            Err(_) => {}
        }
    }

    /// It is told that it does not hold what it did not give back.
    pub(super) fn taken(&mut self, world: &mut World, token: Token) {
        let verdict = StaleChangesNothing::not_held(&world.properties.books, token);
        world.check("I5", verdict);
        if let Some(held) = self.session.as_mut().and_then(|s| s.held.remove(&token)) {
            self.lost.push(held.grant);
        }
    }

    /// Gives a grant back.
    pub(super) fn give_back(&mut self, world: &mut World, token: Token) {
        let Some(held) = self.session.as_mut().and_then(|s| s.held.remove(&token)) else { return };
        self.lost.push(Rc::clone(&held.grant));
        self.begin(world, CallKind::Release { grant: held.grant });
    }

    /// A renewal's answer says whether anything has changed; if so, the client reads its
    /// grants: what is gone is lost, what it is asked for it may give back.
    pub(super) fn read(&mut self, world: &mut World, read: &Read) {
        let Some(session) = &mut self.session else { return };
        let listed = |token: &Token| read.grants.iter().find(|(other, _)| other == token);
        let known = |held: &&Held| held.grant.granted_at.index <= read.at;
        let gone = session.held.values().filter(known).map(|held| held.grant.token);
        let gone: Vec<_> = gone.filter(|token| listed(token).is_none()).collect();
        if read.changed_at <= session.changed_at {
            let told = match gone.first() {
                Some(token) if read.changed_at == session.changed_at => {
                    Err(format!("c{} is not told that {token} is gone", self.id))
                }
                Some(_) | None => Ok(()),
            };
            world.check("I5", told);
            return;
        }
        session.changed_at = read.changed_at;
        let asked = |token: &Token| listed(token).is_some_and(|(_, asked)| *asked);
        let asked: Vec<_> = session.held.keys().copied().filter(asked).collect();
        for token in gone {
            world.counts.add(Count::TakenNoticed);
            self.taken(world, token);
        }
        for token in asked {
            if world.rng.permille(500) {
                world.counts.add(Count::AskedReleased);
                self.give_back(world, token);
            }
        }
    }
}

impl Session {
    /// Whether it holds the resource, as far as it knows.
    pub(super) fn holds(&self, name: &ResourceName) -> bool {
        self.held.values().any(|held| held.grant.names.contains(name))
    }
}

/// One fence for each name.
pub fn fences(grant: &GrantRow) -> impl Iterator<Item = Fence> {
    grant.names.iter().map(|resource| Fence {
        cluster: ClusterId::new([7; 16]),
        resource: resource.clone(),
        slot: grant.slot,
        token: grant.token,
        floor: grant.floor,
    })
}
