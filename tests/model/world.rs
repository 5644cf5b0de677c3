//! What clients, the leader and the network do: abstract steps, made into commands.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ringfence::locks::{
    Bootstrap, Claim, ClusterId, Command, Header, Limits, Millis, Mode, Overdue, OwnerId,
    RequestId, ResourceName, SessionId, Token, Wait, WaitId,
};

use crate::naive::Naive;

/// One step. Numbers choose among what there is.
#[derive(Debug, Clone)]
pub enum Step {
    Open {
        owner: u8,
        ttl: u8,
    },
    Close {
        who: Who,
    },
    SetTtl {
        who: Who,
        ttl: u8,
        how: How,
    },
    Acquire {
        who: Who,
        names: u8,
        waits: bool,
        how: How,
    },
    Cancel {
        who: Who,
        target: u8,
        how: How,
    },
    Release {
        who: Who,
        which: u8,
        how: How,
    },
    /// Many requests that are refused, each under the next id but so many.
    Burst {
        who: Who,
        count: u16,
        gap: u8,
    },
    /// A copy of an earlier request, or a late one for the first time.
    Arrive {
        which: u16,
    },
    MarkSeen {
        which: Vec<u8>,
    },
    Expire {
        which: Vec<u8>,
        late: u8,
    },
    ExpireWaits {
        which: Vec<u8>,
    },
    Blank,
    Term {
        up: u8,
    },
    Bootstrap,
    Restart,
}

/// Which client.
#[derive(Debug, Clone)]
pub struct Who {
    /// Counted from the youngest session.
    pub back: u8,
    pub says: Says,
}

/// Whether the client tells the truth of itself.
#[derive(Debug, Clone, Copy)]
pub enum Says {
    Truth,
    OtherOwner,
    Ahead,
}

/// The header.
#[derive(Debug, Clone)]
pub struct How {
    pub id: Id,
    /// `oldest_outstanding` is so far below the id.
    pub outstanding: u8,
    /// Answered ids, so far from the next id.
    pub answered: Vec<u8>,
    /// It is not delivered now.
    pub late: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Id {
    Next,
    Gap(u8),
    Used(u8),
}

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
pub enum Act {
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
    pub fn act(&mut self, step: &Step, now: &Naive) -> Act {
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
            Step::Release { .. } => return self.send(step, now),
            Step::Burst { who, count, gap } => return self.burst(who, *count, *gap, now),
            Step::Arrive { which } => match self.copy(usize::from(*which)) {
                Some(command) => command.clone(),
                None => return Act::Apply(Vec::new()),
            },
            Step::MarkSeen { which } => {
                let sessions = which.iter().filter_map(|n| self.client(*n)).map(|c| c.session);
                Command::MarkSeen { sessions: sessions.collect() }
            }
            Step::Expire { which, late } => self.expire(which, *late, now),
            Step::ExpireWaits { which } => {
                let some = which.iter().filter_map(|n| pick(&now.waits, usize::from(*n)));
                let gone = WaitId { session: SessionId(2), request: RequestId::FIRST };
                Command::ExpireWaits { waits: some.map(|w| w.wait).chain([gone]).collect() }
            }
            Step::Blank => return Act::Apply(vec![None]),
            Step::Bootstrap => Command::Bootstrap(bootstrap(1 << 40)),
            Step::Term { up } => return Act::Term(*up),
            Step::Restart => return Act::Restart,
        };
        Act::Apply(vec![Some(command)])
    }

    fn send(&mut self, step: &Step, now: &Naive) -> Act {
        let (how, command) = match step {
            Step::SetTtl { who, ttl, how } => {
                (how, Command::SetTtl { header: self.header(who, how, now), ttl: ttl_of(*ttl) })
            }
            Step::Acquire { who, names, waits, how } => {
                let header = self.header(who, how, now);
                let claim = Claim { names: names_of(*names), mode: Mode::Exclusive };
                let deadline = Millis(1_000 + u64::from(how.outstanding));
                let wait = if *waits { Wait::UpTo(deadline) } else { Wait::Try };
                (how, Command::Acquire { header, claim, wait })
            }
            Step::Cancel { who, target, how } => {
                let header = self.header(who, how, now);
                (how, Command::Cancel { target: near(header.id.get(), *target), header })
            }
            Step::Release { who, which, how } => {
                let header = self.header(who, how, now);
                let (resource, token) = held(now, header.session, *which);
                (how, Command::Release { header, resource, token })
            }
            other => unreachable!("not a request: {other:?}"),
        };
        self.sent.push(command.clone());
        Act::Apply(if how.late { Vec::new() } else { vec![Some(command)] })
    }

    fn burst(&mut self, who: &Who, count: u16, gap: u8, now: &Naive) -> Act {
        let how = How { id: Id::Gap(gap), outstanding: 255, answered: Vec::new(), late: false };
        let (resource, token) = (names_of(1).remove(0), Token::new(Token::MAX).expect("it is one"));
        let commands = (0..count).map(|_| {
            let header = self.header(who, &how, now);
            Some(Command::Release { header, resource: resource.clone(), token })
        });
        Act::Apply(commands.collect())
    }

