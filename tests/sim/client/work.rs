//! What a client does with its session: takes and gives back, waits and gives up,
//! writes, and now and then does what it should not.

use ringfence::locks::{ClusterId, Fence, Millis, ResourceName, SessionId, Token, Wait};

use super::calls::CallKind;
use super::{Client, TTLS};
use crate::counts::Count;
use crate::network::{Ask, Tag};
use crate::time::{MS, Micros};
use crate::world::{Event, World};

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
            362..372 => self.release_what_is_not_its_own(world),
            372..376 => self.renew_what_is_not_its_own(world),
            376..380 => self.restart(world),
            380..383 => self.close(world),
            _ => {}
        }
    }

    fn acquire(&mut self, world: &mut World) {
        let name = resource(world);
        let Some(session) = &self.session else { return };
        let asked = session.calls.values().any(|call| match &call.kind {
            CallKind::Acquire { name: other, .. } => *other == name,
            CallKind::Release { .. }
            | CallKind::StaleRelease { .. }
            | CallKind::Cancel { .. }
            | CallKind::SetTtl(_) => false,
        });
        // Now and then it asks for what it has: ALREADY_HELD, ALREADY_WAITING.
        if (asked || session.held.contains_key(&name)) && !world.rng.permille(20) {
            return;
        }
        let wait = match world.rng.below(4) {
            0 => Wait::Try,
            _ => Wait::UpTo(Millis(world.rng.range(200, 3000))),
        };
        self.begin(world, CallKind::Acquire { name, wait });
    }

    fn release(&mut self, world: &mut World) {
        let Some(session) = &mut self.session else { return };
        if let Some((name, token)) = session.held.pop_first() {
            self.lost.push((name.clone(), token));
            self.begin(world, CallKind::Release { name, token });
        }
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
    fn release_what_is_not_its_own(&mut self, world: &mut World) {
        let name = resource(world);
        let Some(session) = &self.session else { return };
        let mine: Vec<_> = session.held.values().collect();
        let old = self.lost.last().map(|(_, token)| *token);
        let others = world.log.table.resource(&name);
        let others = others.and_then(|view| view.holders().next().map(|grant| grant.token));
        let token = if world.rng.permille(500) { old } else { others };
        let of_calls = |token: &Token| {
            session.calls.values().any(|call| match &call.kind {
                CallKind::Release { token: other, .. } => other == token,
                CallKind::Acquire { .. } | CallKind::Cancel { .. } => true,
                CallKind::StaleRelease { .. } | CallKind::SetTtl(_) => false,
            })
        };
        if let Some(token) = token.filter(|token| !mine.contains(&token) && !of_calls(token)) {
            self.begin(world, CallKind::StaleRelease { name, token });
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
        if let Some((name, token)) = session.held.iter().next_back() {
            send_write(world, self.id, session.id, name, *token);
        }
    }

    fn write_under_lost_tokens(&mut self, world: &mut World) {
        if world.rng.permille(60)
            && let Some((name, token)) = self.lost.last().cloned()
        {
            send_write(world, self.id, SessionId(0), &name, token);
        }
    }
}

fn send_write(
    world: &mut World,
    client: usize,
    session: SessionId,
    name: &ResourceName,
    token: Token,
) {
    let paused = world.rng.permille(60);
    let delay: Micros = if paused { world.rng.range(20, 2500) * MS } else { world.delay() };
    let (cluster, resource) = (ClusterId::new([7; 16]), name.clone());
    let fence = Fence { cluster, resource, slot: None, token, floor: token };
    world.after(delay, Event::Write { client, session: session.0, fence });
}

fn resource(world: &mut World) -> ResourceName {
    let n = world.rng.index(world.profile.resources);
    ResourceName::new(["job/1", "job/2", "job/3"][n]).expect("short and plain")
}
