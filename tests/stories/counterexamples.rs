//! The counterexamples of section 12 that the rules alone prevent. Each tells what went
//! wrong: nothing, or without its rule something.

use ringfence::locks::{Command, Done, LockTable, Millis, Note, Overdue, Refusal};

use crate::authority::{Authority, resource, token};

const TTL: Millis = Millis(20_000);

/// A renewal's mark comes before the expiry in the log. The expiry names what the leader
/// knew.
fn seen_just_before_its_expiry(table: LockTable) -> Vec<String> {
    let mut authority = Authority::on(table);
    let mut a = authority.open(1, TTL);
    authority.apply(&a.tries(&["printer"]));
    let seen = authority.table.session(a.session).expect("a is live").row.seen.index;
    authority.apply(&Command::MarkSeen { sessions: vec![a.session] });
    let sessions = vec![Overdue { session: a.session, seen }];
    // The same again: a proposal that "timed out" and was repeated.
    for _ in 0..2 {
        authority.apply(&Command::ExpireSessions { sessions: sessions.clone() });
    }
    match authority.table.grant(token(1)) {
        Some(_) => Vec::new(),
        None => vec!["a session lost its grant though its renewal was acknowledged".into()],
    }
}

/// A packet of an ended session arrives in the next session of the same owner.
fn late_packets_of_an_ended_session(table: LockTable) -> Vec<String> {
    let mut authority = Authority::on(table);
    let (mut first, mut other) = (authority.open(1, TTL), authority.open(2, TTL));
    authority.apply(&other.tries(&["printer"]));
    let late = [first.tries(&["plotter"]), first.cancels(1), first.sets_ttl(Millis(1_000))];
    let (owner, session) = (first.owner, first.session);
    authority.apply(&Command::CloseSession { owner, session });
    let mut second = authority.open(1, TTL);
    authority.apply(&second.waits(&["printer"]));
    let mut wrong = Vec::new();
    for packet in &late {
        let answer = authority.apply(packet).outcome.clone();
        if answer != Err(Refusal::SessionExpired) {
            wrong.push(format!("{packet:?} was answered {answer:?}"));
        }
    }
    authority.apply(&Command::CloseSession { owner, session });
    match authority.table.session(second.session) {
        Some(live) => {
            if live.waits().len() != 1 || live.grants().len() != 0 || live.row.ttl != TTL {
                wrong.push("the next session is not as it was".into());
            }
        }
        None => wrong.push("the next session was closed".into()),
    }
    wrong
}

/// An acquire arrives again after its release.
fn late_duplicate_of_an_acquire(table: LockTable) -> Vec<String> {
    let mut authority = Authority::on(table);
    let mut a = authority.open(1, TTL);
    let acquire = a.tries(&["printer"]);
    authority.apply(&acquire);
    authority.apply(&a.releases("printer", token(1)));
    let mut wrong = Vec::new();
    let answer = authority.apply(&acquire).outcome.clone();
    if answer != Err(Refusal::GrantEnded { token: token(1) }) {
        wrong.push(format!("the duplicate was answered {answer:?}"));
    }
    // By now the client has its answer, and says so.
    a.oldest = a.next;
    authority.apply(&a.tries(&["plotter"]));
    let answer = authority.apply(&acquire).outcome.clone();
    if answer != Err(Refusal::StaleRequest) {
        wrong.push(format!("below the floor the duplicate was answered {answer:?}"));
    }
    if authority.table.resource(&resource("printer")).is_some() {
        wrong.push("the duplicate was granted anew, and nobody knows of it".into());
    }
    wrong
}

