//! What one entry costs, counted: rows and events, not time.

use ringfence::locks::{
    Bootstrap, ClusterId, Command, Done, Effects, Limits, LockTable, Millis, Mode, Note, Overdue,
    Refusal, Term, Timer,
};

use crate::authority::{Authority, Client, Numbers, resource, token};

const TTL: Millis = Millis(20_000);

/// With room for many waiters.
fn roomy() -> Authority {
    let mut authority = Authority { table: LockTable::new(), last: None };
    let limits = Limits { waiters_per_resource_max: 20_000, ..Limits::default() };
    let cluster = ClusterId::new([1; 16]);
    authority.apply(&Command::Bootstrap(Bootstrap { cluster, token_floor: 0, limits }));
    authority
}

fn clients(authority: &mut Authority, count: u16) -> Vec<Client> {
    (0..count).map(|owner| authority.open(owner, TTL)).collect()
}

/// A holder leaves, and the first of so many waiters follows.
fn hand_over(mode: Mode, waiters: u16) -> Effects {
    let mut authority = roomy();
    let mut holder = authority.open(u16::MAX, TTL);
    authority.apply(&holder.tries_in(mode, &["pool"]));
    for (n, mut client) in clients(&mut authority, waiters).into_iter().enumerate() {
        // Behind the first who shares stands one who does not.
        let mode = if n == 1 { Mode::Exclusive } else { mode };
        let queued = &authority.apply(&client.waits_in(mode, &["pool"])).outcome;
        assert!(matches!(queued, Ok(Done::Queued { .. } | Done::Granted { .. })), "{queued:?}");
    }
    authority.apply(&holder.releases("pool", token(1))).clone()
}

#[test]
fn a_grant_to_the_next_waiter_touches_as_much_with_ten_as_with_ten_thousand_behind_it() {
    for mode in [Mode::Exclusive, Mode::Slots { of: 1 }] {
        let (few, many) = (hand_over(mode, 10), hand_over(mode, 10_000));
        let count =
            |effects: &Effects| (effects.changes.len(), effects.events.len(), effects.facts.len());
        assert_eq!(count(&few), count(&many), "{mode}");
        assert!(few.changes.len() <= 8 && few.events.len() == 2, "{few:?}");
    }
}

#[test]
fn who_holds_nothing_waits_behind_any_number_without_a_search() {
    let mut authority = roomy();
    let mut all = clients(&mut authority, 10_500);
    for (ahead, client) in all.iter_mut().enumerate() {
        let outcome = &authority.apply(&client.waits(&["printer"])).outcome;
        match ahead {
            0 => assert_eq!(*outcome, Ok(Done::Granted { token: token(1) })),
            ahead => assert_eq!(*outcome, Ok(Done::Queued { ahead: ahead as u64 - 1 })),
        }
    }
    // Who holds something is searched for, as far as the bound goes.
    let mut holder = authority.open(20_000, TTL);
    authority.apply(&holder.tries(&["plotter"]));
    let refused = authority.apply(&holder.waits(&["printer"])).outcome.clone();
    assert_eq!(refused, Err(Refusal::TooEntangled { max: 10_000 }));
    assert_eq!(authority.table.resource(&resource("printer")).map(|r| r.waiting()), Some(10_499));
}

/// Names of sets count as well: 160 sets of 64 names are more than a search visits.
#[test]
fn a_search_that_finds_too_many_names_is_given_up() {
    let mut authority = roomy();
    let mut all = clients(&mut authority, 162);
    let mut asks = all.split_off(160);
    authority.apply(&asks[0].tries(&["first"]));
    authority.apply(&asks[1].tries(&["mine"]));
    for (sets, client) in (1..).zip(&mut all) {
        let mut names: Vec<_> = (0..63).map(|n| format!("job/{sets}/{n}")).collect();
        names.push("first".to_owned());
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        authority.apply(&client.waits(&names));
        if sets == 150 {
            let queued = &authority.apply(&asks[1].waits(&["first"])).outcome;
            assert_eq!(*queued, Ok(Done::Queued { ahead: 150 }));
            let cancel = asks[1].cancels(2);
            authority.apply(&cancel);
        }
    }
    let refused = authority.apply(&asks[1].waits(&["first"])).outcome.clone();
    assert_eq!(refused, Err(Refusal::TooEntangled { max: 10_000 }));
}

/// One who shares nothing holds `A`, and more than an entry grants wait to share it. When it
/// leaves, what else opens is left over.
fn crowd_at_the_first_name() -> (Authority, Client) {
    let mut authority = roomy();
    let mut writer = authority.open(u16::MAX, TTL);
    authority.apply(&writer.tries(&["A"]));
    for mut client in clients(&mut authority, 1_050) {
        authority.apply(&client.waits_in(Mode::Shared, &["A"]));
    }
    (authority, writer)
}

