//! What a client does with its session: takes and gives back, waits and gives up,
//! writes, and now and then does what it should not.

use std::rc::Rc;

use ringfence::locks::{
    Claim, GrantRow, Handoff, Millis, Mode, ResourceName, SessionId, Terms, Token, Value, Wait,
};

use super::calls::{CallKind, Stale};
use super::handoff::{Held, State, fences};
use super::{Client, TTLS};
use crate::counts::Count;
use crate::destination::DESTINATIONS;
use crate::faults::Mix;
use crate::network::{Ask, Tag};
use crate::properties::books::resource;
use crate::time::{MS, Micros};
use crate::world::{Event, World, Write};

impl Client {
    pub(super) fn work(&mut self, world: &mut World) {
        if self.rude {
            self.write_under_lost_tokens(world);
        }
        if self.session.is_none() {
            return;
        }
        self.write(world);
        match world.rng.below(1000) {
            0..220 => self.acquire(world),
            220..300 => self.release(world),
            300..350 => self.give_up(world),
            350..362 => self.change_ttl(world),
            362..376 => self.touch_what_is_not_its_own(world),
            376..380 => self.renew_what_is_not_its_own(world),
            380..384 => self.restart(world),
            384..387 => self.close(world),
            387..405 => self.set_value(world),
            405..425 => self.check_token(world),
            _ => {}
        }
    }

    fn acquire(&mut self, world: &mut World) {
        let claim = claim(world);
        let Some(session) = &self.session else { return };
        let overlaps = |name| claim.names.contains(name);
        let asked = session.calls.values().any(|call| {
            matches!(&call.kind, CallKind::Acquire { claim, .. } if claim.names.iter().any(overlaps))
        });
        // Now and then it asks for what it has: ALREADY_HELD, ALREADY_WAITING.
        let has = claim.names.iter().any(|name| session.holds(name));
        if (asked || has) && !world.rng.permille(20) {
            return;
        }
        let wait = match world.rng.below(4) {
            0 => Wait::Try,
            _ => Wait::UpTo(Millis(world.rng.range(200, 3000))),
        };
        self.begin(world, CallKind::Acquire { claim, wait });
    }

    fn release(&mut self, world: &mut World) {
        let Some(session) = &self.session else { return };
        // One that hangs before it has confirmed gives nothing back.
        let hangs = |held: &Held| matches!(held.state, State::Idle);
        let first = session.held.iter().find(|(_, held)| !hangs(held)).map(|(token, _)| *token);
        if let Some(token) = first {
            self.give_back(world, token);
        }
    }

    fn set_value(&mut self, world: &mut World) {
        let Some(session) = &self.session else { return };
        let Some(held) = session.held.values().next_back() else { return };
        let grant = Rc::clone(&held.grant);
        let value = value(world);
        self.begin(world, CallKind::SetValue { grant, value });
    }

    /// Whether a token is current: its own, one that it has lost, or somebody else's.
    fn check_token(&mut self, world: &mut World) {
        let Some(session) = &self.session else { return };
        let own = session.held.values().next_back().map(|held| &held.grant);
        let own = own.or(self.lost.last()).map(|grant| (grant.names[0].clone(), grant.token));
        let others = token_of_others(world);
        let Some((resource, token)) = (if world.rng.permille(500) { own } else { others }) else {
            return;
        };
        self.checks += 1;
        let ask = Ask::CheckToken { resource, token };
        self.send(world, Tag::Check(self.checks), ask, world.now);
    }

    /// The application drops a call: the acquire is cancelled, and stays outstanding
    /// until the cancel is answered.
    fn give_up(&mut self, world: &mut World) {
        let Some(session) = &mut self.session else { return };
        let pending = session
            .calls
            .iter_mut()
            .find(|(_, call)| matches!(call.kind, CallKind::Acquire { .. }) && !call.abandoned);
        if let Some((id, call)) = pending {
            call.abandoned = true;
            let target = *id;
            self.begin(world, CallKind::Cancel { target });
        }
    }

    fn change_ttl(&mut self, world: &mut World) {
        let ttl = *world.rng.pick(&TTLS);
        let Some(session) = &self.session else { return };
        if session.asked_ttl.is_none() && session.ttl != ttl {
            if ttl < session.ttl {
                world.counts.add(Count::TtlLowered);
            }
            self.ask_ttl(world, ttl);
        }
    }