/// A cancel arrives before the acquire that it cancels.
fn cancel_overtakes_its_acquire(table: LockTable) -> Vec<String> {
    let mut authority = Authority::on(table);
    let mut a = authority.open(1, TTL);
    let (acquire, cancel) = (a.waits(&["printer"]), a.cancels(1));
    let mut wrong = Vec::new();
    let answer = authority.apply(&cancel).outcome.clone();
    if answer != Ok(Done::CancelledTarget) {
        wrong.push(format!("the cancel was answered {answer:?}"));
    }
    let answer = authority.apply(&acquire).outcome.clone();
    if answer != Err(Refusal::Cancelled) {
        wrong.push(format!("the cancelled acquire was answered {answer:?}"));
    }
    if authority.table.resource(&resource("printer")).is_some() {
        wrong.push("the cancelled acquire took effect".into());
    }
    wrong
}

/// A retry asks for a grant that was revoked meanwhile; so does a cancel, which would tell it.
fn retry_of_an_ended_grant(table: LockTable) -> Vec<String> {
    let mut authority = Authority::on(table);
    let (mut a, mut b) = (authority.open(1, TTL), authority.open(2, TTL));
    let acquire = a.tries(&["printer"]);
    authority.apply(&acquire);
    let cancel = a.cancels(1);
    authority.apply(&cancel);
    let note = Note::new("dana", "it is stuck").expect("a good note");
    authority.apply(&Command::Revoke { resource: resource("printer"), token: token(1), note });
    authority.apply(&b.tries(&["printer"]));
    let mut wrong = Vec::new();
    for request in [acquire, cancel] {
        if let Ok(Done::Granted { token }) = authority.apply(&request).outcome
            && authority.table.grant(token).is_none()
        {
            wrong.push(format!("token {token} was told as granted, and is not live"));
        }
    }
    wrong
}

/// The owner opens again, is answered, and trusts that it has been seen.
fn repeated_open_before_an_expiry(table: LockTable) -> Vec<String> {
    let mut authority = Authority::on(table);
    let a = authority.open(1, TTL);
    let seen = authority.table.session(a.session).expect("a is live").row.seen.index;
    authority.open(1, TTL);
    let sessions = vec![Overdue { session: a.session, seen }];
    authority.apply(&Command::ExpireSessions { sessions });
    match authority.table.session(a.session) {
        Some(_) => Vec::new(),
        None => vec!["a session ended though its repeated open was acknowledged".into()],
    }
}

/// Each story goes well, and is found when its rule is switched off.
macro_rules! counterexample {
    ($story:ident, $rule:ident, $holds:ident, $found:ident) => {
        #[test]
        fn $holds() {
            assert_eq!($story(LockTable::new()), Vec::<String>::new());
        }

        #[cfg(feature = "switches")]
        #[test]
        fn $found() {
            use ringfence::locks::{Rule, Switches};
            let table = LockTable::new().with_switches(Switches::without(Rule::$rule));
            assert_ne!($story(table), Vec::<String>::new());
        }
    };
}

counterexample!(
    seen_just_before_its_expiry,
    ExpiryIsConditional,
    counterexample_03_an_expiry_spares_who_was_seen_since,
    counterexample_03_is_found_without_its_rule
);
counterexample!(
    late_packets_of_an_ended_session,
    SessionInRequest,
    counterexample_07_a_late_packet_does_not_touch_the_next_session,
    counterexample_07_is_found_without_its_rule
);
counterexample!(
    late_duplicate_of_an_acquire,
    OneEffectPerRequest,
    counterexample_08_a_late_duplicate_of_an_acquire_grants_nothing,
    counterexample_08_is_found_without_its_rule
);
counterexample!(
    cancel_overtakes_its_acquire,
    CancelIsRecorded,
    counterexample_09_a_cancel_may_overtake_its_acquire,
    counterexample_09_is_found_without_its_rule
);
counterexample!(
    retry_of_an_ended_grant,
    GrantRecheckedOnRetry,
    counterexample_10_a_retry_is_not_told_a_grant_that_was_revoked_meanwhile,
    counterexample_10_is_found_without_its_rule
);
counterexample!(
    repeated_open_before_an_expiry,
    OpenSees,
    counterexample_18_a_repeated_open_counts_as_a_renewal,
    counterexample_18_is_found_without_its_rule
);
