//! A table and those who ask it.

use std::collections::BTreeMap;

use ringfence::locks::{
    Bootstrap, Change, Claim, ClusterId, Command, Done, Effects, Header, Labels, Limits, LockTable,
    Millis, Mode, OwnerId, Position, RequestId, ResourceName, SessionId, Term, Terms, Token, Wait,
};

/// A table that applies one command an entry, in term 1.
pub struct Authority {
    pub table: LockTable,
    /// The last entry.
    pub last: Option<Effects>,
}

/// A session's side: numbers its requests, and keeps all outcomes unless it says
/// otherwise.
#[derive(Clone)]
pub struct Client {
    pub owner: OwnerId,
    pub session: SessionId,
    pub next: u64,
    pub oldest: u64,
}

impl Authority {
    /// With the usual limits.
    pub fn new() -> Self {
        Self::on(LockTable::new())
    }

    /// Begins with this table.
    pub fn on(table: LockTable) -> Self {
        let mut authority = Self { table, last: None };
        let (cluster, limits) = (ClusterId::new([1; 16]), Limits::default());
        authority.apply(&Command::Bootstrap(Bootstrap { cluster, token_floor: 0, limits }));
        authority
    }

    /// Applies the next entry.
    pub fn apply(&mut self, command: &Command) -> &Effects {
        let at = Position { term: Term(1), index: self.table.position().index + 1 };
        let effects = self.table.apply(at, command);
        self.last.insert(effects)
    }

    /// Opens, or sees again, an owner's session.
    pub fn open(&mut self, owner: u16, ttl: Millis) -> Client {
        self.open_with(owner, ttl, BTreeMap::new())
    }

    /// As [`Authority::open`], with labels.
    pub fn open_with(&mut self, owner: u16, ttl: Millis, labels: Labels) -> Client {
        let owner = OwnerId::new(u128::from(owner).to_be_bytes());
        let effects = self.apply(&Command::OpenSession { owner, ttl, labels });
        match effects.outcome {
            Ok(Done::Opened { session, .. }) => Client { owner, session, next: 1, oldest: 1 },
            ref other => panic!("nothing keeps a session from being opened here: {other:?}"),
        }
    }

    /// Starts again from the rows of the table.
    pub fn restart(&mut self) {
        let rows = self.table.rows();
        self.table = LockTable::from_rows(rows).expect("the rows of a table make a table");
    }

    /// The rows that the last entry changed.
    pub fn changed(&self) -> &[Change] {
        self.last.as_ref().map_or(&[], |effects| &effects.changes)
    }
}

impl Client {
    /// Asks for names, without waiting.
    pub fn tries(&mut self, names: &[&str]) -> Command {
        self.acquire(names, Wait::Try)
    }

    /// Asks for names, and waits a minute.
    pub fn waits(&mut self, names: &[&str]) -> Command {
        self.acquire(names, Wait::UpTo(Millis(60_000)))
    }

    /// Asks for names in a mode, without waiting.
    pub fn tries_in(&mut self, mode: Mode, names: &[&str]) -> Command {
        self.acquire_in(mode, names, Wait::Try)
    }

    /// Asks for names in a mode, and waits a minute.
    pub fn waits_in(&mut self, mode: Mode, names: &[&str]) -> Command {
        self.acquire_in(mode, names, Wait::UpTo(Millis(60_000)))
    }

    /// Asks for names.
    pub fn acquire(&mut self, names: &[&str], wait: Wait) -> Command {
        self.acquire_in(Mode::Exclusive, names, wait)
    }

    fn acquire_in(&mut self, mode: Mode, names: &[&str], wait: Wait) -> Command {
        let names = names.iter().map(|name| resource(name)).collect();
        Command::Acquire {
            header: self.header(),
            claim: Claim::new(names, mode, Terms::default()).expect("a good claim"),
            wait,
        }
    }

    /// Gives a grant back.
    pub fn releases(&mut self, name: &str, token: Token) -> Command {
        Command::Release { header: self.header(), resource: resource(name), token }
    }

    /// Cancels an acquire.
    pub fn cancels(&mut self, target: u64) -> Command {
        Command::Cancel { header: self.header(), target: request(target) }
    }

    /// Asks for another ttl.
    pub fn sets_ttl(&mut self, ttl: Millis) -> Command {
        Command::SetTtl { header: self.header(), ttl }
    }

    fn header(&mut self) -> Header {
        let id = request(self.next);
        self.next += 1;
        let oldest_outstanding = request(self.oldest);
        let (owner, session) = (self.owner, self.session);
        Header { owner, session, id, oldest_outstanding, answered: Vec::new() }
    }
}

/// Numbers without pattern, always the same ones.
pub struct Numbers(pub u64);

impl Numbers {
    /// One below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

pub fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("stories use good names")
}

pub fn request(id: u64) -> RequestId {
    RequestId::new(id).expect("ids in stories are 1 or more")
}

pub fn token(number: u64) -> Token {
    Token::new(number).expect("tokens in stories are 1 or more")
}
