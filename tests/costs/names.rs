//! What stays behind after names that are used once: bytes allocated by the rules, without
//! log, disk or network. Every name is acquired and released (or its lock delay is ended)
//! once, in one of the modes.
//!
//! `cargo bench --no-default-features --bench names`; NAMES=n for another number than ten
//! million. What a whole node takes, its disk included: `ringfence bench names`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

use ringfence::locks::{
    Bootstrap, Claim, ClusterId, Command, Done, Header, Labels, Limits, LockTable, Millis, Mode,
    Note, OwnerId, Position, RequestId, ResourceName, SessionId, Term, Terms, Token, Wait,
};

struct Counting;

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
#[allow(unsafe_code, reason = "bytes are counted by standing in for the allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size().cast_signed() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size().cast_signed() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() {
    let names: u64 = std::env::var("NAMES").map_or(10_000_000, |n| n.parse().expect("a number"));
    let mut once = Once::new();
    let mut used = 0;
    println!("{:>12}{:>18}{:>8}{:>14}", "names used", "bytes allocated", "rows", "highest token");
    for tenth in 0..=10 {
        while used < names * tenth / 10 {
            once.use_name(used);
            used += 1;
        }
        let (bytes, rows) = (ALLOCATED.load(Ordering::Relaxed), once.table.rows().count());
        println!("{used:>12}{bytes:>18}{rows:>8}{:>14}", once.table.token());
    }
}

struct Once {
    table: LockTable,
    index: u64,
    owner: OwnerId,
    session: SessionId,
    request: u64,
}

impl Once {
    fn new() -> Self {
        let owner = OwnerId::new([7; 16]);
        let table = LockTable::new();
        let mut once = Self { table, index: 0, owner, session: SessionId(2), request: 0 };
        let cluster = ClusterId::new([1; 16]);
        let limits = Limits::default();
        once.apply(&Command::Bootstrap(Bootstrap { cluster, token_floor: 0, limits }));
        once.apply(&Command::OpenSession { owner, ttl: Millis(10_000), labels: Labels::new() });
        once.use_name(0); // what a first use leaves belongs to the session
        once
    }

    fn use_name(&mut self, number: u64) {
        let name = |part: &str| ResourceName::new(&format!("job/{number}{part}")).expect("good");
        let mut names = vec![name("")];
        let mut terms = Terms::default();
        let mode = match number % 10 {
            0 => Mode::Shared,
            1 => Mode::Slots { of: 3 },
            2 => {
                names.extend([name("/b"), name("/c")]);
                Mode::Exclusive
            }
            3 => {
                terms.lock_delay = Millis(1_000);
                Mode::Exclusive
            }
            _ => Mode::Exclusive,
        };
        let claim = Claim::new(names, mode, terms).expect("a good claim");
        let header = self.header();
        let told = self.apply(&Command::Acquire { header, claim, wait: Wait::Try });
        let Done::Granted { token } = told else {
            unreachable!("a free name is granted: {told:?}")
        };
        let resource = name("");
        if number % 10 == 3 {
            // Ended by hand, and closed for a while.
            let note = Note::new("bench", "").expect("a good note");
            self.apply(&Command::Revoke { resource, token, note });
            self.apply(&Command::EndClosures { tokens: vec![token] });
        } else if number % 10 == 4 {
            self.release(resource, token);
            let note = Note::new("bench", "").expect("a good note");
            let resource = name("");
            self.apply(&Command::Freeze { resource: resource.clone(), note: note.clone() });
            let token = Token::new(self.table.token()).expect("the freeze's");
            self.apply(&Command::Thaw { resource, token, note });
        } else {
            self.release(resource, token);
        }
    }

    fn release(&mut self, resource: ResourceName, token: Token) {
        let header = self.header();
        self.apply(&Command::Release { header, resource, token });
    }

    fn header(&mut self) -> Header {
        self.request += 1;
        let id = RequestId::new(self.request).expect("from 1");
        let (owner, session) = (self.owner, self.session);
        Header { owner, session, id, oldest_outstanding: id, answered: Vec::new() }
    }

    fn apply(&mut self, command: &Command) -> Done {
        self.index += 1;
        let at = Position { term: Term(1), index: self.index };
        self.table.apply(at, command).outcome.expect("nothing is refused")
    }
}
