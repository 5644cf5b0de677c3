//! [I4] Waiters stand in one order per resource over all modes, nobody overtakes, nobody
//! waits for what could be granted, a set waits in every queue it names, and nobody's
//! places outlive its session.

use ringfence::locks::{Event, Happened, SessionId, WaitId};

use super::books::{Books, place};

/// How many names one entry grants to waiters when entries are small.
const SMALL_ENTRY: usize = 2;

/// What happened is judged by what stood in the books before it.
pub fn check(books: &Books, what: &Happened) -> Result<(), String> {
    match what {
        Happened::Granted { wait, names, .. } => {
            names.iter().map(place).try_for_each(|at| first(books, *wait, at))
        }
        Happened::LeftQueue { wait, .. } => match books.waits.contains_key(wait) {
            true => Ok(()),
            false => Err(format!("{wait:?} leaves a queue in which it does not stand")),
        },
        Happened::Ended { session, .. } => nobody_left(books, *session),
        Happened::Queued { wait, names, .. } if names.len() > 1 => {
            let frozen = names.iter().find(|name| books.places[place(name)].frozen.is_some());
            frozen.map_or(Ok(()), |name| Err(format!("{wait:?}, a set, waits for frozen {name}")))
        }
        Happened::Frozen { name, token, .. } => {
            let here = &books.places[place(name)];
            let set = |wait: &&WaitId| books.waits[wait].places.len() > 1;
            match (here.holders.first(), here.queue.iter().find(set)) {
                (None, None) => Ok(()),
                left => Err(format!("{token} freezes {name} and leaves {left:?}")),
            }
        }
        Happened::Opened { .. }
        | Happened::Queued { .. }
        | Happened::GrantEnded { .. }
        | Happened::Activated { .. }
        | Happened::ValueChanged { .. }
        | Happened::Asked { .. }
        | Happened::Reopened { .. }
        | Happened::Thawed { .. }
        | Happened::Resized { .. } => Ok(()),
    }
}

/// Whoever waits is granted when it is first; whoever does not wait, when nobody does.
fn first(books: &Books, wait: WaitId, at: usize) -> Result<(), String> {
    let waited = books.waits.contains_key(&wait).then_some(wait);
    let first = books.places[at].queue.front().copied();
    if first == waited {
        return Ok(());
    }
    Err(format!("{wait:?} is granted job/{} before {first:?}", at + 1))
}

fn nobody_left(books: &Books, session: SessionId) -> Result<(), String> {
    if let Some(wait) = books.waits.keys().find(|wait| wait.session == session) {
        return Err(format!("{wait:?} waits though its session has ended"));
    }
    match books.has_places(session) {
        true => Err(format!("{session} holds something though it has ended")),
        false => Ok(()),
    }
}

/// After an entry nobody waits for what it could have, unless the entry was full.
pub fn nobody_could_go(books: &Books, events: &[Event], small: bool) -> Result<(), String> {
    let granted = |event: &Event| match &event.what {
        Happened::Granted { names, .. } => names.len(),
        _ => 0,
    };
    if small && events.iter().map(granted).sum::<usize>() >= SMALL_ENTRY {
        return Ok(());
    }
    for here in &books.places {
        let Some(wait) = here.queue.front() else { continue };
        let waiting = &books.waits[wait];
        let goes = |at: &usize| {
            books.places[*at].queue.front() == Some(wait) && books.admits(*at, waiting.mode)
        };
        if waiting.places.iter().all(goes) {
            return Err(format!("{wait:?} waits for what is free"));
        }
    }
    Ok(())
}

#[test]
fn who_overtakes_is_noticed() {
    use super::made_up::{granted, queued};
    let mut books = Books::default();
    books.take(&granted(1, "job/1", 1), 0);
    books.take(&queued(2, "job/1"), 0);
    books.take(&queued(3, "job/1"), 0);
    assert!(check(&books, &granted(2, "job/1", 2)).is_ok());
    assert!(check(&books, &granted(3, "job/1", 2)).is_err());
    assert!(check(&books, &granted(4, "job/1", 2)).is_err());
    assert!(nobody_could_go(&books, &[], false).is_ok());
    books.places[0].holders.clear();
    assert!(nobody_could_go(&books, &[], false).is_err());
}
