//! [I8] At a destination a mark never falls and no write with a token below it is
//! applied; a live holder is not refused. What has written shuts out everybody from
//! before the resource was last taken: in another mode, with another number of slots, or
//! in the same. A slot that is used again refuses its former holder.
//!
//! The marks are not asked: kept from what was accepted, and where its tokens stand in
//! the books.

use std::collections::BTreeMap;

use ringfence::locks::{Fence, Happened, Mode, Token};

use super::books::{Books, PLACES, Standing, place};
use crate::destination::{DESTINATIONS, Verdict};

#[derive(Default)]
pub struct DestinationHolds {
    accepted: [[Accepted; PLACES]; DESTINATIONS],
}

/// What one destination has taken for one resource.
#[derive(Default)]
struct Accepted {
    /// The latest taking of the resource, and who wrote in it.
    latest: Option<(u64, Token)>,
    /// The highest token of each slot.
    slots: BTreeMap<u32, Token>,
}

impl DestinationHolds {
    /// Floor and token of a new grant, judged by the books before it.
    pub fn granted(books: &Books, what: &Happened) -> Result<(), String> {
        let Happened::Granted { names, grant, .. } = what else { return Ok(()) };
        let holders = names.iter().flat_map(|name| &books.places[place(name)].holders);
        let lowest = holders.copied().min().unwrap_or(grant.token);
        if grant.floor > lowest {
            let (token, floor) = (grant.token, grant.floor);
            return Err(format!("{token} has the floor {floor} and shuts out live {lowest}"));
        }
        Ok(())
    }

    /// A write or a raise came to a destination.
    pub fn wrote(
        &mut self,
        books: &Books,
        destination: usize,
        fence: &Fence,
        verdict: Verdict,
    ) -> Result<(), String> {
        let (name, token, at) = (&fence.resource, fence.token, place(&fence.resource));
        let fell = |old: u64, new: u64| new < old;
        let (old, new) = (verdict.before, verdict.after);
        if fell(old.0, new.0) || fell(old.1, new.1) {
            return Err(format!("the marks of {name} fell: {verdict:?}"));
        }
        if fence.floor > token {
            let refused = (!verdict.accepted).then_some(());
            return refused.ok_or(format!("a floor above token {token} was accepted"));
        }
        if !verdict.accepted {
            let live = books.holds(at, token);
            return if live {
                Err(format!("live token {token} refused on {name}"))
            } else {
                Ok(())
            };
        }
        let Some(standing) = books.standing(at, token) else {
            return Err(format!("{token} wrote to {name} and was never granted it"));
        };
        let standing = Standing { slot: fence.slot, ..standing };
        self.accepted[destination][at].take(books, token, standing)
    }
}

impl Accepted {
    fn take(&mut self, books: &Books, token: Token, standing: Standing) -> Result<(), String> {
        if let Some((epoch, latest)) = self.latest
            && epoch > standing.epoch
        {
            return Err(format!("{token} {} after {latest}", before(books, token, latest)));
        }
        if self.latest.is_none_or(|(epoch, _)| epoch < standing.epoch) {
            self.latest = Some((standing.epoch, token));
        }
        let Some(slot) = standing.slot else { return Ok(()) };
        match self.slots.insert(slot, token) {
            Some(later) if later > token => {
                Err(format!("{token} wrote as the former holder of slot {slot} after {later}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// How the one held the resource that wrote too late.
fn before(books: &Books, token: Token, latest: Token) -> String {
    let mode = |token| books.grants.get(&token).map(|grant| grant.granted.mode);
    match (mode(token), mode(latest)) {
        (Some(Mode::Slots { of }), Some(Mode::Slots { of: other })) if of != other => {
            "wrote as one of another number of slots".into()
        }
        (Some(one), Some(other)) => format!("wrote as a former holder, {one} before {other},"),
        (one, other) => format!("wrote as a former holder, {one:?} before {other:?},"),
    }
}

#[test]
fn a_write_from_before_the_resource_was_last_taken_is_noticed() {
    use super::made_up::{fence, granted, slot, taken};
    let mut books = Books::default();
    books.take(&granted(1, "job/1", 1), 0);
    books.take(&taken(1, "job/1", 1, ringfence::locks::Millis(0)), 0);
    books.take(&slot(2, "job/1", 2, 0), 0);
    books.take(&slot(3, "job/1", 3, 1), 0);
    let mut destinations = DestinationHolds::default();
    let mut wrote = |token, slot, accepted| {
        let verdict = Verdict { accepted, before: (0, 0), after: (0, 0) };
        destinations.wrote(&books, 0, &fence("job/1", token, token, slot), verdict)
    };
    assert_eq!(wrote(1, None, true), Ok(()));
    assert_eq!(wrote(3, Some(1), true), Ok(()));
    assert_eq!(wrote(2, Some(0), true), Ok(()));
    let late = "1 wrote as a former holder, exclusive before slots(2), after 3";
    assert_eq!(wrote(1, None, true), Err(late.into()));
    assert_eq!(wrote(1, None, false), Ok(()));
    assert_eq!(wrote(2, Some(0), false), Err("live token 2 refused on job/1".into()));
}
