//! What runs by time beside sessions: waits, unconfirmed grants, lock delays. None ends
//! before its time on the leader's clock, whatever leader that is; and under a steady one
//! none long after it. A lock delay begins exactly when the end was sudden.

use std::collections::BTreeMap;

use ringfence::locks::{GrantEndCause, Handoff, Happened, LeaveCause, Millis, Token, Wait};

use super::books::Books;
use crate::faults::QUIET;
use crate::time::{Clock, MS, Micros};

/// How long after its time something may go on in a quiet time.
const LATE_MAX: Micros = 2500 * MS;

/// Lock delays that run.
#[derive(Default)]
pub struct Closures(BTreeMap<Token, (Millis, Micros)>);

impl Closures {
    /// What happened is judged by what stood in the books before it.
    pub fn check(&mut self, books: &Books, what: &Happened, now: Micros) -> Result<(), String> {
        match what {
            Happened::LeftQueue { wait, cause: LeaveCause::TimedOut, .. } => {
                let since = books.waits.get(wait).map(|waiting| waiting.since);
                match (books.asked.get(wait), since) {
                    (Some((_, Wait::UpTo(deadline))), Some(since)) => {
                        not_early("the wait", *deadline, since, now)
                    }
                    (Some((_, Wait::Try)) | None, _) | (_, None) => {
                        Err(format!("{wait:?} timed out and had no deadline"))
                    }
                }
            }
            Happened::GrantEnded { token, cause, delay, .. } => {
                self.ended(books, *token, cause, *delay, now)
            }
            Happened::Reopened { token, .. } => {
                let Some((delay, since)) = self.0.remove(token) else {
                    return Err(format!("{token} has no lock delay, and yet it ended"));
                };
                not_early("the lock delay", delay, since, now)
            }
            Happened::Opened { .. }
            | Happened::Ended { .. }
            | Happened::Queued { .. }
            | Happened::Granted { .. }
            | Happened::Activated { .. }
            | Happened::ValueChanged { .. }
            | Happened::Asked { .. }
            | Happened::LeftQueue { .. }
            | Happened::Frozen { .. }
            | Happened::Thawed { .. }
            | Happened::Resized { .. } => Ok(()),
        }
    }

    fn ended(
        &mut self,
        books: &Books,
        token: Token,
        cause: &GrantEndCause,
        delay: Millis,
        now: Micros,
    ) -> Result<(), String> {
        let Some(grant) = books.live(token) else { return Ok(()) };
        let Some(claim) = books.claim(grant.wait) else { return Ok(()) };
        if *cause == GrantEndCause::Unconfirmed
            && let Handoff::Strict { barrier } = claim.terms.handoff
        {
            not_early("the barrier", barrier, grant.since, now)?;
        }
        let agreed = if cause.is_sudden() { claim.terms.lock_delay } else { Millis(0) };
        if delay != agreed {
            return Err(format!("{token} ended by {cause:?} with a lock delay of {delay:?}"));
        }
        if delay.0 > 0 {
            self.0.insert(token, (delay, now));
        }
        Ok(())
    }

    /// At the end of a quiet time nothing runs long beyond its time.
    pub fn finish(&self, books: &Books, now: Micros) -> Result<(), String> {
        let waits =
            books.waits.iter().filter_map(|(wait, waiting)| match books.asked.get(wait)?.1 {
                Wait::Try => None,
                Wait::UpTo(deadline) => Some(("the wait", deadline, waiting.since)),
            });
        let held = books.places.iter().flat_map(|at| &at.holders).map(|token| &books.grants[token]);
        let barriers = held.filter(|grant| grant.active_since.is_none()).filter_map(|grant| {
            Some(("the barrier", Millis(books.barrier(grant.wait)?), grant.since))
        });
        let closures = self.0.values().map(|(delay, since)| ("the lock delay", *delay, *since));
        for (what, length, since) in waits.chain(barriers).chain(closures) {
            if since > QUIET && since + length.0 * MS + LATE_MAX < now {
                return Err(format!("{what} of {length:?} goes on since {since} us"));
            }
        }
        Ok(())
    }
}

fn not_early(what: &str, length: Millis, since: Micros, now: Micros) -> Result<(), String> {
    let fastest = length.0 * MS * 1_000_000 / Clock::SPEED.1;
    if now + 1 >= since + fastest {
        return Ok(());
    }
    Err(format!("{what} of {length:?} since {since} us was over at {now} us"))
}

#[test]
fn a_lock_delay_that_nobody_agreed_to_or_that_is_over_early_is_noticed() {
    use super::made_up::{granted, taken};
    let delay = Millis(100);
    assert!(not_early("the lock delay", delay, 5_000, 104_000).is_err());
    assert_eq!(not_early("the lock delay", delay, 5_000, 105_000), Ok(()));
    let mut books = Books::default();
    books.take(&granted(1, "job/1", 1), 0);
    let wait = books.grants.values().next().expect("granted").wait;
    let names = vec![super::books::resource(0)];
    let terms = ringfence::locks::Terms { lock_delay: delay, ..Default::default() };
    let claim = ringfence::locks::Claim { names, mode: ringfence::locks::Mode::Exclusive, terms };
    books.asked.insert(wait, (claim, Wait::Try));
    let mut closures = Closures::default();
    assert!(closures.check(&books, &taken(1, "job/1", 1, Millis(0)), 0).is_err());
    assert_eq!(closures.check(&books, &taken(1, "job/1", 1, delay), 0), Ok(()));
}
