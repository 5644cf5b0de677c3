//! Requests with an id: sent until they are settled, on any node. Section 5 of the
//! contract.

use std::rc::Rc;

use ringfence::locks::{
    ANSWERED_MAX, Claim, Command, Done, GrantRow, Header, LockTable, Millis, Outcome, Refusal,
    RequestId, ResourceName, Token, Value, Wait,
};

use super::{Client, Session, patience};
use crate::faults::ShellRule;
use crate::network::{Ask, Tag};
use crate::time::{MS, Micros, counted};
use crate::world::World;

/// A request whose answer is awaited.
pub struct Call {
    pub kind: CallKind,
    pub first_sent: Micros,
    pub sent_again_at: Micros,
    /// The application has given up on it; a cancel is under way.
    pub abandoned: bool,
}

#[derive(Clone, Debug)]
pub enum CallKind {
    Acquire {
        claim: Claim,
        wait: Wait,
    },
    Confirm {
        grant: Rc<GrantRow>,
    },
    SetValue {
        grant: Rc<GrantRow>,
        value: Value,
    },
    Release {
        grant: Rc<GrantRow>,
    },
    /// Of what the client does not hold: it changes nothing.
    Stale {
        what: Stale,
        name: ResourceName,
        token: Token,
    },
    Cancel {
        target: RequestId,
    },
    SetTtl(Millis),
}

/// What one may try with a token that is not its own.
#[derive(Clone, Copy, Debug)]
pub enum Stale {
    Release,
    Confirm,
    SetValue,
}

impl Session {
    /// The idempotency key, and what the authority need not keep any longer.
    fn header(&mut self, owner: ringfence::locks::OwnerId, id: RequestId) -> Header {
        let oldest = self.calls.keys().next().copied().unwrap_or(id);
        self.answered = self.answered.split_off(&oldest);
        let answered = self.answered.iter().copied().take(ANSWERED_MAX).collect();
        Header { owner, session: self.id, id, oldest_outstanding: oldest, answered }
    }
}

impl Client {
    /// Begins a request under a new id.
    pub(super) fn begin(&mut self, world: &mut World, kind: CallKind) {
        let Some(session) = &mut self.session else { return };
        let id = session.next_id;
        session.next_id = id.next();
        let sent_again_at = world.now + patience(world);
        let (first_sent, abandoned) = (world.now, false);
        session.calls.insert(id, Call { kind, first_sent, sent_again_at, abandoned });
        self.send_call(world, id);
    }

    /// Asks again for what has no answer, perhaps elsewhere.
    pub(super) fn repeat_calls(&mut self, world: &mut World) {
        let Some(session) = &mut self.session else { return };
        let due = session.calls.iter().filter(|(_, call)| call.sent_again_at <= world.now);
        let due: Vec<_> = due.map(|(id, _)| *id).collect();
        for id in due {
            let again = world.now + patience(world);
            if let Some(call) = self.session.as_mut().and_then(|s| s.calls.get_mut(&id)) {
                call.sent_again_at = again;
            }
            if world.rng.permille(300) {
                self.target = world.rng.index(world.profile.nodes);
            }
            self.send_call(world, id);
        }
    }

    fn send_call(&mut self, world: &mut World, id: RequestId) {
        let owner = self.owner;
        let Some(session) = &mut self.session else { return };
        let header = session.header(owner, id);
        let call = &session.calls[&id];
        let (tag, first_sent) = (Tag::Op(session.id, id), call.first_sent);
        let command = command_of(call.kind.clone(), header);
        self.send(world, tag, Ask::Command(command), first_sent);
    }

    /// Asks for another ttl; from before the first sending it counts the lower one.
    pub(super) fn ask_ttl(&mut self, world: &mut World, ttl: Millis) {
        let Some(session) = &mut self.session else { return };
        session.asked_ttl = Some(ttl);
        if world.setup.holds(ShellRule::CountsLowerTtl) {
            let deadline = self.clock.at(world.now) + counted(ttl);
            session.deadline = session.deadline.min(deadline);
            world.properties.early.asks_ttl(self.id, session.id, ttl, world.now);
        }
        self.begin(world, CallKind::SetTtl(ttl));
    }

