//! [I3] At every revision: at most one exclusive grant on a resource and no other beside
//! it; at most n slot grants, in distinct slots; never two modes together. All who use
//! slots name the same n. A set is exclusive. Nothing is granted that a freeze or a lock
//! delay keeps closed.

use ringfence::locks::{Granted, Happened, Mode, ResourceName};

use super::books::{Books, apart, place};

/// What happened is judged by what stood in the books before it.
pub fn check(books: &Books, what: &Happened) -> Result<(), String> {
    match what {
        Happened::Granted { wait, names, grant } => {
            if names.len() > 1 && grant.mode != Mode::Exclusive {
                return Err(format!("a set in mode {}", grant.mode));
            }
            let waited = books.waits.contains_key(wait);
            names.iter().try_for_each(|name| {
                if !waited {
                    same_slots(books, name, grant.mode)?;
                }
                beside(books, name, grant)?;
                closed(books, name, grant)
            })
        }
        Happened::Queued { names, mode, .. } => {
            names.iter().try_for_each(|name| same_slots(books, name, *mode))
        }
        Happened::GrantEnded { names, token, slot, .. } => names.iter().try_for_each(|name| {
            let held = books.holds(place(name), *token);
            let slot_held = books.grants.get(token).is_some_and(|g| g.granted.slot == *slot);
            let held = held && slot_held;
            held.then_some(()).ok_or(format!("{token} ended on {name}, which it did not hold"))
        }),
        Happened::Opened { .. }
        | Happened::Ended { .. }
        | Happened::LeftQueue { .. }
        | Happened::Activated { .. }
        | Happened::ValueChanged { .. }
        | Happened::Asked { .. }
        | Happened::Reopened { .. }
        | Happened::Frozen { .. }
        | Happened::Thawed { .. }
        | Happened::Resized { .. } => Ok(()),
    }
}

/// Who comes names the number of slots that is in force.
fn same_slots(books: &Books, name: &ResourceName, mode: Mode) -> Result<(), String> {
    match (mode.slots(), books.places[place(name)].slots) {
        (Some(of), Some(in_force)) if of != in_force => {
            Err(format!("{name} has {in_force} slots and is taken as one of {of}"))
        }
        (Some(_) | None, _) => Ok(()),
    }
}

fn beside(books: &Books, name: &ResourceName, grant: &Granted) -> Result<(), String> {
    let here = &books.places[place(name)];
    let token = grant.token;
    for holder in &here.holders {
        let other = &books.grants[holder].granted;
        if apart(other.mode, grant.mode) {
            let modes = format!("{} beside {}", grant.mode, other.mode);
            return Err(format!("{name} granted to {token} beside {holder}: {modes}"));
        }
        if other.slot.is_some() && other.slot == grant.slot {
            return Err(format!("{token} shares slot {:?} of {name} with {holder}", grant.slot));
        }
    }
    if let Some(of) = grant.mode.slots() {
        let slots = here.slots.unwrap_or(of);
        if here.holders.len() >= slots as usize || grant.slot.is_none_or(|slot| slot >= slots) {
            let held = here.holders.len();
            return Err(format!("{token} is beyond the {slots} slots of {name}, {held} held"));
        }
    } else if grant.slot.is_some() {
        return Err(format!("{token} has a slot of {name}, which has none"));
    }
    Ok(())
}

/// Freezes and lock delays.
fn closed(books: &Books, name: &ResourceName, grant: &Granted) -> Result<(), String> {
    let here = &books.places[place(name)];
    if let Some(by) = here.frozen {
        return Err(format!("{name} is frozen by {by} and granted to {}", grant.token));
    }
    for closure in &here.closures {
        let other = &books.grants[closure].granted;
        let same_slot = other.slot.is_some() && other.slot == grant.slot;
        if apart(other.mode, grant.mode) || same_slot {
            let token = grant.token;
            return Err(format!("{name} granted to {token} within the lock delay of {closure}"));
        }
    }
    Ok(())
}

#[test]
fn a_second_holder_is_noticed() {
    use super::made_up::{granted, shared, slot};
    let mut books = Books::default();
    let mut check = |what| {
        check(&books, &what)?;
        books.take(&what, 0);
        Ok::<(), String>(())
    };
    assert_eq!(check(granted(1, "job/1", 1)), Ok(()));
    assert_eq!(check(shared(2, "job/2", 2)), Ok(()));
    assert_eq!(check(shared(3, "job/2", 3)), Ok(()));
    let beside = "job/2 granted to 4 beside 2: exclusive beside shared";
    assert_eq!(check(granted(4, "job/2", 4)), Err(beside.into()));
    assert_eq!(check(slot(5, "job/3", 5, 0)), Ok(()));
    let same = "6 shares slot Some(0) of job/3 with 5";
    assert_eq!(check(slot(6, "job/3", 6, 0)), Err(same.into()));
    assert_eq!(check(slot(6, "job/3", 6, 1)), Ok(()));
    let beyond = "7 is beyond the 2 slots of job/3, 2 held";
    assert_eq!(check(slot(7, "job/3", 7, 2)), Err(beyond.into()));
}
