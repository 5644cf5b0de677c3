//! Those who watch: one file per invariant of the contract. They see every entry as it
//! is committed and every answer as it is given, and know the true time. Every event is
//! judged by the `books`, which are kept from the events before it.

pub mod books;
mod counting;
mod i01_token_order;
mod i02_never_early;
mod i03_exclusion;
mod i04_queues;
mod i05_stale_changes_nothing;
mod i06_at_most_once;
pub mod i07_acknowledged_survives;
mod i08_destination;
mod i09_strict_handoff;
pub mod i10_same_state;
mod i11_never_late;
mod made_up;
pub mod progress;
mod timers;

use std::fmt;

use ringfence::locks::{
    Command, Done, Fence, GrantRow, Header, Millis, Refusal, SessionId, SessionRow, Term, Token,
};

use crate::counts::Count;
use crate::destination::{Destination, Verdict};
use crate::faults::ShellRule;
use crate::log::Committed;
use crate::network::{Answer, Ask, Request};
use crate::orders::How;
use crate::time::Micros;
use crate::world::World;

pub use counting::count_effects;
pub use i05_stale_changes_nothing::StaleChangesNothing;
pub use i09_strict_handoff::StrictHandoff;
pub use i11_never_late::{Mark, Stall};

/// All invariants with what each remembers.
#[derive(Default)]
pub struct Properties {
    pub books: books::Books,
    pub tokens: i01_token_order::TokenOrder,
    pub early: i02_never_early::NeverEarly,
    pub stale: i05_stale_changes_nothing::StaleChangesNothing,
    pub once: i06_at_most_once::AtMostOnce,
    pub destinations: i08_destination::DestinationHolds,
    pub handoff: i09_strict_handoff::StrictHandoff,
    pub late: i11_never_late::NeverLate,
    pub closures: timers::Closures,
}

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `I1` to `I11`, or a property without a number.
    pub property: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.property, self.what)
    }
}

/// Says of which property a verdict is.
fn of(property: &'static str) -> impl Fn(String) -> Violation {
    move |what| Violation { property, what }
}

impl Properties {
    /// An entry has been committed. `whole` also runs the table's own check, which
    /// costs as much as the table is large; `small` says that entries grant little.
    pub fn committed(
        &mut self,
        seen: &Committed<'_>,
        whole: bool,
        small: bool,
    ) -> Result<(), Violation> {
        let fresh = self.books.asks(seen.command);
        self.tokens.committed(seen).map_err(of("I1"))?;
        self.early.committed(seen).map_err(of("I2"))?;
        self.once.committed(seen).map_err(of("I6"))?;
        self.stale.outcome(&self.books, seen).map_err(of("I5"))?;
        self.events(seen)?;
        self.late.committed(seen).map_err(of("I11"))?;
        let events = &seen.effects.events;
        i04_queues::nobody_could_go(&self.books, events, small).map_err(of("I4"))?;
        progress::check(&self.books, seen, fresh).map_err(of("progress"))?;
        if whole && let Some(wrong) = seen.table.check().first() {
            return Err(of("check")(wrong.clone()));
        }
        Ok(())
    }

    fn events(&mut self, seen: &Committed<'_>) -> Result<(), Violation> {
        for event in &seen.effects.events {
            let (books, what) = (&self.books, &event.what);
            i03_exclusion::check(books, what).map_err(of("I3"))?;
            i04_queues::check(books, what).map_err(of("I4"))?;
            self.stale.check(books, seen, what).map_err(of("I5"))?;
            i08_destination::DestinationHolds::granted(books, what).map_err(of("I8"))?;
            StrictHandoff::granted(books, what).map_err(of("I9"))?;
            self.closures.check(books, what, seen.now).map_err(of("timers"))?;
            self.books.take(what, seen.now);
        }
        Ok(())
    }

    /// A write or a raise came to a destination.
    pub fn wrote(
        &mut self,
        destination: usize,
        fence: &Fence,
        verdict: Verdict,
    ) -> Result<(), Violation> {
        let books = &self.books;
        if verdict.accepted {
            self.handoff.wrote(books, destination, fence).map_err(of("I9"))?;
        }
        self.destinations.wrote(books, destination, fence, verdict).map_err(of("I8"))
    }

