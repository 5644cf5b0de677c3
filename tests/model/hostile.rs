//! Commands that the edge would never let through. Whatever a log holds, the table
//! neither panics nor breaks an invariant: a replica that fell over an entry would fall
//! over it again after every restart.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use ringfence::locks::{
    Bootstrap, Claim, ClusterId, Command, Handoff, Header, Limits, Millis, Mode, Note, Overdue,
    OwnerId, RequestId, ResourceName, SLOTS_MAX, SessionId, Switches, Term, Terms, Token, Value,
    Wait, WaitId,
};

use crate::checked::Checked;
use crate::random::config;

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn no_command_panics_or_breaks_an_invariant(commands in vec(command(), 1..80)) {
        let mut table = Checked::new(Switches::default());
        let labels = BTreeMap::new();
        let owner = OwnerId::new([0; 16]);
        table.apply(Some(Command::Bootstrap(bootstrap(0, 3))));
        table.apply(Some(Command::OpenSession { owner, ttl: Millis(1_000), labels }));
        for (n, command) in (1..).zip(commands) {
            table.set_term(Term(1 + n / 10));
            let what = format!("{command:?}");
            table.apply(Some(command));
            if let Err(wrong) = table.check() {
                return Err(TestCaseError::fail(format!("{what}: {wrong}")));
            }
        }
        prop_assert_eq!(table.replayed(), table.table().state_hash());
    }
}

/// Any number, and often a small one or the largest.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 1..8_u64, 1 => any::<u64>().prop_map(|n| n.max(1)), 1 => Just(u64::MAX)]
}

fn request() -> impl Strategy<Value = RequestId> {
    number().prop_map(|n| RequestId::new(n).expect("1 or more"))
}

fn session() -> impl Strategy<Value = SessionId> {
    prop_oneof![4 => 2..6_u64, 1 => number(), 1 => Just(0)].prop_map(SessionId)
}

fn owner() -> impl Strategy<Value = OwnerId> {
    (0..3_u8).prop_map(|n| OwnerId::new([n; 16]))
}

fn token() -> impl Strategy<Value = Token> {
    number().prop_map(|n| Token::new(n.min(Token::MAX)).expect("within the bounds"))
}

fn name() -> impl Strategy<Value = ResourceName> {
    (0..3_u8).prop_map(|n| ResourceName::new(&format!("r{n}")).expect("a good name"))
}

/// `oldest_outstanding` above the id, its own id answered, more answered than allowed.
fn header() -> impl Strategy<Value = Header> {
    let answered = prop_oneof![3 => vec(request(), 0..3), 1 => vec(request(), 60..90)];
    (owner(), session(), request(), request(), answered).prop_map(
        |(owner, session, id, oldest_outstanding, answered)| Header {
            owner,
            session,
            id,
            oldest_outstanding,
            answered,
        },
    )
}

/// Names in any order, repeated, or none at all.
fn claim() -> impl Strategy<Value = Claim> {
    (vec(name(), 0..5), mode(), terms()).prop_map(|(mut names, mode, terms)| {
        // What is stored of a mode with several names is refused when it is read.
        names.truncate(if mode == Mode::Exclusive { 5 } else { 1 });
        Claim { names, mode, terms }
    })
}

/// With as many slots as there may be, too.
fn mode() -> impl Strategy<Value = Mode> {
    let of = prop_oneof![4 => 1..4_u32, 1 => Just(SLOTS_MAX)];
    prop_oneof![
        2 => Just(Mode::Exclusive),
        1 => Just(Mode::Shared),
        2 => of.prop_map(|of| Mode::Slots { of }),
    ]
}

/// Times of nothing, and of for ever.
fn terms() -> impl Strategy<Value = Terms> {
    let handoff = prop_oneof![
        2 => Just(Handoff::Plain),
        1 => (0..3_u64).prop_map(|ms| Handoff::Strict { barrier: Millis(ms) }),
    ];
    let lock_delay = prop_oneof![Just(0), Just(7), Just(u64::MAX)].prop_map(Millis);
    (lock_delay, handoff).prop_map(|(lock_delay, handoff)| Terms {
        lock_delay,
        handoff,
        ..Terms::default()
    })
}

fn bootstrap(token_floor: u64, most: u64) -> Bootstrap {
    let limits = Limits {
        ttl_min: Millis(0),
        ttl_max: Millis(u64::MAX),
        sessions_max: most,
        places_per_session_max: most,
        waiters_per_resource_max: most,
    };
    Bootstrap { cluster: ClusterId::new([0; 16]), token_floor, limits }
}

fn command() -> impl Strategy<Value = Command> {
    let millis = || number().prop_map(Millis);
    let wait = prop_oneof![Just(Wait::Try), millis().prop_map(Wait::UpTo)];
    let wait_id = (session(), request()).prop_map(|(session, request)| WaitId { session, request });
    let overdue = (session(), number()).prop_map(|(session, seen)| Overdue { session, seen });
    prop_oneof![
        1 => (number(), 0..3_u64).prop_map(|(floor, most)| Command::Bootstrap(bootstrap(floor, most))),
        4 => (owner(), millis()).prop_map(|(owner, ttl)| Command::OpenSession {
            owner,
            ttl,
            labels: BTreeMap::new()
        }),
        1 => (owner(), session())
            .prop_map(|(owner, session)| Command::CloseSession { owner, session }),
        2 => (header(), millis()).prop_map(|(header, ttl)| Command::SetTtl { header, ttl }),
        1 => vec(session(), 0..4).prop_map(|sessions| Command::MarkSeen { sessions }),
        9 => (header(), claim(), wait)
            .prop_map(|(header, claim, wait)| Command::Acquire { header, claim, wait }),
        4 => (header(), prop_oneof![request().boxed(), Just(RequestId::FIRST).boxed()])
            .prop_map(|(header, target)| Command::Cancel { header, target }),
        // Cancels itself.
        1 => header().prop_map(|header| Command::Cancel { target: header.id, header }),
        4 => (header(), name(), token())
            .prop_map(|(header, resource, token)| Command::Release { header, resource, token }),
        3 => (header(), name(), token())
            .prop_map(|(header, resource, token)| Command::Confirm { header, resource, token }),
        1 => (header(), name(), token()).prop_map(|(header, resource, token)| {
            Command::SetValue { header, resource, token, value: Value::default() }
        }),
        6 => administration(),
        2 => vec(token(), 0..4).prop_map(|tokens| Command::ExpireBarriers { tokens }),
        2 => vec(token(), 0..4).prop_map(|tokens| Command::EndClosures { tokens }),
        1 => Just(Command::Settle),
        1 => vec(overdue, 0..4).prop_map(|sessions| Command::ExpireSessions { sessions }),
        2 => vec(wait_id, 0..4).prop_map(|waits| Command::ExpireWaits { waits }),
    ]
}

fn administration() -> impl Strategy<Value = Command> {
    let note = Note::default;
    prop_oneof![
        (name(), token()).prop_map(move |(resource, token)| Command::Revoke {
            resource,
            token,
            note: note()
        }),
        name().prop_map(move |resource| Command::Freeze { resource, note: note() }),
        (name(), token()).prop_map(move |(resource, token)| Command::Thaw {
            resource,
            token,
            note: note()
        }),
        (name(), prop_oneof![4 => 0..4_u32, 1 => any::<u32>()])
            .prop_map(move |(resource, slots)| Command::Resize { resource, slots, note: note() }),
        (name(), token(), number()).prop_map(move |(resource, token, within)| {
            Command::AskRelease { resource, token, within: Millis(within), note: note() }
        }),
    ]
}
