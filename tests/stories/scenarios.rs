//! What users of such systems reported: was the grant right, and who waits how long.

use ringfence::locks::{
    Command, Done, EndCause, Fact, Happened, LeaveCause, LockTable, Millis, Overdue, Refusal,
    SessionId, Timer, Wait, WaitId,
};

use crate::authority::{Authority, Client, request, resource, token};

const TTL: Millis = Millis(20_000);

/// H holds; W waits behind it with a short ttl and stops renewing.
fn holder_and_dead_waiter(table: LockTable) -> (Authority, Client, Client, Command) {
    let mut authority = Authority::on(table);
    let mut h = authority.open(1, TTL);
    let mut w = authority.open(2, Millis(5_000));
    authority.apply(&h.tries(&["printer"]));
    let waits = w.waits(&["printer"]);
    authority.apply(&waits);
    authority.apply(&expiry(&authority.table, w.session));
    (authority, h, w, waits)
}

fn expiry(table: &LockTable, session: SessionId) -> Command {
    let seen = table.session(session).map_or(table.position().index, |s| s.row.seen.index);
    Command::ExpireSessions { sessions: vec![Overdue { session, seen }] }
}

/// What goes wrong in A1, of a table.
fn grants_to_the_dead(table: LockTable) -> Vec<String> {
    let (mut authority, mut h, w, waits) = holder_and_dead_waiter(table);
    let mut wrong = Vec::new();
    let answer = authority.apply(&waits).outcome.clone();
    if answer != Err(Refusal::SessionExpired) {
        wrong.push(format!("the dead waiter is told {answer:?}"));
    }
    let events = authority.apply(&h.releases("printer", token(1))).events.clone();
    for event in events {
        if let Happened::Granted { wait, grant, .. } = event.what
            && wait.session == w.session
        {
            let token = grant.token;
            wrong.push(format!("token {token} was spent on a session that has ended"));
        }
    }
    if authority.table.resource(&resource("printer")).is_some() {
        wrong.push("the printer is not free when its holder has left".into());
    }
    wrong
}

#[test]
fn scenario_a1_a_waiter_whose_session_ended_is_never_granted() {
    assert_eq!(grants_to_the_dead(LockTable::new()), Vec::<String>::new());
    // And no token was spent: the next grant has the next one.
    let (mut authority, mut h, _, _) = holder_and_dead_waiter(LockTable::new());
    authority.apply(&h.releases("printer", token(1)));
    let next = &authority.apply(&h.tries(&["printer"])).outcome;
    assert_eq!(*next, Ok(Done::Granted { token: token(2) }));
}

#[cfg(feature = "switches")]
#[test]
fn scenario_a1_is_found_without_its_rule() {
    use ringfence::locks::{Rule, Switches};
    let table = LockTable::new().with_switches(Switches::without(Rule::DeadWaitersLeave));
    assert!(!grants_to_the_dead(table).is_empty());
}

#[test]
fn scenario_a2_a_waiting_call_ends_in_the_entry_that_ends_its_session() {
    let (authority, h, w, _) = holder_and_dead_waiter(LockTable::new());
    let wait = WaitId { session: w.session, request: request(1) };
    let expired = authority.last.expect("the expiry was applied");
    let cause = LeaveCause::Session(EndCause::Expired);
    let names = vec![resource("printer")];
    let events: Vec<_> = expired.events.into_iter().map(|event| event.what).collect();
    assert_eq!(
        events,
        [
            Happened::LeftQueue { wait, names, cause: cause.clone() },
            Happened::Ended { session: w.session, cause: EndCause::Expired },
        ]
    );
    assert_eq!(cause.refusal(), Refusal::SessionExpired);
    assert!(expired.facts.contains(&Fact::TimerEnded { timer: Timer::Wait(wait) }));
    // H is not concerned.
    let held = authority.table.live_grant_on(&resource("printer"), token(1));
    assert_eq!(held.map(|grant| grant.wait.session), Some(h.session));
}

#[test]
fn scenario_a8_a_new_session_of_the_same_owner_inherits_nothing() {
    let mut authority = Authority::new();
    let mut first = authority.open(1, TTL);
    let acquire = first.tries(&["printer"]);
    authority.apply(&acquire);
    // As long as the old session lives the owner gets that one, and it counts as seen: an
    // expiry that was on its way spares it.
    let on_its_way = expiry(&authority.table, first.session);
    assert_eq!(authority.open(1, TTL).session, first.session);
    authority.apply(&on_its_way);
    assert!(authority.table.owned_session(first.owner, first.session).is_some());
    // When it has ended the next one is another, without the grant, and the old request
    // repeated gives nothing to either.
    authority.apply(&expiry(&authority.table, first.session));
    let second = authority.open(1, TTL);
    assert_ne!(second.session, first.session);
    assert_eq!(authority.apply(&acquire).outcome, Err(Refusal::SessionExpired));
    assert!(authority.table.owned_session(first.owner, first.session).is_none());
    let view = authority.table.session(second.session).expect("it was opened just now");
    assert_eq!(view.grants().len(), 0);
    assert_eq!(authority.table.grant(token(1)), None);
}

