//! Those who watch: one file per invariant of the contract. They see every entry as it
//! is committed and every answer as it is given, and know the true time.

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

use std::fmt;

use ringfence::locks::{
    Command, Done, Effects, EndCause, GrantEndCause, Happened, LeaveCause, Millis, Refusal,
    SessionId, SessionRow, Term,
};

use crate::counts::{Count, Counts};
use crate::faults::ShellRule;
use crate::log::Committed;
use crate::network::{Answer, Ask, Request};
use crate::orders::How;
use crate::time::Micros;
use crate::world::World;

pub use i11_never_late::{Mark, Stall};

/// All invariants with what each remembers.
#[derive(Default)]
pub struct Properties {
    pub tokens: i01_token_order::TokenOrder,
    pub early: i02_never_early::NeverEarly,
    pub exclusion: i03_exclusion::Exclusion,
    pub queues: i04_queues::Queues,
    pub stale: i05_stale_changes_nothing::StaleChangesNothing,
    pub once: i06_at_most_once::AtMostOnce,
    pub destination: i08_destination::DestinationHolds,
    pub late: i11_never_late::NeverLate,
}

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `I1` to `I11`.
    pub property: &'static str,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.property, self.what)
    }
}

impl Properties {
    /// An entry has been committed. `whole` also runs the table's own check, which
    /// costs as much as the table is large.
    pub fn committed(&mut self, seen: &Committed<'_>, whole: bool) -> Result<(), Violation> {
        let of = |property| move |what| Violation { property, what };
        self.tokens.committed(seen).map_err(of("I1"))?;
        self.early.committed(seen).map_err(of("I2"))?;
        self.exclusion.committed(seen).map_err(of("I3"))?;
        self.queues.committed(seen).map_err(of("I4"))?;
        self.stale.committed(seen).map_err(of("I5"))?;
        self.once.committed(seen).map_err(of("I6"))?;
        self.late.committed(seen).map_err(of("I11"))?;
        if whole && let Some(wrong) = seen.table.check().first() {
            return Err(Violation { property: "check", what: wrong.clone() });
        }
        Ok(())
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
        (Answer::Renewed(ttl), Ask::Renew { session, .. }) => told = Some((*session, *ttl)),
        (Answer::Outcome(Ok(Done::Opened { session, ttl, .. })), _) => {
            told = Some((*session, *ttl));
        }
        (
            Answer::Outcome(Ok(Done::TtlSet { ttl })),
            Ask::Command(Command::SetTtl { header, .. }),
        ) => {
            told = Some((header.session, *ttl));
        }
        (
            Answer::Outcome(Ok(Done::Granted { token })),
            Ask::Command(Command::Acquire { header, .. }),
        ) => {
            let verdict = world.properties.tokens.told(header, *token);
            world.check("I1", verdict);
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

/// Counts what an entry brought about.
pub fn count_effects(counts: &mut Counts, command: Option<&Command>, effects: &Effects) {
    for event in &effects.events {
        match &event.what {
            Happened::Granted { .. } if matches!(command, Some(Command::Acquire { .. })) => {
                counts.add(Count::Granted);
            }
            Happened::Granted { .. } => counts.add(Count::GrantedWaiting),
            Happened::Ended { cause: EndCause::Expired, .. } => counts.add(Count::Expired),
            Happened::GrantEnded { cause: GrantEndCause::Released, .. } => {
                counts.add(Count::Released);
            }
            Happened::LeftQueue { cause: LeaveCause::Cancelled, .. } => {
                counts.add(Count::Cancelled);
            }
            Happened::LeftQueue { cause: LeaveCause::TimedOut, .. } => {
                counts.add(Count::WaitsExpired);
            }
            Happened::LeftQueue { cause: LeaveCause::Session(_), .. } => {
                counts.add(Count::WaitersEnded);
            }
            Happened::Ended { .. }
            | Happened::LeftQueue { .. }
            | Happened::GrantEnded { .. }
            | Happened::Opened { .. }
            | Happened::Queued { .. }
            | Happened::Activated { .. }
            | Happened::ValueChanged { .. }
            | Happened::Asked { .. }
            | Happened::Reopened { .. }
            | Happened::Frozen { .. }
            | Happened::Thawed { .. }
            | Happened::Resized { .. } => {}
        }
    }
    count_outcome(counts, command, effects);
}

fn count_outcome(counts: &mut Counts, command: Option<&Command>, effects: &Effects) {
    match (command, &effects.outcome) {
        (Some(Command::MarkSeen { .. }), _) => counts.add(Count::MarkSeen),
        (Some(Command::ExpireSessions { sessions }), _) => {
            let ended = effects.events.iter();
            let ended = ended.filter(|e| matches!(e.what, Happened::Ended { .. })).count();
            counts.many(Count::Spared, (sessions.len() - ended) as u64);
        }
        (_, Ok(Done::Opened { created: false, .. })) => counts.add(Count::Reopened),
        (_, Ok(Done::TtlSet { .. })) if !effects.facts.is_empty() => counts.add(Count::TtlChanged),
        (_, Err(Refusal::StaleRequest)) => counts.add(Count::Stale),
        (_, Err(Refusal::SessionExpired)) => counts.add(Count::LateOfEnded),
        (_, Err(Refusal::NotHeld)) => counts.add(Count::StaleReleases),
        (_, Err(Refusal::Cancelled)) if effects.events.is_empty() => {
            counts.add(Count::CancelOvertook);
        }
        _ => {}
    }
}

/// The shorter of two lengths, if there are two.
fn lower(of: Millis, other: Option<Millis>) -> Millis {
    other.map_or(of, |other| of.min(other))
}
