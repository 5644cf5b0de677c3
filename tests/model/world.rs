//! Steps made into commands, by what there is.

use std::collections::BTreeMap;

use ringfence::locks::{
    Bootstrap, Claim, ClusterId, Command, Handoff, Header, Limits, Millis, Mode, Note, Overdue,
    OwnerId, RequestId, ResourceName, SessionId, Terms, Token, Value, Wait, WaitId,
};

use crate::naive::Naive;
use crate::steps::{Act, Administers, How, Id, Says, Step, Who};

/// Everything outside the table.
#[derive(Default)]
pub struct World {
    clients: Vec<Client>,
    /// Every request ever sent.
    sent: Vec<Command>,
}

struct Client {
    owner: OwnerId,
    session: SessionId,
    next: u64,
}

/// What a step comes to.
pub enum Happens {
    Apply(Vec<Option<Command>>),
    Term(u8),
    Restart,
}

impl World {
    /// Takes in a session that was opened.
    pub fn opened(&mut self, owner: OwnerId, session: SessionId) {
        self.clients.push(Client { owner, session, next: 1 });
    }

    /// Makes a step concrete.
    pub fn act(&mut self, step: &Step, now: &Naive) -> Happens {
        let command = match step {
            Step::Open { owner, ttl } => {
                let labels = BTreeMap::new();
                Command::OpenSession {
                    owner: OwnerId::new([*owner; 16]),
                    ttl: ttl_of(*ttl),
                    labels,
                }
            }
            Step::Close { who } => {
                let (owner, session) = self.who(who, now);
                Command::CloseSession { owner, session }
            }
            Step::SetTtl { .. } | Step::Acquire { .. } | Step::Cancel { .. } => {
                return self.send(step, now);
            }
            Step::Hold { .. } => return self.send(step, now),
            Step::Administer { act, which } => administer(*act, *which, now),
            Step::Burst { who, count, gap } => return self.burst(who, *count, *gap, now),
            Step::Arrive { which } => match self.copy(usize::from(*which)) {
                Some(command) => command.clone(),
                None => return Happens::Apply(Vec::new()),
            },
            Step::MarkSeen { which } => {
                let sessions = which.iter().filter_map(|n| self.client(*n, now)).map(|c| c.session);
                Command::MarkSeen { sessions: sessions.collect() }
            }
            Step::Expire { which, late } => self.expire(which, *late, now),
            Step::ExpireWaits { which } => {
                let some = which.iter().filter_map(|n| pick(&now.waits, usize::from(*n)));
                let gone = WaitId { session: SessionId(2), request: RequestId::FIRST };
                Command::ExpireWaits { waits: some.map(|w| w.wait).chain([gone]).collect() }
            }
            Step::ExpireBarriers { which } => {
                let tokens: Vec<_> = now.grants.iter().map(|g| g.token).collect();
                Command::ExpireBarriers { tokens: some_of(&tokens, which) }
            }
            Step::EndClosures { which } => {
                let tokens: Vec<_> = now.closures.iter().map(|c| c.token).collect();
                Command::EndClosures { tokens: some_of(&tokens, which) }
            }
            Step::Settle => Command::Settle,
            Step::Blank => return Happens::Apply(vec![None]),
            Step::Bootstrap => Command::Bootstrap(bootstrap(1 << 40)),
            Step::Term { up } => return Happens::Term(*up),
            Step::Restart => return Happens::Restart,
        };
        Happens::Apply(vec![Some(command)])
    }

    fn send(&mut self, step: &Step, now: &Naive) -> Happens {
        let (how, command) = match step {
            Step::SetTtl { who, ttl, how } => {
                (how, Command::SetTtl { header: self.header(who, how, now), ttl: ttl_of(*ttl) })
            }
            Step::Acquire { who, names, terms, waits, how } => {
                let header = self.header(who, how, now);
                let names = names_of(*names);
                let (mode, terms) = (mode_of(*terms, &names, now), terms_of(*terms));
                let claim = Claim::new(names, mode, terms).expect("a good claim");
                let deadline = Millis(1_000 + u64::from(how.outstanding));
                let wait = if *waits { Wait::UpTo(deadline) } else { Wait::Try };
                (how, Command::Acquire { header, claim, wait })
            }
            Step::Cancel { who, target, how } => {
                let header = self.header(who, how, now);
                (how, Command::Cancel { target: near(header.id.get(), *target), header })
            }
            Step::Hold { who, which, act, how } => {
                let header = self.header(who, how, now);
                let (resource, token) = held(now, header.session, *which);
                (how, hold(*act, header, resource, token, *which))
            }
            other => unreachable!("not a request: {other:?}"),
        };
        self.sent.push(command.clone());
        Happens::Apply(if how.late { Vec::new() } else { vec![Some(command)] })
    }