fn restarted(authority: &Authority) -> Authority {
    let mut other = Authority { table: authority.table.clone(), last: None };
    other.restart();
    other
}

/// What is left over is a set that opened at one of its names, and a single waiter whose name
/// lies between them.
#[test]
fn what_an_entry_leaves_over_is_granted_in_one_order_whether_restarted_or_not() {
    let (mut authority, mut writer) = crowd_at_the_first_name();
    for name in ["b", "c"] {
        authority.apply(&writer.tries(&[name]));
    }
    let (mut single, mut set) = (authority.open(2_001, TTL), authority.open(2_002, TTL));
    authority.apply(&single.waits(&["b"]));
    authority.apply(&set.waits(&["a", "c"]));
    let (owner, session) = (writer.owner, writer.session);
    let closed = authority.apply(&Command::CloseSession { owner, session }).events.len();
    assert_eq!(closed, 3 + 1_024 + 1);
    let mut restarted = restarted(&authority);
    for table in [&mut authority, &mut restarted] {
        let left: Vec<_> = table.table.timers().filter(|(t, _)| *t == Timer::Settle).collect();
        assert_eq!(left, [(Timer::Settle, Millis(0))]);
        assert_eq!(table.apply(&Command::Settle).events.len(), 26 + 2);
        assert_eq!(table.table.check(), Vec::<String>::new());
    }
    assert_eq!(authority.table.state_hash(), restarted.table.state_hash());
    assert!(authority.table.timers().next().is_none(), "nothing is left over");
}

/// The same of any sets, holders and entries in between.
#[test]
fn a_restart_between_entries_that_leave_something_over_changes_nothing() {
    let (crowd, writer) = crowd_at_the_first_name();
    let names: Vec<_> = ('a'..='h').map(String::from).collect();
    for seed in 1..=30 {
        let mut authority = Authority { table: crowd.table.clone(), last: None };
        let mut numbers = Numbers(seed);
        let mut some = |most: usize| {
            let first = numbers.below(names.len());
            let count = 1 + numbers.below(most);
            (0..count).map(|n| names[(first + n * 3) % 8].as_str()).collect::<Vec<_>>()
        };
        let mut holders: Vec<_> = (2_000..2_003).map(|n| authority.open(n, TTL)).collect();
        let mut waiters: Vec<_> = (2_100..2_112).map(|n| authority.open(n, TTL)).collect();
        for client in &mut holders {
            authority.apply(&client.tries(&some(3)));
        }
        for client in &mut waiters {
            authority.apply(&client.waits(&some(3)));
        }
        let ended = holders.iter().chain([&writer]).map(|c| c.session);
        let sessions = ended.map(|session| Overdue { session, seen: u64::MAX }).collect();
        authority.apply(&Command::ExpireSessions { sessions });
        assert_eq!(authority.table.check(), Vec::<String>::new(), "seed {seed}");
        let mut other = restarted(&authority);
        let note = Note::new("dana", "cutover").expect("a good note");
        let freeze = Command::Freeze { resource: resource("d"), note };
        let cancel = waiters[0].cancels(1);
        for command in [cancel, freeze, Command::Settle] {
            let events = authority.apply(&command).events.clone();
            assert!(events == other.apply(&command).events, "seed {seed}: {command:?}");
        }
        assert_eq!(authority.table.state_hash(), other.table.state_hash(), "seed {seed}");
        assert_eq!(authority.table.check(), Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_long_run_of_those_who_share_is_granted_over_several_entries_in_order() {
    let mut authority = roomy();
    let mut writer = authority.open(u16::MAX, TTL);
    authority.apply(&writer.tries(&["map"]));
    let mut readers = clients(&mut authority, 3_000);
    for client in &mut readers {
        authority.apply(&client.waits_in(Mode::Shared, &["map"]));
    }
    let mut last = authority.open(3_001, TTL);
    authority.apply(&last.waits(&["map"]));
    authority.apply(&writer.releases("map", token(1)));
    let held = |authority: &Authority| {
        let view = authority.table.resource(&resource("map")).expect("held");
        view.holders().map(|g| g.wait.session).collect::<Vec<_>>()
    };
    let sessions: Vec<_> = readers.iter().map(|client| client.session).collect();
    assert_eq!(held(&authority), sessions[..1_024]);
    // A blank entry serves as well.
    let at =
        ringfence::locks::Position { term: Term(2), index: authority.table.position().index + 1 };
    authority.table.pass(at);
    assert_eq!(held(&authority), sessions[..2_048]);
    let at = ringfence::locks::Position { index: at.index + 1, ..at };
    authority.table.apply(at, &Command::Settle);
    assert_eq!(held(&authority), sessions);
    assert_eq!(authority.table.check(), Vec::<String>::new());
}
