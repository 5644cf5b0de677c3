//! What users of such systems reported, in the modes that came later: who shares, who has
//! a slot, and what administrators do.

use std::collections::BTreeSet;

use ringfence::locks::{
    Administered, Command, Done, Happened, Millis, Mode, Note, Overdue, Refusal, SessionId, Token,
};

use crate::authority::{Authority, Client, Numbers, resource, token};

const TTL: Millis = Millis(20_000);

fn expiry(authority: &Authority, session: SessionId) -> Command {
    let seen = authority.table.session(session).map_or(u64::MAX, |s| s.row.seen.index);
    Command::ExpireSessions { sessions: vec![Overdue { session, seen }] }
}

fn revoke(name: &str, number: u64) -> Command {
    let note = Note::new("dana", "it is stuck").expect("a good note");
    Command::Revoke { resource: resource(name), token: token(number), note }
}

/// Sessions granted by the last entry, in order.
fn granted(authority: &Authority) -> Vec<SessionId> {
    let events = authority.last.iter().flat_map(|effects| &effects.events);
    let sessions = events.filter_map(|event| match &event.what {
        Happened::Granted { wait, .. } => Some(wait.session),
        _ => None,
    });
    sessions.collect()
}

/// The report expects an answer `REVOKED`. The contract wins: a retry of an acquire whose
/// grant was made and has ended, whichever way, is told `GRANT_ENDED` with its token.
#[test]
fn scenario_a4_a_grant_that_was_broken_meanwhile_is_not_told_as_granted() {
    let mut authority = Authority::new();
    let (mut a, mut b) = (authority.open(1, TTL), authority.open(2, TTL));
    let (fresh, queued) = (a.tries(&["printer"]), b.waits(&["printer"]));
    authority.apply(&fresh);
    authority.apply(&queued);
    // The operator breaks the fresh grant, and the one that the waiter has from then on.
    authority.apply(&revoke("printer", 1));
    assert_eq!(granted(&authority), [b.session]);
    authority.apply(&revoke("printer", 3));
    for (call, number) in [(fresh, 1), (queued, 3)] {
        let ended = Err(Refusal::GrantEnded { token: token(number) });
        assert_eq!(authority.apply(&call).outcome, ended);
        // What `CheckToken` reads.
        assert_eq!(authority.table.live_grant_on(&resource("printer"), token(number)), None);
    }
    // A renewal's answer tells each of them that something has changed.
    let changed = |session| authority.table.session(session).expect("live").changed_at.index;
    let index = authority.table.position().index;
    assert_eq!((changed(a.session), changed(b.session)), (index - 3, index - 2));
}

#[test]
fn scenario_a11_a_stale_finisher_returns_no_permit_twice() {
    let mut authority = Authority::new();
    let one = Mode::Slots { of: 1 };
    let mut old = authority.open(1, TTL);
    authority.apply(&old.tries_in(one, &["job"]));
    let late = [old.releases("job", token(1)), old.releases("job", token(1))];
    let mut next: Vec<_> = (2..12).map(|owner| authority.open(owner, TTL)).collect();
    for client in &mut next {
        authority.apply(&client.waits_in(one, &["job"]));
    }
    // It is judged dead, and the permit goes to the next one.
    authority.apply(&expiry(&authority, old.session));
    let mut again = authority.open(1, TTL);
    let more = (1..5).map(|number| again.releases("job", token(number))).collect::<Vec<_>>();
    for release in late.iter().chain(&more) {
        let refused = &authority.apply(release).outcome;
        assert!(matches!(refused, Err(Refusal::SessionExpired | Refusal::NotHeld)), "{refused:?}");
        let view = authority.table.resource(&resource("job")).expect("in use");
        assert_eq!(view.holders().map(|g| g.token).collect::<Vec<_>>(), [token(2)]);
        assert_eq!(view.waiting(), 9);
    }
}

#[test]
fn scenario_c9_five_hundred_waiters_on_ten_slots_are_served_in_the_order_of_arrival() {
    let mut authority = Authority::new();
    let ten = Mode::Slots { of: 10 };
    let mut clients: Vec<_> = (0..510).map(|owner| authority.open(owner, TTL)).collect();
    let arrived: Vec<_> = clients.iter().map(|client| client.session).collect();
    let mut served = Vec::new();
    for client in &mut clients {
        authority.apply(&client.waits_in(ten, &["pool"]));
        served.extend(granted(&authority));
    }
    let mut numbers = Numbers(1);
    while let Some(view) = authority.table.resource(&resource("pool")) {
        let holders: Vec<_> = view.holders().map(|g| (g.wait.session, g.token, g.slot)).collect();
        let slots: BTreeSet<_> = holders.iter().map(|(_, _, slot)| *slot).collect();
        assert!(slots.iter().all(|slot| slot.is_some_and(|slot| slot < 10)), "{slots:?}");
        assert_eq!((slots.len(), holders.len().min(10)), (holders.len(), holders.len()));
        // Whoever of them ends next.
        let which = numbers.below(holders.len());
        let (session, held, _) = holders[which];
        let client = clients.iter_mut().find(|c| c.session == session).expect("one of them");
        let release = client.releases("pool", held);
        authority.apply(&release);
        // One leaves, and exactly the one who has waited longest comes.
        let next = granted(&authority);
        assert_eq!(next.len(), usize::from(served.len() < arrived.len()));
        served.extend(next);
    }
    assert_eq!(served, arrived);
}