#[test]
fn scenario_a9_an_old_session_prolongs_nobody() {
    let mut authority = Authority::new();
    let mut a = authority.open(1, TTL);
    authority.apply(&a.tries(&["printer"]));
    authority.apply(&expiry(&authority.table, a.session));
    let mut b = authority.open(2, TTL);
    authority.apply(&b.tries(&["printer"]));
    let before = authority.table.session(b.session).expect("b is live").row.clone();
    // A renewal that goes through the log is a change of the ttl or a mark.
    let renewal = authority.apply(&a.sets_ttl(Millis(30_000))).outcome.clone();
    assert_eq!(renewal, Err(Refusal::SessionExpired));
    let facts = &authority.apply(&Command::MarkSeen { sessions: vec![a.session] }).facts;
    assert!(facts.is_empty(), "{facts:?}");
    // Nor does A renew B by naming B's session.
    a.session = b.session;
    let renewal = authority.apply(&a.sets_ttl(Millis(30_000))).outcome.clone();
    assert_eq!(renewal, Err(Refusal::SessionExpired));
    assert_eq!(authority.table.session(b.session).expect("b is live").row, &before);
}

#[test]
fn scenario_a10_a_late_release_leaves_the_successor_alone() {
    let mut authority = Authority::new();
    let (mut a, mut b) = (authority.open(1, TTL), authority.open(2, TTL));
    authority.apply(&a.tries(&["printer"]));
    authority.apply(&b.waits(&["printer"]));
    let late = a.releases("printer", token(1));
    authority.apply(&expiry(&authority.table, a.session));
    let holder = |authority: &Authority| {
        authority.table.live_grant_on(&resource("printer"), token(2)).map(|g| g.wait.session)
    };
    assert_eq!(holder(&authority), Some(b.session));
    // In the old session, and in a new one of the same owner.
    assert_eq!(authority.apply(&late).outcome, Err(Refusal::SessionExpired));
    let mut again = authority.open(1, TTL);
    for number in [1, 2] {
        let release = again.releases("printer", token(number));
        assert_eq!(authority.apply(&release).outcome, Err(Refusal::NotHeld));
    }
    assert_eq!(holder(&authority), Some(b.session));
}

#[test]
fn scenario_c1_a_release_grants_one_of_a_thousand_waiters_and_wakes_no_other() {
    let mut authority = Authority::new();
    let mut all: Vec<_> = (0..=1_000).map(|owner| authority.open(owner, TTL)).collect();
    for client in &mut all {
        authority.apply(&client.waits(&["printer"]));
    }
    let sessions: Vec<_> = all.iter().map(|client| client.session).collect();
    for (n, client) in (1..).zip(&mut all) {
        let events = &authority.apply(&client.releases("printer", token(n))).events;
        let granted = events.iter().filter_map(|event| match &event.what {
            Happened::Granted { wait, .. } => Some(wait.session),
            _ => None,
        });
        let next = sessions.get(usize::try_from(n).expect("a thousand")).copied();
        assert_eq!(granted.collect::<Vec<_>>(), next.into_iter().collect::<Vec<_>>());
        // One entry, and no more of it for a long queue than for a short one.
        assert!(events.len() <= 2, "{events:?}");
        assert!(authority.changed().len() <= 7, "{:?}", authority.changed());
    }
    assert!(authority.table.resource(&resource("printer")).is_none());
    assert_eq!(authority.table.check(), Vec::<String>::new());
}

#[test]
fn scenario_c7_a_wait_is_bounded_from_when_it_was_queued() {
    let mut authority = Authority::new();
    let (mut h, mut w) = (authority.open(1, TTL), authority.open(2, TTL));
    authority.apply(&h.tries(&["printer"]));
    let waits = w.acquire(&["printer"], Wait::UpTo(Millis(1_000)));
    let wait = WaitId { session: w.session, request: request(1) };
    let began = Fact::TimerBegan { timer: Timer::Wait(wait), after: Millis(1_000) };
    assert_eq!(authority.apply(&waits).facts, [began]);
    // A retry does not begin it anew, though it would wait longer.
    w.next = 1;
    let retry = w.acquire(&["printer"], Wait::UpTo(Millis(60_000)));
    let again = authority.apply(&retry);
    assert_eq!(again.outcome, Ok(Done::Queued { ahead: 0 }));
    assert!(again.facts.is_empty(), "{:?}", again.facts);
    // At its deadline the entry is gone from the queue, though the holder stays.
    authority.apply(&Command::ExpireWaits { waits: vec![wait] });
    assert_eq!(authority.table.wait(wait), None);
    assert_eq!(authority.apply(&retry).outcome, Err(Refusal::WaitTimeout));
    authority.apply(&h.releases("printer", token(1)));
    assert!(authority.table.resource(&resource("printer")).is_none());
}