    fn header(&mut self, who: &Who, how: &How, now: &Naive) -> Header {
        let (owner, session) = self.who(who, now);
        let back = usize::from(who.back);
        let count = self.clients.len();
        let mut client = (count > 0).then(|| &mut self.clients[count - 1 - back % count.min(5)]);
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
        let (owner, session) = self.client(who.back).map_or(nobody, |c| (c.owner, c.session));
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

    fn client(&self, back: u8) -> Option<&Client> {
        let count = self.clients.len();
        (count > 0).then(|| &self.clients[count - 1 - usize::from(back) % count.min(5)])
    }

    fn expire(&self, which: &[u8], late: u8, now: &Naive) -> Command {
        let overdue = which.iter().filter_map(|n| self.client(*n)).map(|client| {
            let live = now.sessions.iter().find(|s| s.id == client.session);
            let seen = live.map_or(now.at.index, |s| s.seen.index);
            Overdue { session: client.session, seen: seen.saturating_sub(u64::from(late)) }
        });
        Command::ExpireSessions { sessions: overdue.collect() }
    }
}

/// Small limits, so that they are reached.
pub fn bootstrap(token_floor: u64) -> Bootstrap {
    let limits = Limits {
        ttl_min: Millis(2_000),
        ttl_max: Millis(6_000),
        sessions_max: 4,
        places_per_session_max: 4,
        waiters_per_resource_max: 2,
    };
    Bootstrap { cluster: ClusterId::new([9; 16]), token_floor, limits }
}

/// Any step but bursts.
pub fn step() -> impl Strategy<Value = Step> {
    let some = || prop::collection::vec(any::<u8>(), 0..3);
    prop_oneof![
        8 => (0..5_u8, any::<u8>()).prop_map(|(owner, ttl)| Step::Open { owner, ttl }),
        1 => who().prop_map(|who| Step::Close { who }),
        3 => (who(), any::<u8>(), how()).prop_map(|(who, ttl, how)| Step::SetTtl { who, ttl, how }),
        30 => (who(), 1..16_u8, prop::bool::weighted(0.7), how())
            .prop_map(|(who, names, waits, how)| Step::Acquire { who, names, waits, how }),
        10 => (who(), any::<u8>(), how())
            .prop_map(|(who, target, how)| Step::Cancel { who, target, how }),
        20 => (who(), any::<u8>(), how())
            .prop_map(|(who, which, how)| Step::Release { who, which, how }),
        15 => any::<u16>().prop_map(|which| Step::Arrive { which }),
        2 => some().prop_map(|which| Step::MarkSeen { which }),
        2 => (some(), prop_oneof![3 => Just(0), 1 => 1..4_u8])
            .prop_map(|(which, late)| Step::Expire { which, late }),
        4 => some().prop_map(|which| Step::ExpireWaits { which }),
        1 => Just(Step::Blank),
        1 => (1..3_u8).prop_map(|up| Step::Term { up }),
        1 => Just(Step::Bootstrap),
        3 => Just(Step::Restart),
    ]
}

/// Any step, every fifth a burst.
pub fn step_or_burst() -> impl Strategy<Value = Step> {
    let burst = (who(), 1..700_u16, 0..2_u8);
    let burst = burst.prop_map(|(who, count, gap)| Step::Burst { who, count, gap });
    prop_oneof![4 => step(), 1 => burst]
}

fn who() -> impl Strategy<Value = Who> {
    let says = prop_oneof![
        18 => Just(Says::Truth),
        1 => Just(Says::OtherOwner),
        1 => Just(Says::Ahead),
    ];
    let back = prop_oneof![5 => 0..3_u8, 1 => any::<u8>()];
    (back, says).prop_map(|(back, says)| Who { back, says })
}

fn how() -> impl Strategy<Value = How> {
    let id = prop_oneof![
        12 => Just(Id::Next),
        1 => (1..3_u8).prop_map(Id::Gap),
        3 => any::<u8>().prop_map(Id::Used),
    ];
    let outstanding = prop_oneof![3 => Just(255), 1 => 0..8_u8];
    let answered = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(0..10_u8, 1..4)];
    let late = prop_oneof![6 => Just(false), 1 => Just(true)];
    (id, outstanding, answered, late).prop_map(|(id, outstanding, answered, late)| How {
        id,
        outstanding,
        answered,
        late,
    })
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
    let mask = match mask % 3 {
        0 => mask,
        1 => 1,
        _ => 1 << (mask % 4),
    };
    let names = ["a", "b", "c", "d"].iter().enumerate().filter(|(n, _)| mask & (1 << n) != 0);
    names.map(|(_, name)| ResourceName::new(name).expect("a good name")).collect()
}

/// A grant of the session, or now and then another's or none.
fn held(now: &Naive, session: SessionId, which: u8) -> (ResourceName, Token) {
    let own: Vec<_> = now.grants.iter().filter(|g| g.wait.session == session).collect();
    let any: Vec<_> = now.grants.iter().collect();
    let from = if which.is_multiple_of(8) { any } else { own };
    match pick(&from, usize::from(which)) {
        // Now and then a name that need not be the grant's.
        Some(grant) if which.is_multiple_of(7) => {
            (names_of(1 << (which % 4)).remove(0), grant.token)
        }
        Some(grant) => (grant.names[usize::from(which) % grant.names.len()].clone(), grant.token),
        None => (names_of(1 << (which % 4)).remove(0), Token::new(1).expect("a good token")),
    }
}

fn pick<T>(from: &[T], which: usize) -> Option<&T> {
    (!from.is_empty()).then(|| &from[which % from.len()])
}
