//! A table of exclusive grants is what it was before there were other modes: so old and new
//! binaries agree for as long as nobody uses them.

use ringfence::locks::{Command, Millis, Overdue, RequestId, WaitId};

use crate::authority::{Authority, Client, Numbers};

/// What the release before computed for the log below.
const HASH: u128 = 282_427_418_328_048_177_432_304_086_733_368_284_087;
const TOKENS: u64 = 714;

/// Sets, waits, cancels and ends of all kinds. Who holds or awaits something only tries: a
/// wait that would never be granted is refused today.
fn next(authority: &Authority, client: &mut Client, numbers: &mut Numbers) -> Command {
    const SETS: [&[&str]; 6] = [&["a"], &["b"], &["c"], &["d"], &["a", "b"], &["a", "c", "d"]];
    let session = client.session;
    let view = authority.table.session(session).expect("it was opened again");
    let held = view.grants().next().map(|g| (g.token, g.names[0].as_str().to_owned()));
    let waits: Vec<RequestId> = view.waits().map(|w| w.wait.request).collect();
    let names = SETS[numbers.below(SETS.len())];
    match (numbers.below(12), held, waits.first()) {
        (0..=4, None, None) => client.waits(names),
        (0..=2, _, _) => client.tries(names),
        (3..=7, Some((token, name)), _) => client.releases(&name, token),
        (8, _, Some(request)) => client.cancels(request.get()),
        (9, _, Some(&request)) => Command::ExpireWaits { waits: vec![WaitId { session, request }] },
        (9, _, None) => Command::CloseSession { owner: client.owner, session },
        (10, _, _) => Command::ExpireSessions {
            sessions: vec![Overdue { session, seen: view.row.seen.index }],
        },
        (11, _, _) => client.sets_ttl(Millis(10_000 + view.row.ttl.0 % 7)),
        (_, _, _) => client.tries(names),
    }
}

#[test]
fn a_log_of_exclusive_claims_makes_the_state_that_the_release_before_made_of_it() {
    let mut authority = Authority::new();
    let mut numbers = Numbers(11);
    let mut clients: Vec<_> = (0..8).map(|n| authority.open(n, Millis(10_000))).collect();
    for round in 0..5_000 {
        let which = numbers.below(clients.len());
        if authority.table.session(clients[which].session).is_none() {
            clients[which] = authority.open(u16::try_from(which).expect("8"), Millis(10_000));
        }
        if round % 3 == 0 {
            clients[which].oldest = clients[which].next;
        }
        let command = next(&authority, &mut clients[which], &mut numbers);
        authority.apply(&command);
    }
    let (sessions, grants, waits) = authority.table.counts();
    assert!(sessions > 4 && grants > 0 && waits > 0, "{sessions}, {grants}, {waits}");
    assert_eq!((authority.table.token(), authority.table.state_hash().0), (TOKENS, HASH));
}
