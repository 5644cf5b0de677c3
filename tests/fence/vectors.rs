//! The vectors of docs/fence-spec.md, section 9, put to a destination. Each adapter has
//! a [`Destination`] here and passes all of them on its real store.

#[cfg(feature = "file")]
mod file;
mod format;
#[cfg(all(feature = "http", feature = "sqlite", feature = "postgres"))]
mod http;
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "object-store")]
mod object;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::collections::BTreeMap;
use std::sync::Barrier;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis"))]
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use ringfence::fence::{Fence, FenceError, MemoryMarks};
use ringfence::locks::{ClusterId, ResourceName, Token};
use tokio::runtime::Runtime;

pub use format::{Crash, Offer, Op, Vectors, Verdict};

/// Longer than anything takes: nothing here is decided by it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A store, and an adapter to it.
pub trait Destination: Sync {
    /// What one writer has to the store for itself.
    type Client: Client;

    /// Connects; each writer does, on a thread of its own.
    async fn client(&self) -> Self::Client;
}

/// A writer's way into the store.
pub trait Client {
    /// Writes one line to the ledger under these fences, which are in the order of
    /// their resources' names.
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError>;

    /// Raises the marks without a write.
    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError>;

    /// The mark of a resource or of its slot.
    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token>;

    /// Lets authority `to` take over the marks of `from`.
    async fn adopt(&mut self, from: ClusterId, to: ClusterId);

    /// What was written, in the order in which it was committed.
    async fn ledger(&mut self) -> Vec<String>;
}

/// Runs the `cases`.
pub fn tells_every_case(destination: &impl Destination) {
    runtime().block_on(async {
        let mut client = destination.client().await;
        let mut expected = client.ledger().await;
        for case in Vectors::read().cases {
            for (number, step) in case.steps.iter().enumerate() {
                let said = format!("{}, step {number}: {step:?}", case.name);
                if let (Op::Write, Some(Verdict::Accept)) = (step.op, &step.verdict) {
                    expected.push(said.clone());
                }
                run(&mut client, step, &said).await;
            }
        }
        assert_eq!(client.ledger().await, expected, "accepted is written, refused is not");
    });
}

async fn run(client: &mut impl Client, step: &format::Step, said: &str) {
    match step.op {
        Op::Write | Op::Raise => {
            let answer = offer(client, step.op, &step.offer, said).await;
            assert_eq!(Some(answer), step.verdict, "{said}");
            for mark in step.marks.iter().flatten() {
                assert_eq!(mark.kept(client).await, mark.mark, "{said}: {mark:?}");
            }
        }
        Op::ReadMark => {
            let mark = step.offer.asked();
            assert_eq!(mark.kept(client).await, step.mark, "{said}");
        }
        Op::Adopt => {
            let id = |hex: &Option<String>| {
                ClusterId::from_hex(hex.as_deref().expect("adopt names two")).expect("they are ids")
            };
            client.adopt(id(&step.from), id(&step.to)).await;
        }
    }
}

/// Offers a write or a raise, until the answer is one that stays.
pub async fn offer(client: &mut impl Client, op: Op, offer: &Offer, line: &str) -> Verdict {
    let Ok(fences) = offer.fences() else { return Verdict::BadInput };
    loop {
        let answer = match op {
            Op::Raise => client.raise(&fences).await,
            Op::Write | Op::ReadMark | Op::Adopt => client.write(&fences, line).await,
        };
        match answer {
            Err(FenceError::Conflict(_) | FenceError::Busy(_)) => {}
            Ok(()) => return Verdict::Accept,
            Err(refused) => return Verdict::of(refused),
        }
    }
}

/// Runs the `concurrent` ones: sixteen threads, each with its own client.
pub fn sixteen_writers_never_take_it_back(destination: &impl Destination) {
    for case in Vectors::read().concurrent {
        assert_eq!(case.writers.len(), 16, "{}", case.name);
        let start = Barrier::new(case.writers.len());
        let verdicts: Vec<Vec<Verdict>> = std::thread::scope(|scope| {
            let writers = case.writers.iter().enumerate().map(|(writer, offers)| {
                let (name, start) = (&case.name, &start);
                scope.spawn(move || one_writer(destination, name, writer, offers, start))
            });
            let writers: Vec<_> = writers.collect();
            writers.into_iter().map(|writer| writer.join().expect("it ran to its end")).collect()
        });
        let accepted = verdicts.iter().flatten().filter(|v| **v == Verdict::Accept).count();
        let refused = verdicts.iter().flatten().count() - accepted;
        assert!(accepted >= case.accepted_at_least, "{}: {accepted} accepted", case.name);
        assert!(refused >= case.refused_at_least, "{}: {refused} refused", case.name);
        runtime().block_on(agrees_with_the_rule(destination, &case, &verdicts));
    }
}

