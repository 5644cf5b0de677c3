//! A client process: its session by its own clock, and what it holds. Section 3 and 5
//! of the contract, the client's side.

mod calls;
mod handoff;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ringfence::leases::Moment;
use ringfence::locks::{
    Command, Done, GrantRow, Labels, Millis, OwnerId, Refusal, RequestId, Revision, SessionId,
    Token,
};

use crate::counts::Count;
use crate::faults::{QUIET, ShellRule};
use crate::network::{Answer, Ask, Reply, Request, Tag};
use crate::tell;
use crate::time::{Clock, MS, Micros, counted};
use crate::world::{Event, World};

use calls::Call;
use handoff::Held;

/// How long a client waits for an answer before it asks again, perhaps elsewhere.
const PATIENCE: (u64, u64) = (120, 300);

pub struct Client {
    pub id: usize,
    pub paused_until: Micros,
    clock: Clock,
    owner: OwnerId,
    owners: u64,
    session: Option<Session>,
    /// The last session that it was told has ended: no late answer brings it back.
    ended: SessionId,
    attempt: Option<Attempt>,
    attempts: u64,
    checks: u64,
    /// Attempts from here on are of the present process.
    attempts_from: u64,
    /// Where it asks first.
    target: usize,
    dead_at: Micros,
    /// Writes under tokens that it has lost, too.
    rude: bool,
    lost: Vec<Rc<GrantRow>>,
}

/// A session as its owner sees it.
struct Session {
    id: SessionId,
    /// As last settled.
    ttl: Millis,
    asked_ttl: Option<Millis>,
    /// By the client's own clock. Past it, the client is suspended.
    deadline: Moment,
    suspended: bool,
    renew_at: Micros,
    next_id: RequestId,
    calls: BTreeMap<RequestId, Call>,
    /// Above the oldest outstanding one.
    answered: BTreeSet<RequestId>,
    held: BTreeMap<Token, Held>,
    /// As last read.
    changed_at: Revision,
}

/// An open or a renewal under way. Sent again it is the same one: it counts from
/// before the first sending.
struct Attempt {
    tag: Tag,
    first_sent: Micros,
    sent_again_at: Micros,
    given_up_at: Micros,
}

impl Client {
    pub fn new(id: usize, world: &mut World) -> Self {
        let origin = world.rng.below(1 << 50);
        let clock = Clock::new(origin, world.rng.range(Clock::SPEED.0, Clock::SPEED.1));
        world.properties.early.clocks.push(clock);
        let dead_at = world.rng.range(1500, QUIET / MS + 1500) * MS;
        let lives_on = world.rng.permille(400) && !world.profile.all_stop;
        let dead_at = if world.profile.all_stop { dead_at.min(QUIET) } else { dead_at };
        Self {
            id,
            paused_until: 0,
            clock,
            owner: owner_id(id, 0),
            owners: 0,
            session: None,
            ended: SessionId(0),
            attempt: None,
            attempts: 0,
            checks: 0,
            attempts_from: 0,
            target: 0,
            dead_at: if lives_on { Micros::MAX } else { dead_at },
            rude: world.rng.permille(300),
            lost: Vec::new(),
        }
    }

    /// The session of a client that lives.
    pub fn live_session(&self) -> Option<SessionId> {
        self.session.as_ref().filter(|_| self.dead_at == Micros::MAX).map(|session| session.id)
    }

    pub fn wake(&mut self, world: &mut World) {
        if world.now >= self.dead_at {
            if self.session.take().is_some() {
                tell!(world, "c{} dies", self.id);
                world.counts.add(Count::ClientsDead);
            }
            return;
        }
        let next = world.rng.range(15, 55) * MS;
        world.after(next, Event::Wake { client: self.id });
        self.notice_suspension(world);
        self.keep_alive(world);
        self.repeat_calls(world);
        self.work(world);
    }

    fn notice_suspension(&mut self, world: &mut World) {
        let now = self.clock.at(world.now);
        if let Some(session) = &mut self.session {
            let suspended = now >= session.deadline;
            if suspended && !session.suspended {
                tell!(world, "c{} is suspended", self.id);
                world.counts.add(Count::Suspended);
            }
            session.suspended = suspended;
        }
    }