    fn burst(&mut self, who: &Who, count: u16, gap: u8, now: &Naive) -> Happens {
        let how = How { id: Id::Gap(gap), outstanding: 255, answered: Vec::new(), late: false };
        let (resource, token) =
            (names_of_mask(1).remove(0), Token::new(Token::MAX).expect("it is one"));
        let commands = (0..count).map(|_| {
            let header = self.header(who, &how, now);
            Some(Command::Release { header, resource: resource.clone(), token })
        });
        Happens::Apply(commands.collect())
    }

    fn header(&mut self, who: &Who, how: &How, now: &Naive) -> Header {
        let (owner, session) = self.who(who, now);
        let place = self.place(who.back, now);
        let mut client = place.map(|place| &mut self.clients[place]);
        let next = client.as_ref().map_or(1, |client| client.next);
        let id = match how.id {
            Id::Next => next,
            Id::Gap(gap) => next + u64::from(gap),
            Id::Used(back) => next.saturating_sub(u64::from(back) % 6).max(1),
        };
        if let Some(client) = &mut client {
            client.next = next.max(id + 1);
        }
        // 255 keeps everything.
        let oldest = if how.outstanding == 255 { 1 } else { near(id, how.outstanding).get() };
        let answered = how.answered.iter().map(|n| near(next, *n)).collect();
        let number = |n| RequestId::new(n).expect("ids here are 1 or more");
        Header { owner, session, id: number(id), oldest_outstanding: number(oldest), answered }
    }

    fn who(&self, who: &Who, now: &Naive) -> (OwnerId, SessionId) {
        let nobody = (OwnerId::new([77; 16]), SessionId(1));
        let (owner, session) = self.client(who.back, now).map_or(nobody, |c| (c.owner, c.session));
        match who.says {
            Says::Truth => (owner, session),
            Says::OtherOwner => (OwnerId::new([owner.as_bytes()[0] ^ 1; 16]), session),
            Says::Ahead => (owner, SessionId(now.at.index + 1 + u64::from(who.back))),
        }
    }

    /// Every other copy is one of the last few requests.
    fn copy(&self, which: usize) -> Option<&Command> {
        let from = if which.is_multiple_of(2) { self.sent.len().saturating_sub(6) } else { 0 };
        pick(&self.sent[from..], which / 2)
    }

    fn client(&self, back: u8, now: &Naive) -> Option<&Client> {
        self.place(back, now).map(|place| &self.clients[place])
    }

    /// One of the live clients; of those that are far back, dead or alive.
    fn place(&self, back: u8, now: &Naive) -> Option<usize> {
        let live = |n: &usize| now.sessions.iter().any(|s| s.id == self.clients[*n].session);
        let count = self.clients.len();
        let live: Vec<_> = (0..count).filter(live).collect();
        let back = usize::from(back);
        match pick(&live, back) {
            Some(place) if back < 8 => Some(*place),
            _ => (count > 0).then(|| count - 1 - back % count.min(6)),
        }
    }

    fn expire(&self, which: &[u8], late: u8, now: &Naive) -> Command {
        let overdue = which.iter().filter_map(|n| self.client(*n, now)).map(|client| {
            let live = now.sessions.iter().find(|s| s.id == client.session);
            let seen = live.map_or(now.at.index, |s| s.seen.index);
            Overdue { session: client.session, seen: seen.saturating_sub(u64::from(late)) }
        });
        Command::ExpireSessions { sessions: overdue.collect() }
    }
}

fn hold(act: Act, header: Header, resource: ResourceName, token: Token, which: u8) -> Command {
    match act {
        Act::Release => Command::Release { header, resource, token },
        Act::Confirm => Command::Confirm { header, resource, token },
        Act::SetValue => {
            let value = Value::new(&[b'v'; 3][..usize::from(which % 4)]).expect("a short value");
            Command::SetValue { header, resource, token, value }
        }
    }
}

/// Mostly what is there, and now and then another name or token.
fn administer(act: Administers, which: u8, now: &Naive) -> Command {
    let names = names_of_mask(1 << (which % 4));
    let note = Note::new("ops", "a reason").expect("a good note");
    let frozen = pick(&now.freezes, usize::from(which / 4));
    let (mut resource, token) = held(now, SessionId(0), which & !7);
    match act {
        Administers::Revoke => Command::Revoke { resource, token, note },
        Administers::Freeze => Command::Freeze { resource: names[0].clone(), note },
        Administers::Thaw => {
            let other = which.is_multiple_of(5);
            let name = frozen.filter(|_| !other).map_or(&names[0], |f| &f.name);
            let token = frozen.map_or(token, |f| f.token);
            Command::Thaw { resource: name.clone(), token, note }
        }
        Administers::Resize => {
            let in_use = |name: &&ResourceName| now.slots(name).is_some();
            let all = names_of_mask(15);
            if let Some(name) = all.iter().find(in_use) {
                resource = name.clone();
            }
            Command::Resize { resource, slots: 1 + u32::from(which % 4), note }
        }
        Administers::Ask => {
            Command::AskRelease { resource, token, within: Millis(1 + u64::from(which)), note }
        }
    }
}