    /// A strict acquire returns to its caller.
    pub fn handed_over(
        &mut self,
        destinations: &[Destination],
        grant: &GrantRow,
        fences: &[Fence],
        named: u8,
    ) -> Result<(), String> {
        debug_assert!(fences.iter().all(|fence| fence.token == grant.token));
        self.handoff.returned(&self.books, destinations, fences, named)
    }

    /// A renewal arrived at a leader, or a leader applied an entry that saw the
    /// session.
    pub fn arrived(&mut self, session: SessionId, now: Micros) {
        self.late.arrived(session, now);
    }

    pub fn term_began(&mut self, node: usize, previous: Term, now: Micros) {
        self.late.term_began(node, previous, now);
    }
}

/// A node has answered. From here on the client may rely on it, whether or not the
/// answer arrives.
pub fn answered(world: &mut World, request: &Request, answer: &Answer) {
    let mut told = None;
    match (answer, &request.ask) {
        (Answer::Renewed(ttl, _), Ask::Renew { session, .. }) => told = Some((*session, *ttl)),
        (Answer::Outcome(Ok(Done::Opened { session, ttl, .. })), _) => {
            told = Some((*session, *ttl));
        }
        (
            Answer::Outcome(Ok(Done::TtlSet { ttl })),
            Ask::Command(Command::SetTtl { header, .. }),
        ) => {
            told = Some((header.session, *ttl));
        }
        (Answer::Granted(grant), Ask::Command(Command::Acquire { header, .. })) => {
            told_of_grant(world, header, grant.token);
        }
        (
            Answer::Outcome(Ok(Done::Granted { token })),
            Ask::Command(Command::Acquire { header, .. }),
        ) => {
            told_of_grant(world, header, *token);
        }
        (Answer::Current(current), Ask::CheckToken { resource, token }) => {
            let times = (request.first_sent, world.now);
            let (at, books) = (books::place(resource), &world.properties.books);
            let verdict = StrictHandoff::told_current(books, at, *token, *current, times);
            world.counts.add(if *current { Count::ChecksCurrent } else { Count::ChecksNotCurrent });
            world.check("I9", verdict);
        }
        (Answer::Outcome(Err(Refusal::SessionUnknown)), ask) => {
            let verdict = i07_acknowledged_survives::unknown(ask);
            world.check("I7", verdict);
        }
        _ => {}
    }
    if let Some((session, ttl)) = told {
        let counted = world.setup.holds(ShellRule::CountsFromFirstSending);
        let from = if counted { request.first_sent } else { world.now };
        let early = &mut world.properties.early;
        let verdict = early.acknowledged(request.client, session, from, ttl, world.now);
        world.check("I2", verdict);
    }
}

fn told_of_grant(world: &mut World, header: &Header, token: Token) {
    let verdict = world.properties.tokens.told(header, token);
    world.check("I1", verdict);
}

/// A renewal was acknowledged.
pub fn renewed(
    world: &mut World,
    request: &Request,
    session: SessionId,
    arrived: Micros,
    how: How,
) {
    world.counts.add(match how {
        How::OffLog => Count::RenewalsOffLog,
        How::Marked => Count::RenewalsMarked,
    });
    let Ask::Renew { owner, .. } = &request.ask else { return };
    let verdict = world.properties.stale.renewed(*owner, session, arrived);
    world.check("I5", verdict);
}

/// A leader has marked a session expiring; `unserved` says whether it has not looked
/// at a renewal that came in time.
pub fn marked(world: &mut World, mark: Mark, row: &SessionRow, unserved: bool) {
    world.counts.add(Count::Marked);
    let session = row.session;
    let served = if unserved {
        Err(format!("{session} is marked while a renewal that came in time waits"))
    } else {
        Ok(())
    };
    world.check("I2", served);
    let verdict = world.properties.late.marked(session, row, mark);
    world.check("I11", verdict);
}

/// The shorter of two lengths, if there are two.
fn lower(of: Millis, other: Option<Millis>) -> Millis {
    other.map_or(of, |other| of.min(other))
}