    /// Whether it may act, by its own clock.
    fn is_held(&self, now: Micros) -> bool {
        self.session.as_ref().is_some_and(|session| self.clock.at(now) < session.deadline)
    }

    /// Opens, renews, and asks again when no answer comes.
    fn keep_alive(&mut self, world: &mut World) {
        if let Some(attempt) = &mut self.attempt {
            if world.now >= attempt.given_up_at {
                self.attempt = None;
            } else if world.now >= attempt.sent_again_at {
                attempt.sent_again_at = world.now + patience(world);
                let (tag, first_sent) = (attempt.tag, attempt.first_sent);
                self.target = world.rng.index(world.profile.nodes);
                self.send_attempt(world, tag, first_sent);
                return;
            } else {
                return;
            }
        }
        self.attempts += 1;
        let tag = match &self.session {
            None => Tag::Open(self.attempts),
            Some(session) if world.now < session.renew_at => return,
            // As one that does not know whether its open has arrived.
            Some(_) if world.rng.permille(60) => Tag::Open(self.attempts),
            Some(session) => Tag::Renew(session.id, self.attempts),
        };
        let (now, again) = (world.now, patience(world));
        let given_up_at = now + world.rng.range(200, 1500) * MS;
        let sent_again_at = now + again;
        self.attempt = Some(Attempt { tag, first_sent: now, sent_again_at, given_up_at });
        self.send_attempt(world, tag, now);
    }

    fn send_attempt(&mut self, world: &mut World, tag: Tag, first_sent: Micros) {
        let owner = self.owner;
        let ask = match tag {
            Tag::Open(_) => {
                let ttl = *world.rng.pick(&TTLS);
                Ask::Command(Command::OpenSession { owner, ttl, labels: Labels::new() })
            }
            Tag::Renew(session, _) => Ask::Renew { owner, session },
            Tag::Close(session) => Ask::Command(Command::CloseSession { owner, session }),
            Tag::Op(..) | Tag::Check(_) | Tag::Administer(_) => return,
        };
        self.send(world, tag, ask, first_sent);
    }

    fn send(&self, world: &mut World, tag: Tag, ask: Ask, first_sent: Micros) {
        tell!(world, "c{} asks n{}: {tag:?}", self.id, self.target);
        let request = Request { client: self.id, tag, ask, first_sent, forwarded: false };
        world.ask(self.target, &Rc::new(request));
    }

    pub fn reply(&mut self, world: &mut World, reply: Reply) {
        if world.now >= self.dead_at {
            return;
        }
        match &reply.answer {
            Answer::NotLeader(hint) => {
                let other = (reply.from + 1) % world.profile.nodes;
                self.target = hint.filter(|hint| *hint != reply.from).unwrap_or(other);
                self.ask_again_soon(world, reply.tag);
                return;
            }
            Answer::Unknown => {
                self.ask_again_soon(world, reply.tag);
                return;
            }
            Answer::Renewed(..) | Answer::Granted(_) | Answer::Current(_) | Answer::Outcome(_) => {
                self.target = reply.from;
            }
        }
        match (reply.tag, reply.answer) {
            (Tag::Open(n), _) if n <= self.attempts_from => {}
            (Tag::Open(_), Answer::Outcome(Ok(Done::Opened { session, ttl, .. }))) => {
                self.opened(world, session, ttl, reply.first_sent);
            }
            (Tag::Renew(id, _), Answer::Renewed(ttl, read)) => {
                if self.session.as_ref().is_some_and(|session| session.id == id) {
                    self.renewed(world, ttl, reply.first_sent);
                    self.read(world, &read);
                }
            }
            (
                Tag::Renew(id, _) | Tag::Op(id, _) | Tag::Close(id),
                Answer::Outcome(Err(Refusal::SessionExpired | Refusal::SessionUnknown)),
            ) => self.session_lost(world, id),
            (Tag::Close(id), Answer::Outcome(Ok(_))) => self.session_lost(world, id),
            (Tag::Op(id, request), Answer::Outcome(outcome)) => {
                if self.session.as_ref().is_some_and(|session| session.id == id) {
                    self.answered(world, request, &outcome, None, reply.first_sent);
                }
            }
            (Tag::Op(id, request), Answer::Granted(grant)) => {
                if self.session.as_ref().is_some_and(|session| session.id == id) {
                    let outcome = Ok(Done::Granted { token: grant.token });
                    self.answered(world, request, &outcome, Some(grant), reply.first_sent);
                }
            }
            (Tag::Open(_), _) => self.ask_again_soon(world, reply.tag),
            (
                Tag::Renew(..) | Tag::Op(..) | Tag::Close(_) | Tag::Check(_) | Tag::Administer(_),
                _,
            ) => {}
        }
    }