/// Small limits, so that they are reached.
pub fn bootstrap(token_floor: u64) -> Bootstrap {
    let limits = Limits {
        ttl_min: Millis(2_000),
        ttl_max: Millis(6_000),
        sessions_max: 5,
        places_per_session_max: 5,
        waiters_per_resource_max: 2,
    };
    Bootstrap { cluster: ClusterId::new([9; 16]), token_floor, limits }
}

/// With room in queues and for many waits of one session.
pub fn roomy() -> Bootstrap {
    let small = bootstrap(0);
    let (places_per_session_max, waiters_per_resource_max) = (20, 20);
    let limits = Limits { places_per_session_max, waiters_per_resource_max, ..small.limits };
    Bootstrap { limits, ..small }
}

/// An id around another: mostly below, at times the same or above.
fn near(id: u64, n: u8) -> RequestId {
    RequestId::new((id + 2).saturating_sub(u64::from(n % 10)).max(1)).expect("1 or more")
}

/// Now and then out of bounds.
fn ttl_of(n: u8) -> Millis {
    Millis(1_000 * (2 + u64::from(n % 6)) - u64::from(n % 6 == 5) * 6_000)
}

/// Some of `a` to `d`, at least one.
fn names_of(mask: u8) -> Vec<ResourceName> {
    // Two of three claims name one resource, and a is asked for most.
    match mask % 3 {
        0 => names_of_mask(1 | (mask / 3)),
        1 => names_of_mask(1),
        _ => names_of_mask(1 << (mask / 3 % 4)),
    }
}

fn names_of_mask(mask: u8) -> Vec<ResourceName> {
    let names = ["a", "b", "c", "d"].iter().enumerate().filter(|(n, _)| mask & (1 << n) != 0);
    names.map(|(_, name)| ResourceName::new(name).expect("a good name")).collect()
}

/// Sets are exclusive; of the rest half is in one of the other modes, and of d most in slots.
/// Who asks for a slot mostly knows how many there are.
fn mode_of(n: u8, names: &[ResourceName], now: &Naive) -> Mode {
    let [name] = names else { return Mode::Exclusive };
    let known = now.slots(name).filter(|_| n < 170);
    match n % 8 {
        1.. if name.as_str() == "d" => Mode::Slots { of: known.unwrap_or(2) },
        0..=2 => Mode::Exclusive,
        3 | 4 => Mode::Shared,
        5 | 6 => Mode::Slots { of: known.unwrap_or(2) },
        _ => Mode::Slots { of: known.unwrap_or(3) },
    }
}

/// Half of the claims are plain.
fn terms_of(n: u8) -> Terms {
    let n = n / 8;
    let strict = Handoff::Strict { barrier: Millis(1 + u64::from(n)) };
    Terms {
        lock_delay: Millis(if n.is_multiple_of(3) { 700 } else { 0 }),
        handoff: if n % 4 == 1 { strict } else { Handoff::Plain },
        value: Value::new(&[b'v'; 1][..usize::from(n % 8 == 6)]).expect("a short value"),
    }
}

/// Some tokens, and one of nobody.
fn some_of(tokens: &[Token], which: &[u8]) -> Vec<Token> {
    let some = which.iter().filter_map(|n| pick(tokens, usize::from(*n))).copied();
    some.chain(Token::new(Token::MAX)).collect()
}

/// A grant of the session, or now and then another's or none.
fn held(now: &Naive, session: SessionId, which: u8) -> (ResourceName, Token) {
    let own: Vec<_> = now.grants.iter().filter(|g| g.wait.session == session).collect();
    let any: Vec<_> = now.grants.iter().collect();
    let from = if which.is_multiple_of(8) { any } else { own };
    match pick(&from, usize::from(which)) {
        // Now and then a name that need not be the grant's.
        Some(grant) if which.is_multiple_of(7) => {
            (names_of_mask(1 << (which % 4)).remove(0), grant.token)
        }
        Some(grant) => (grant.names[usize::from(which) % grant.names.len()].clone(), grant.token),
        None => (names_of_mask(1 << (which % 4)).remove(0), Token::new(1).expect("a good token")),
    }
}

fn pick<T>(from: &[T], which: usize) -> Option<&T> {
    (!from.is_empty()).then(|| &from[which % from.len()])
}