    /// An answer to a request of the present session. Late ones are not awaited.
    pub(super) fn answered(
        &mut self,
        world: &mut World,
        id: RequestId,
        outcome: &Outcome,
        granted: Option<Rc<GrantRow>>,
        first_sent: Micros,
    ) {
        let Some(session) = &mut self.session else { return };
        let Some(call) = session.calls.get(&id) else { return };
        match outcome {
            Ok(Done::Queued { .. }) | Err(Refusal::WindowFull) => return,
            Err(Refusal::StaleRequest) if !matches!(call.kind, CallKind::Cancel { .. }) => {
                let what = format!("c{} awaits {id} and is told STALE_REQUEST", self.id);
                world.check("I6", Err(what));
            }
            Err(Refusal::RequestChanged) => {
                world.check("I6", Err(format!("c{} sent {id} with other contents?", self.id)));
            }
            Ok(_) | Err(_) => {}
        }
        let call = session.finish(id).expect("it was found");
        match call.kind {
            CallKind::Acquire { .. } => {
                let granted = granted.filter(|_| matches!(outcome, Ok(Done::Granted { .. })));
                self.acquired(world, granted, call.abandoned);
            }
            CallKind::Confirm { grant } => self.confirmed(world, &grant, outcome),
            CallKind::SetValue { grant, .. } => {
                if matches!(outcome, Err(Refusal::NotHeld)) {
                    self.not_held_any_more(world, grant.token);
                }
            }
            CallKind::Release { grant } => match outcome {
                Ok(Done::Released { .. }) => {}
                Err(Refusal::NotHeld) => self.taken(world, grant.token),
                Ok(_) | Err(_) => {
                    let (id, token) = (self.id, grant.token);
                    let what = format!("c{id} held {token} and its release: {outcome:?}");
                    world.check("I7", Err(what));
                }
            },
            CallKind::Stale { what, token, .. } => {
                if outcome.is_ok() {
                    let what =
                        format!("c{} {what:?} of {token}, not its own: {outcome:?}", self.id);
                    world.check("I5", Err(what));
                }
            }
            CallKind::Cancel { target } => self.cancelled(world, target, granted),
            CallKind::SetTtl(ttl) => self.ttl_set(world, ttl, outcome, first_sent),
        }
    }

    fn acquired(&mut self, world: &mut World, granted: Option<Rc<GrantRow>>, abandoned: bool) {
        let Some(grant) = granted else { return };
        if abandoned {
            self.begin(world, CallKind::Release { grant });
        } else {
            self.hold(world, &grant);
        }
    }

    /// The answer to a cancel settles its target; what that was granted is released.
    fn cancelled(&mut self, world: &mut World, target: RequestId, granted: Option<Rc<GrantRow>>) {
        let Some(session) = &mut self.session else { return };
        if session.finish(target).is_none() {
            return;
        }
        if let Some(grant) = granted {
            self.begin(world, CallKind::Release { grant });
        }
    }

    /// Of a call that was under way when the grant was given back or taken.
    fn not_held_any_more(&mut self, world: &mut World, token: Token) {
        if self.session.as_ref().is_some_and(|session| session.held.contains_key(&token)) {
            self.taken(world, token);
        }
    }

    fn ttl_set(&mut self, world: &mut World, ttl: Millis, outcome: &Outcome, first_sent: Micros) {
        let Some(session) = &mut self.session else { return };
        session.asked_ttl = None;
        if outcome.is_ok() {
            session.ttl = ttl;
            let early = &mut world.properties.early;
            let verdict = early.ttl_settled(self.id, session.id, first_sent, ttl);
            world.check("I2", verdict);
            let deadline = self.clock.at(first_sent) + counted(ttl);
            session.deadline = session.deadline.max(deadline);
            session.renew_at = session.renew_at.min(first_sent + ttl.0 * MS / 3);
        }
    }

    /// At the end: every grant of its session is one it knows of.
    pub fn knows_its_grants(&self, table: &LockTable) -> Result<(), String> {
        let Some(session) = self.session.as_ref().filter(|_| self.dead_at == Micros::MAX) else {
            return Ok(());
        };
        let Some(view) = table.owned_session(self.owner, session.id) else { return Ok(()) };
        for grant in view.grants() {
            let releasing = |call: &Call| matches!(&call.kind, CallKind::Release { grant: other } if other.token == grant.token);
            let known = session.held.contains_key(&grant.token)
                || session.calls.contains_key(&grant.wait.request)
                || session.calls.values().any(releasing);
            if !known {
                return Err(format!("c{} does not know of its token {}", self.id, grant.token));
            }
        }
        Ok(())
    }
}

impl Session {
    /// The answer is there.
    fn finish(&mut self, id: RequestId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.answered.insert(id);
        Some(call)
    }
}

fn command_of(kind: CallKind, header: Header) -> Command {
    match kind {
        CallKind::Acquire { claim, wait } => Command::Acquire { header, claim, wait },
        CallKind::Confirm { grant } => {
            let (resource, token) = named(&grant);
            Command::Confirm { header, resource, token }
        }
        CallKind::SetValue { grant, value } => {
            let (resource, token) = named(&grant);
            Command::SetValue { header, resource, token, value }
        }
        CallKind::Release { grant } => {
            let (resource, token) = named(&grant);
            Command::Release { header, resource, token }
        }
        CallKind::Stale { what, name: resource, token } => match what {
            Stale::Release => Command::Release { header, resource, token },
            Stale::Confirm => Command::Confirm { header, resource, token },
            Stale::SetValue => {
                Command::SetValue { header, resource, token, value: Value::default() }
            }
        },
        CallKind::Cancel { target } => Command::Cancel { header, target },
        CallKind::SetTtl(ttl) => Command::SetTtl { header, ttl },
    }
}

/// A set is named by any of its names.
fn named(grant: &GrantRow) -> (ResourceName, Token) {
    let one = grant.token.get() as usize % grant.names.len();
    (grant.names[one].clone(), grant.token)
}
