//! What is used once leaves nothing behind, and yet no token comes back.

use ringfence::locks::{Command, Done, LockTable, Millis, Refusal, Row, StateHash};

use crate::authority::{Authority, resource, token};

const TTL: Millis = Millis(20_000);

/// The hash of this row alone: a table that has no other.
fn hash_of_alone(row: Row) -> StateHash {
    LockTable::from_rows([row]).expect("a meta row alone makes a table").state_hash()
}

#[test]
fn scenario_d1_names_used_once_leave_nothing_behind() {
    // The report speaks of 10 million names. After each nothing is left, and so a
    // two-hundredth of them shows as much, in a second of a debug build.
    let names = 50_000;
    let mut authority = Authority::new();
    let mut client = authority.open(1, TTL);
    authority.apply(&client.tries(&["first"]));
    authority.apply(&client.releases("first", token(1)));
    client.oldest = client.next;
    for number in 2..=names {
        let name = format!("job/{number}");
        let granted = authority.apply(&client.tries(&[&name])).outcome.clone();
        assert_eq!(granted, Ok(Done::Granted { token: token(number) }));
        authority.apply(&client.releases(&name, token(number)));
        client.oldest = client.next;
    }
    // Meta, session and window, and the two outcomes that the last request does not yet
    // say that it has.
    assert_eq!(authority.table.rows().count(), 5);
    assert_eq!(authority.table.resources_with_prefix("", None).count(), 0);
    assert_eq!(authority.table.counts(), (1, 0, 0));
    // Without the session nothing but the counter is left, and the hash is that of the
    // one row.
    let (owner, session) = (client.owner, client.session);
    authority.apply(&Command::CloseSession { owner, session });
    let rows: Vec<_> = authority.table.rows().collect();
    let [meta @ Row::Meta(row)] = &rows[..] else { panic!("more than the meta row: {rows:?}") };
    assert_eq!(row.token, names);
    assert_eq!(authority.table.state_hash(), hash_of_alone(meta.clone()));
}

#[test]
fn scenario_d3_an_acquire_that_fails_leaves_no_session_and_no_row() {
    let mut authority = Authority::new();
    let (mut holder, mut client) = (authority.open(1, TTL), authority.open(2, TTL));
    authority.apply(&holder.tries(&["printer"]));
    authority.apply(&client.tries(&["printer"]));
    let (counts, rows) = (authority.table.counts(), authority.table.rows().count());
    for _ in 0..10_000 {
        client.oldest = client.next;
        let refused = authority.apply(&client.tries(&["printer"])).outcome.clone();
        assert_eq!(refused, Err(Refusal::Busy { holder: Some(token(1)), waiting: 0 }));
    }
    assert_eq!(authority.table.counts(), counts);
    assert_eq!(authority.table.rows().count(), rows);
    assert_eq!(authority.table.token(), 1);
}

#[test]
fn scenario_e3_a_name_that_was_forgotten_gets_a_greater_token() {
    let mut authority = Authority::new();
    for round in 1..=50 {
        let mut client = authority.open(1, TTL);
        let granted = authority.apply(&client.tries(&["printer"])).outcome.clone();
        assert_eq!(granted, Ok(Done::Granted { token: token(round) }));
        let (owner, session) = (client.owner, client.session);
        authority.apply(&Command::CloseSession { owner, session });
        assert!(authority.table.resource(&resource("printer")).is_none());
        assert_eq!(authority.table.rows().count(), 1);
        authority.restart();
    }
}

#[test]
fn scenario_e4_of_two_grants_the_greater_token_is_the_later_in_the_log() {
    let mut authority = Authority::new();
    let mut clients = [1, 2, 3].map(|owner| authority.open(owner, TTL));
    let names: Vec<_> = (0..20).map(|n| format!("job/{n:02}")).collect();
    for name in &names {
        authority.apply(&clients[0].tries(&[name]));
        authority.apply(&clients[1].waits(&[name]));
        authority.apply(&clients[2].waits(&[name]));
    }
    let mut grants: Vec<_> = names
        .iter()
        .filter_map(|name| authority.table.resource(&resource(name)).map(|r| r.holders()))
        .flatten()
        .cloned()
        .collect();
    // Twenty grants in one entry, twice: they differ by their place inside it.
    for client in &clients[..2] {
        let (owner, session) = (client.owner, client.session);
        authority.apply(&Command::CloseSession { owner, session });
        let next = authority.table.resources_with_prefix("", None).flat_map(|r| r.holders());
        grants.extend(next.cloned());
    }
    assert_eq!(grants.len(), 60);
    for a in &grants {
        for b in &grants {
            assert_eq!(a.token.cmp(&b.token), a.granted_at.cmp(&b.granted_at));
        }
    }
}