/// The report kills processes; here their sessions end, a thousand times.
#[test]
fn scenario_d5_free_and_held_permits_are_always_as_many_as_there_are() {
    const SLOTS: u32 = 5;
    let mut authority = Authority::new();
    let five = Mode::Slots { of: SLOTS };
    let mut numbers = Numbers(3);
    let mut clients: Vec<Client> = Vec::new();
    for owner in 0..1_000 {
        let mut client = authority.open(owner, TTL);
        authority.apply(&client.waits_in(five, &["pool"]));
        clients.push(client);
        if owner % 3 != 0 {
            let dead = clients.swap_remove(numbers.below(clients.len()));
            authority.apply(&expiry(&authority, dead.session));
        }
        if numbers.below(7) == 0 {
            authority.restart();
        }
        let Some(view) = authority.table.resource(&resource("pool")) else { continue };
        let held: BTreeSet<_> = view.holders().filter_map(|grant| grant.slot).collect();
        let free = (0..SLOTS).filter(|slot| !held.contains(slot)).count();
        assert_eq!(free + view.holders().count(), SLOTS as usize);
        assert!(free == 0 || view.waiting() == 0, "{free} free, {} wait", view.waiting());
    }
    // And all of them can be had at the end.
    for client in clients {
        authority.apply(&expiry(&authority, client.session));
    }
    for owner in 0..6 {
        let mut client = authority.open(owner, TTL);
        let outcome = &authority.apply(&client.tries_in(five, &["pool"])).outcome;
        assert_eq!(outcome.is_ok(), u32::from(owner) < SLOTS, "{outcome:?}");
    }
}

#[test]
fn scenario_g5_a_break_names_the_exact_token_and_cannot_hit_a_newer_holder() {
    let mut authority = Authority::new();
    let labels = [("host", "db-7"), ("pid", "4711")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let mut crashed = authority.open_with(1, TTL, labels.into());
    authority.apply(&crashed.tries(&["state"]));
    // Who looks sees whose it is, since when, and under which token.
    let view = authority.table.resource(&resource("state")).expect("held");
    let grant = view.holders().next().expect("one holder");
    let labels = authority.table.labels(grant.wait.session).expect("live");
    let shown = (labels["host"].as_str(), labels["pid"].as_str(), grant.granted_at.index);
    assert_eq!(shown, ("db-7", "4711", 3));
    let number = grant.token.get();
    // Meanwhile its session ends and another takes it: the break that was on its way is void.
    authority.apply(&expiry(&authority, crashed.session));
    let mut next = authority.open(2, TTL);
    authority.apply(&next.tries(&["state"]));
    assert_eq!(authority.apply(&revoke("state", number)).outcome, Err(Refusal::NotHeld));
    assert!(authority.table.live_grant_on(&resource("state"), token(2)).is_some());
    // With the right one it works, and returns a fence above the broken grant.
    let broken = authority.apply(&revoke("state", 2)).outcome.clone();
    let Ok(Done::Administered(Administered::Revoked { token: by, floor, .. })) = broken else {
        panic!("{broken:?}")
    };
    assert_eq!((by, floor), (token(3), token(3)));
}

#[test]
fn scenario_g8_sets_in_either_order_are_held_whole_or_not_at_all() {
    let mut authority = Authority::new();
    let mut clients: Vec<_> = (0..20).map(|owner| authority.open(owner, TTL)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        let names = if n % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
        let outcome = &authority.apply(&client.waits(&names)).outcome;
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    let dies = clients[7].session;
    let mut served = Vec::new();
    while let Some(view) = authority.table.resource(&resource("a")) {
        let holders = |name| {
            let view = authority.table.resource(&resource(name)).expect("both are in use");
            view.holders().map(|g| (g.wait.session, g.token)).collect::<Vec<_>>()
        };
        assert_eq!(holders("a"), holders("b"), "a partial hold");
        let grant = view.holders().next().expect("nobody waits for nobody");
        let (session, held) = (grant.wait.session, grant.token);
        served.push(session);
        let client = clients.iter_mut().find(|c| c.session == session).expect("one of them");
        let release = client.releases("b", held);
        let command = if session == dies { expiry(&authority, dies) } else { release };
        authority.apply(&command);
    }
    assert_eq!(served, clients.iter().map(|c| c.session).collect::<Vec<_>>());
}

#[test]
fn scenario_g9_a_session_is_extended_a_hundred_times_under_one_token() {
    let mut authority = Authority::new();
    let mut client = authority.open(1, TTL);
    authority.apply(&client.tries(&["printer"]));
    let held: Token = token(1);
    for round in 0..100 {
        let ttl = Millis(20_000 + round * 100);
        client.oldest = client.next;
        let extended = authority.apply(&client.sets_ttl(ttl)).outcome.clone();
        assert_eq!(extended, Ok(Done::TtlSet { ttl }));
        authority.apply(&Command::MarkSeen { sessions: vec![client.session] });
        authority.open(1, TTL);
        let grant = authority.table.live_grant_on(&resource("printer"), held);
        assert_eq!(grant.map(|g| (g.wait.session, g.granted_at.index)), Some((client.session, 3)));
        let row = authority.table.session(client.session).expect("live").row.clone();
        assert_eq!((row.ttl, row.seen), (ttl, authority.table.position()));
    }
    assert_eq!(authority.table.token(), 1);
}