    fn ask_again_soon(&mut self, world: &mut World, tag: Tag) {
        let soon = world.now + world.rng.range(5, 40) * MS;
        if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.tag == tag) {
            attempt.sent_again_at = attempt.sent_again_at.min(soon);
        }
        if let (Tag::Op(id, request), Some(session)) = (tag, &mut self.session)
            && session.id == id
            && let Some(call) = session.calls.get_mut(&request)
        {
            call.sent_again_at = call.sent_again_at.min(soon);
        }
    }

    fn opened(&mut self, world: &mut World, id: SessionId, ttl: Millis, first_sent: Micros) {
        if self.session.as_ref().is_some_and(|session| session.id < id) {
            // The authority has opened a later one: the other has ended.
            self.ended = self.session.as_ref().map_or(self.ended, |session| session.id);
            self.drop_session();
        }
        match &self.session {
            Some(session) if session.id > id => return,
            Some(_) => {}
            None if id <= self.ended => return,
            None => self.session = Some(Session::new(id, ttl, self.clock.at(0))),
        }
        tell!(world, "c{} has {id}", self.id);
        self.renewed(world, ttl, first_sent);
    }

    /// A renewal was acknowledged: the deadline counts from before its first sending.
    fn renewed(&mut self, world: &mut World, told: Millis, first_sent: Micros) {
        let from = if world.setup.holds(ShellRule::CountsFromFirstSending) {
            first_sent
        } else {
            world.now
        };
        let Some(session) = &mut self.session else { return };
        // A late answer may name a ttl that is no longer in force.
        let ttl = told.min(session.ttl).min(session.asked_ttl.unwrap_or(told));
        let deadline = self.clock.at(from) + counted(ttl);
        session.deadline = session.deadline.max(deadline);
        session.renew_at = first_sent + ttl.0 * MS / 3;
        self.attempt = None;
    }

    fn session_lost(&mut self, world: &mut World, id: SessionId) {
        if self.session.as_ref().is_none_or(|session| session.id != id) {
            return;
        }
        tell!(world, "c{} is told that {id} has ended", self.id);
        self.ended = id;
        self.drop_session();
        self.attempt = None;
        if world.rng.permille(300) {
            self.restart(world);
        }
    }

    fn drop_session(&mut self) {
        if let Some(session) = self.session.take() {
            self.lost.extend(session.held.into_values().map(|held| held.grant));
        }
    }

    /// The process starts anew, with another owner id. A session it had is an orphan.
    fn restart(&mut self, world: &mut World) {
        if self.session.is_some() {
            world.counts.add(Count::ClientsDead);
        }
        tell!(world, "c{} starts anew", self.id);
        self.drop_session();
        self.attempt = None;
        self.attempts_from = self.attempts;
        self.owners += 1;
        self.owner = owner_id(self.id, self.owners);
    }
}

/// What sessions may ask for.
const TTLS: [Millis; 4] = [Millis(300), Millis(500), Millis(800), Millis(1200)];

impl Session {
    fn new(id: SessionId, ttl: Millis, origin: Moment) -> Self {
        Self {
            id,
            ttl,
            asked_ttl: None,
            deadline: origin,
            suspended: false,
            renew_at: 0,
            next_id: RequestId::FIRST,
            calls: BTreeMap::new(),
            answered: BTreeSet::new(),
            held: BTreeMap::new(),
            changed_at: Revision::default(),
        }
    }
}

fn owner_id(client: usize, n: u64) -> OwnerId {
    let mut bits = [0; 16];
    bits[0] = client as u8;
    bits[8..].copy_from_slice(&n.to_be_bytes());
    OwnerId::new(bits)
}

fn patience(world: &mut World) -> Micros {
    world.rng.range(PATIENCE.0, PATIENCE.1) * MS
}
