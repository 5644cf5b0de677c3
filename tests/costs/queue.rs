//! What a grant to the next waiter costs, by the length of the queue behind it: time and
//! allocations inside the rules alone, without log, disk or network.
//!
//! `cargo bench --no-default-features --bench queue`. Figures of one run are good against
//! each other only.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use ringfence::locks::{
    Bootstrap, Claim, ClusterId, Command, Done, Header, Labels, Limits, LockTable, Millis, Mode,
    OwnerId, Position, RequestId, ResourceName, SessionId, Term, Terms, Token, Wait,
};

const QUEUES: [usize; 4] = [10, 100, 1_000, 10_000];
const GRANTS: usize = 5_000;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
#[allow(unsafe_code, reason = "allocations are counted by standing in for the allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() {
    println!("one release that grants to the next waiter, and that owner's return to the queue");
    println!("{:<22}{:>9}{:>14}{:>8}{:>14}", "", "waiting", "median ns", "ratio", "allocations");
    let cases = [
        ("exclusive", Mode::Exclusive, 1),
        ("slots(10)", Mode::Slots { of: 10 }, 1),
        ("set of 3, exclusive", Mode::Exclusive, 3),
    ];
    for (case, mode, names) in cases {
        let mut shortest = None;
        for waiting in QUEUES {
            let (nanos, allocations) = measure(mode, names, waiting);
            let base = *shortest.get_or_insert(nanos);
            let ratio = nanos / base;
            println!("{case:<22}{waiting:>9}{nanos:>14.0}{ratio:>8.2}{allocations:>14.1}");
        }
    }
}

/// Median nanoseconds and mean allocations of one grant with so many waiting.
fn measure(mode: Mode, names: usize, waiting: usize) -> (f64, f64) {
    let mut line = Line::new(mode, names, waiting);
    for _ in 0..waiting {
        line.turn(); // every owner has been through once
    }
    let mut nanos = Vec::with_capacity(GRANTS);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..GRANTS {
        let began = Instant::now();
        line.turn();
        nanos.push(began.elapsed().as_nanos());
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    nanos.sort_unstable();
    (nanos[GRANTS / 2] as f64, allocations as f64 / GRANTS as f64)
}

/// Owners who all want the same, in a circle.
struct Line {
    table: LockTable,
    index: u64,
    claim: Claim,
    owners: Vec<Owner>,
    /// Who released last.
    next: usize,
}

struct Owner {
    owner: OwnerId,
    session: SessionId,
    request: u64,
    granted: Option<Token>,
}

impl Line {
    fn new(mode: Mode, names: usize, waiting: usize) -> Self {
        let names = ["a", "b", "c"].iter().take(names).map(|n| ResourceName::new(n).expect("good"));
        let claim = Claim::new(names.collect(), mode, Terms::default()).expect("a good claim");
        let table = LockTable::new();
        let mut line = Self { table, index: 0, claim, owners: Vec::new(), next: 0 };
        let cluster = ClusterId::new([1; 16]);
        let limits = Limits { waiters_per_resource_max: 20_000, ..Limits::default() };
        line.apply(&Command::Bootstrap(Bootstrap { cluster, token_floor: 0, limits }));
        let holding = mode.slots().unwrap_or(1) as usize;
        for at in 0..waiting + holding {
            let owner = OwnerId::new((at as u128).to_be_bytes());
            let (ttl, labels) = (Millis(10_000), Labels::new());
            line.apply(&Command::OpenSession { owner, ttl, labels });
            let session = SessionId(line.index);
            line.owners.push(Owner { owner, session, request: 0, granted: None });
            line.ask(at);
        }
        line
    }

    /// The longest holder releases, the first waiter is granted, and who released asks
    /// again.
    fn turn(&mut self) {
        let at = self.next;
        self.next = (at + 1) % self.owners.len();
        let owner = &self.owners[at];
        let request = ringfence::locks::WaitId {
            session: owner.session,
            request: RequestId::new(owner.request).expect("it asked"),
        };
        let token = owner.granted.or_else(|| match self.table.outcome_of(request) {
            Some(Ok(Done::Granted { token })) => Some(token),
            _ => None,
        });
        let token = token.expect("grants go round in order");
        let resource = self.claim.names[0].clone();
        let header = self.header(at);
        self.apply(&Command::Release { header, resource, token });
        self.ask(at);
    }

    fn ask(&mut self, at: usize) {
        let header = self.header(at);
        let wait = Wait::UpTo(Millis(60_000));
        let claim = self.claim.clone();
        let done = self.apply(&Command::Acquire { header, claim, wait });
        self.owners[at].granted = match done {
            Done::Granted { token } => Some(token),
            _ => None,
        };
    }

    fn header(&mut self, at: usize) -> Header {
        let owner = &mut self.owners[at];
        owner.request += 1;
        let id = RequestId::new(owner.request).expect("from 1");
        let (owner, session) = (owner.owner, owner.session);
        Header { owner, session, id, oldest_outstanding: id, answered: Vec::new() }
    }

    fn apply(&mut self, command: &Command) -> Done {
        self.index += 1;
        let at = Position { term: Term(1), index: self.index };
        let effects = black_box(self.table.apply(at, command));
        effects.outcome.expect("the line asks for nothing that is refused")
    }
}