fn one_writer(
    destination: &impl Destination,
    case: &str,
    writer: usize,
    offers: &[Offer],
    start: &Barrier,
) -> Vec<Verdict> {
    runtime().block_on(async {
        let mut client = destination.client().await;
        start.wait();
        let mut verdicts = Vec::new();
        for (number, fence) in offers.iter().enumerate() {
            let line = format!("{case}/{writer}/{number}");
            let verdict = offer(&mut client, Op::Write, fence, &line).await;
            assert!(
                matches!(verdict, Verdict::Accept | Verdict::Stale { .. }),
                "{line}: {verdict:?}"
            );
            verdicts.push(verdict);
        }
        verdicts
    })
}

/// The accepted writes in commit order are a sequence that the rule accepts, and the
/// marks are those that it ends with.
async fn agrees_with_the_rule(
    destination: &impl Destination,
    case: &format::Concurrent,
    verdicts: &[Vec<Verdict>],
) {
    let mut offers = BTreeMap::new();
    for (writer, list) in case.writers.iter().enumerate() {
        for (number, fence) in list.iter().enumerate() {
            let accepted = verdicts[writer][number] == Verdict::Accept;
            if accepted {
                offers.insert(format!("{}/{writer}/{number}", case.name), fence);
            }
        }
    }
    let mut client = destination.client().await;
    let rule = MemoryMarks::new();
    let ledger = client.ledger().await;
    let ours = ledger.iter().filter(|line| line.starts_with(&format!("{}/", case.name)));
    for line in ours {
        let fence = offers.remove(line).expect("what is written was accepted, once");
        let fences = fence.fences().expect("well-formed");
        rule.guarded_set(&fences, || ()).expect("the accepted sequence never goes back");
    }
    assert!(offers.is_empty(), "accepted and not written: {offers:?}");
    let all = case.writers.iter().flatten().flat_map(|fence| fence.fences().expect("well-formed"));
    for fence in all {
        for slot in [None, fence.slot] {
            let kept = client.mark(&fence.resource, slot).await;
            assert_eq!(kept, rule.mark(&fence.resource, slot), "{}: {fence:?}", case.name);
        }
    }
    for mark in &case.marks {
        assert_eq!(mark.kept(&mut client).await, mark.mark, "{}: {mark:?}", case.name);
    }
}

/// Whether the store, after its restart, is in one of the states that a crash may leave;
/// and it goes on from there.
pub async fn is_as_the_crash_may_leave_it(client: &mut impl Client, crash: &Crash) {
    let ledger = client.ledger().await;
    let written: Vec<usize> = ledger.iter().filter_map(|line| crash.number(line)).collect();
    let mut possible = false;
    for state in &crash.may_be {
        let mut holds = state.writes == written;
        for mark in &state.marks {
            holds &= mark.kept(client).await == mark.mark;
        }
        possible |= holds;
    }
    assert!(possible, "{}: {written:?} is none of {:?}", crash.name, crash.may_be);
    let again = offer(client, crash.last.op, &crash.last.offer, "again").await;
    assert_eq!(Some(again), crash.last.verdict, "{}: offered again", crash.name);
}

/// What is written before the crash.
pub async fn before(client: &mut impl Client, crash: &Crash) {
    for (number, step) in crash.before.iter().enumerate() {
        let answer = offer(client, step.op, &step.offer, &crash.line(number)).await;
        assert_eq!(Some(answer), step.verdict, "{}: {step:?}", crash.name);
    }
}

/// Offers the last one once, to a store that is being killed, and says how far it got.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis"))]
pub async fn last(destination: &impl Destination, crash: &Crash, said: &Sender<&str>) {
    let mut client = destination.client().await;
    let fences = crash.last.offer.fences().expect("well-formed");
    let line = crash.line(crash.before.len());
    said.send("called").expect("somebody listens");
    let answer = match crash.last.op {
        Op::Raise => client.raise(&fences).await,
        Op::Write | Op::ReadMark | Op::Adopt => client.write(&fences, &line).await,
    };
    // A refusal is an answer; the error of a killed server is none.
    let answered = matches!(answer, Ok(()) | Err(FenceError::Stale { .. }));
    let _ = said.send(if answered { "answered" } else { "cut off" });
}

/// Returns at the moment at which the store is to be killed.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "redis"))]
pub fn until_it_may_be_killed(crash: &Crash, heard: &Receiver<&str>) {
    assert_eq!(heard.recv(), Ok("called"), "{}", crash.name);
    if crash.answered {
        assert_eq!(heard.recv(), Ok("answered"), "{}", crash.name);
    }
}

/// One for each thread.
pub fn runtime() -> Runtime {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.expect("a thread can have a runtime")
}