    /// A token of its own that it gave back, or of somebody else.
    fn touch_what_is_not_its_own(&mut self, world: &mut World) {
        let old = self.lost.last().map(|grant| (grant.names[0].clone(), grant.token));
        let others = token_of_others(world);
        let Some((name, token)) = (if world.rng.permille(500) { old } else { others }) else {
            return;
        };
        let Some(session) = &self.session else { return };
        let of_calls = session.calls.values().any(|call| match &call.kind {
            CallKind::Release { grant }
            | CallKind::Confirm { grant }
            | CallKind::SetValue { grant, .. } => grant.token == token,
            CallKind::Acquire { .. } | CallKind::Cancel { .. } => true,
            CallKind::Stale { .. } | CallKind::SetTtl(_) => false,
        });
        if !session.held.contains_key(&token) && !of_calls {
            let what = *world.rng.pick(&[Stale::Release, Stale::Confirm, Stale::SetValue]);
            self.begin(world, CallKind::Stale { what, name, token });
        }
    }

    /// With its own credential it names a session of somebody else.
    fn renew_what_is_not_its_own(&mut self, world: &mut World) {
        let Some(mine) = self.session.as_ref().map(|session| session.id) else { return };
        let others = world.log.table.sessions_after(SessionId(0));
        let Some(session) = others.map(|view| view.row.session).find(|id| *id != mine) else {
            return;
        };
        world.counts.add(Count::Forged);
        let ask = Ask::Renew { owner: self.owner, session };
        let tag = Tag::Renew(session, 0);
        self.send(world, tag, ask, world.now);
    }

    fn close(&mut self, world: &mut World) {
        let Some(session) = &self.session else { return };
        let (id, now) = (session.id, world.now);
        self.send_attempt(world, Tag::Close(id), now);
    }

    /// Checks that it holds, and writes: at once, or after a pause of whatever
    /// length. That is why tokens are checked at the destination.
    fn write(&mut self, world: &mut World) {
        if !self.is_held(world.now) || !world.rng.permille(350) {
            return;
        }
        let Some(session) = &self.session else { return };
        let active = |held: &&Held| matches!(held.state, State::Active);
        let active: Vec<_> = session.held.values().filter(active).collect();
        if !active.is_empty() {
            let grant = &world.rng.pick(&active).grant;
            send_write(world, self.id, grant);
        }
    }

    fn write_under_lost_tokens(&mut self, world: &mut World) {
        if self.lost.is_empty() || !world.rng.permille(60) {
            return;
        }
        let last = &self.lost[self.lost.len().saturating_sub(4)..];
        let grant = Rc::clone(world.rng.pick(last));
        send_write(world, self.id, &grant);
    }
}

fn send_write(world: &mut World, client: usize, grant: &GrantRow) {
    let paused = world.rng.permille(60);
    let delay: Micros = if paused { world.rng.range(20, 2500) * MS } else { world.delay() };
    let destination = world.rng.index(DESTINATIONS);
    let one = world.rng.index(grant.names.len());
    let mut fence = fences(grant).nth(one).expect("one for each name");
    if world.rng.permille(4) {
        // No authority makes one like it.
        fence.floor = Token::new(fence.token.get() + 1).expect("tokens of a run are small");
    }
    world.after(delay, Event::Write(Write { client, destination, fence, checked: false }));
}

/// What is asked for, and on which terms.
fn claim(world: &mut World) -> Claim {
    let Mix { shared, slots, sets } = world.profile.mix;
    let resources = world.profile.resources;
    let at = world.rng.index(resources);
    let drawn = world.rng.below(100);
    let mut names = vec![resource(at)];
    let mut mode = Mode::Exclusive;
    if drawn < shared {
        mode = Mode::Shared;
    } else if drawn < shared + slots {
        // All name the same number, as a rule.
        let wrong = u32::from(world.rng.permille(40));
        mode = Mode::Slots { of: world.profile.slots[at] + wrong };
    } else if drawn < shared + slots + sets {
        let more = world.rng.range(1, resources as u64 - 1) as usize;
        names.extend((1..=more).map(|next| resource((at + next) % resources)));
    }
    let lock_delay = match world.rng.below(4) {
        0 => Millis(world.rng.range(50, 600)),
        _ => Millis(0),
    };
    let handoff = match world.rng.below(4) {
        0 => Handoff::Strict { barrier: Millis(world.rng.range(100, 900)) },
        _ => Handoff::Plain,
    };
    let value = if world.rng.permille(300) { value(world) } else { Value::default() };
    Claim::new(names, mode, Terms { lock_delay, handoff, value })
        .expect("as the contract bounds it")
}

fn value(world: &mut World) -> Value {
    Value::new(&[world.rng.below(256) as u8]).expect("one byte")
}

/// Of whoever holds some resource.
fn token_of_others(world: &mut World) -> Option<(ResourceName, Token)> {
    let at = world.rng.index(world.profile.resources);
    let holders = &world.properties.books.places[at].holders;
    holders.first().map(|token| (resource(at), *token))
}
