//! [I9] After a strict acquire has returned, every destination that it named has raised
//! its marks, and no owner whose authority ended before the grant gets a write accepted
//! there: for a shared grant, no exclusive owner; for a slot, no earlier holder of it.
//! Before it is confirmed the grant is not current; and `CheckToken` says of every token
//! what is so.

use ringfence::locks::{Fence, Happened, Mode, Phase, Token};

use super::books::{Books, Grant, place};
use crate::destination::Destination;
use crate::time::Micros;

#[derive(Default)]
pub struct StrictHandoff {
    returned: Vec<Returned>,
}

/// A strict acquire that has returned.
struct Returned {
    token: Token,
    /// One bit for each destination that it named.
    named: u8,
}

impl StrictHandoff {
    /// A grant begins in the phase that was agreed.
    pub fn granted(books: &Books, what: &Happened) -> Result<(), String> {
        let Happened::Granted { wait, grant, .. } = what else { return Ok(()) };
        let barrier = match grant.phase {
            Phase::Active => None,
            Phase::Barrier { deadline } => Some(deadline.0),
        };
        if barrier == books.barrier(*wait) {
            return Ok(());
        }
        Err(format!("{} is {:?} before anybody has confirmed it", grant.token, grant.phase))
    }

    /// The client goes on: from here on it relies on it.
    pub fn returned(
        &mut self,
        books: &Books,
        destinations: &[Destination],
        fences: &[Fence],
        named: u8,
    ) -> Result<(), String> {
        for fence in fences {
            let of_these = |at: &usize| named >> at & 1 == 1;
            for at in (0..destinations.len()).filter(of_these) {
                if !destinations[at].is_raised(fence) {
                    let (token, resource) = (fence.token, &fence.resource);
                    return Err(format!("{token} is confirmed and not raised: {resource} at {at}"));
                }
            }
        }
        let token = fences[0].token;
        if books.grants.get(&token).is_none_or(|grant| grant.active_since.is_none()) {
            return Err(format!("{token} is told to be confirmed and is not"));
        }
        self.returned.push(Returned { token, named });
        Ok(())
    }

    /// A write was accepted.
    pub fn wrote(&self, books: &Books, at: usize, fence: &Fence) -> Result<(), String> {
        let Some(writer) = books.grants.get(&fence.token) else { return Ok(()) };
        let Some(end) = &writer.ended else { return Ok(()) };
        for later in &self.returned {
            let named = later.named >> at & 1 == 1;
            let before = named && end.last_token < later.token.get();
            let grant = &books.grants[&later.token];
            let here = grant.places.contains(&place(&fence.resource));
            if before && here && shut_out(writer, grant) {
                let (token, later) = (fence.token, later.token);
                return Err(format!("{token} wrote after the strict acquire of {later} returned"));
            }
        }
        Ok(())
    }

    /// What `CheckToken` told of a token on a resource between these times.
    pub fn told_current(
        books: &Books,
        at: usize,
        token: Token,
        current: bool,
        (from, to): (Micros, Micros),
    ) -> Result<(), String> {
        let grant = books.grants.get(&token).filter(|grant| grant.places.contains(&at));
        let active = grant.and_then(|grant| Some((grant.active_since?, &grant.ended)));
        let right = match (current, active) {
            (true, None) => false,
            (true, Some((since, ended))) => {
                since <= to && ended.as_ref().is_none_or(|end| end.at >= from)
            }
            (false, None) => true,
            (false, Some((since, ended))) => since >= from || ended.is_some(),
        };
        let told = if current { "current" } else { "not current" };
        right.then_some(()).ok_or_else(|| format!("{token} on job/{} is told {told}", at + 1))
    }
}

/// Whether the later one relies on the earlier one's silence.
fn shut_out(earlier: &Grant, later: &Grant) -> bool {
    let (one, other) = (earlier.granted, later.granted);
    match other.mode {
        Mode::Exclusive => true,
        Mode::Shared => one.mode != Mode::Shared,
        Mode::Slots { .. } => one.mode.slots().is_none() || one.slot == other.slot,
    }
}

#[test]
fn a_write_behind_a_strict_acquire_that_has_returned_is_noticed() {
    use super::made_up::{fence, granted, taken};
    let mut books = Books::default();
    books.take(&granted(1, "job/1", 1), 0);
    books.take(&taken(1, "job/1", 1, ringfence::locks::Millis(0)), 0);
    books.take(&granted(2, "job/1", 2), 0);
    let mut destinations = [Destination::default(), Destination::default()];
    let mut handoff = StrictHandoff::default();
    let raise = fence("job/1", 2, 2, None);
    let mut returned =
        |at: &[Destination]| handoff.returned(&books, at, std::slice::from_ref(&raise), 0b01);
    assert!(returned(&destinations).is_err());
    destinations[0].write(&raise, true);
    assert_eq!(returned(&destinations), Ok(()));
    let stale = fence("job/1", 1, 1, None);
    assert!(handoff.wrote(&books, 0, &stale).is_err());
    assert_eq!(handoff.wrote(&books, 1, &stale), Ok(()), "it was not named");
    assert_eq!(handoff.wrote(&books, 0, &raise), Ok(()));
}
