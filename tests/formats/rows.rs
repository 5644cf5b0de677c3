//! Rows of the lock table, and the outcomes that are kept.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use ringfence::locks::{
    Asked, Blocked, ClosureRow, ClusterId, Done, FrozenRow, GrantRow, Limit, Limits, MetaRow,
    Millis, Mode, Outcome, OutcomeRow, OwnerId, Phase, Position, Refusal, ResizedRow, Revision,
    Row, RowKey, SessionId, SessionRow, Term, Terms, Value, WaitId, WaitRow, WindowRow,
};
use ringfence::wire::rows::{decode_row, encode_key, encode_row};

use crate::commands::{id, name, names, note, token, value};
use crate::frozen_list;

const SESSION: SessionId = SessionId(300);

fn at(ordinal: u32) -> Revision {
    Revision { index: 70_000, ordinal }
}

fn wait_id() -> WaitId {
    WaitId { session: SESSION, request: id(13) }
}

fn grant() -> GrantRow {
    GrantRow {
        token: token(1 << 50),
        floor: token(1 << 50),
        wait: wait_id(),
        names: names(&["a", "b/ü"]),
        mode: Mode::Exclusive,
        granted_at: at(3),
        slot: None,
        phase: Phase::Active,
        lock_delay: Millis(0),
        value: Value::default(),
        asked: None,
    }
}

fn wait() -> WaitRow {
    WaitRow {
        wait: wait_id(),
        fingerprint: 1 << 63,
        names: names(&["a", "b/ü"]),
        mode: Mode::Exclusive,
        deadline: Millis(60_000),
        queued_at: at(0),
        terms: Terms::default(),
    }
}

fn outcome_rows(outcomes: Vec<Outcome>) -> Vec<Row> {
    let row = |(n, outcome)| {
        let fingerprint = (n % 2 == 0).then_some(n + (1 << 60));
        Row::Outcome(OutcomeRow { session: SESSION, request: id(n + 1), fingerprint, outcome })
    };
    (0_u64..).zip(outcomes).map(row).collect()
}

/// Those of the first release, whose bytes it wrote itself.
fn first() -> Vec<Row> {
    let limits = Limits {
        ttl_min: Millis(1),
        ttl_max: Millis(2),
        sessions_max: 3,
        places_per_session_max: 4,
        waiters_per_resource_max: 5,
    };
    let seen = Position { term: Term(3), index: 69_000 };
    let labels = BTreeMap::from([("host".to_owned(), "db-7".to_owned())]);
    vec![
        Row::Meta(MetaRow {
            cluster: Some(ClusterId::new([7; 16])),
            position: Position { term: Term(3), index: 70_000 },
            token: 1 << 50,
            limits,
        }),
        Row::Meta(MetaRow::default()),
        Row::Session(SessionRow {
            session: SESSION,
            owner: OwnerId::new([0xa5; 16]),
            ttl: Millis(10_000),
            seen,
            labels,
        }),
        Row::Window(WindowRow {
            session: SESSION,
            floor: id(7),
            finished: vec![(id(9), id(9)), (id(12), id(40))],
            changed_at: at(2),
        }),
        Row::Grant(grant()),
        Row::Wait(wait()),
    ]
}

fn first_outcomes() -> Vec<Outcome> {
    vec![
        Ok(Done::TtlSet { ttl: Millis(20_000) }),
        Ok(Done::Granted { token: token(1 << 50) }),
        Ok(Done::Released { at: at(1) }),
        Ok(Done::CancelledTarget),
        Err(Refusal::Busy { holder: Some(token(9)), waiting: 3 }),
        Err(Refusal::Busy { holder: None, waiting: 1 }),
        Err(Refusal::AlreadyHeld {
            resource: name("a"),
            token: token(9),
            mode: Mode::Exclusive,
            phase: Phase::Active,
        }),
        Err(Refusal::AlreadyWaiting { resource: name("b"), request: id(5) }),
        Err(Refusal::Cancelled),
        Err(Refusal::WaitTimeout),
        Err(Refusal::NotHeld),
        Err(Refusal::QueueFull { max: 10_000 }),
        Err(Refusal::LimitReached { limit: Limit::Sessions, max: 2 }),
        Err(Refusal::LimitReached { limit: Limit::PlacesPerSession, max: 10_000 }),
        Err(Refusal::LimitReached { limit: Limit::Tokens, max: (1 << 53) - 1 }),
    ]
}

/// Those of the whole lock model.
fn second() -> Vec<Row> {
    let barrier = ringfence::locks::Handoff::Strict { barrier: Millis(30_000) };
    let terms = Terms { lock_delay: Millis(5_000), handoff: barrier, value: value() };
    let (slots, single) = (Mode::Slots { of: 65_536 }, names(&["s"]));
    let asked = Some(Asked { at: at(9), within: Millis(30_000), note: note() });
    let delay = Millis(5_000);
    let closure = |slot, mode, names| {
        Row::Closure(ClosureRow { token: token(9), names, mode, slot, delay, since: at(1) })
    };
    vec![
        Row::Grant(GrantRow {
            floor: token(9),
            names: single.clone(),
            mode: slots,
            slot: Some(0),
            phase: Phase::Barrier { deadline: Millis(30_000) },
            lock_delay: delay,
            value: value(),
            asked,
            ..grant()
        }),
        Row::Grant(GrantRow { mode: Mode::Shared, names: single.clone(), ..grant() }),
        Row::Wait(WaitRow { names: single.clone(), mode: slots, terms, ..wait() }),
        closure(None, Mode::Exclusive, names(&["a", "b/ü"])),
        closure(Some(0), slots, single.clone()),
        closure(Some(300), slots, single),
        Row::Frozen(FrozenRow { token: token(10), name: name("db"), note: note(), since: at(2) }),
        Row::Resized(ResizedRow {
            token: token(11),
            name: name("s"),
            slots: 300,
            note: note(),
            since: at(3),
        }),
    ]
}

fn second_outcomes() -> Vec<Outcome> {
    let blocked = |n, on| Blocked { session: SessionId(n), resource: name(on) };
    let phase = Phase::Barrier { deadline: Millis(30_000) };
    let (resource, token) = (name("a"), token(9));
    vec![
        Ok(Done::Confirmed { at: at(1) }),
        Ok(Done::ValueSet { at: at(2) }),
        Err(Refusal::AlreadyHeld { resource, token, mode: Mode::Slots { of: 3 }, phase }),
        Err(Refusal::TooEntangled { max: 10_000 }),
        Err(Refusal::Deadlock { cycle: vec![blocked(300, "a"), blocked(301, "b/ü")] }),
        Err(Refusal::CapacityMismatch { resource: name("s"), slots: 3 }),
        Err(Refusal::Frozen { resource: name("db"), token }),
        Err(Refusal::LimitReached { limit: Limit::Holders, max: 65_536 }),
        Err(Refusal::LimitReached { limit: Limit::Closures, max: 10_000 }),
        Err(Refusal::LimitReached { limit: Limit::Frozen, max: 100_000 }),
    ]
}

/// A key, its length before it, and the row.
fn stored(row: &Row) -> Bytes {
    let key = encode_key(row.key());
    let mut bytes = BytesMut::new();
    bytes.extend_from_slice(&[u8::try_from(key.len()).expect("keys are short")]);
    bytes.extend_from_slice(&key);
    bytes.extend_from_slice(&encode_row(row));
    bytes.freeze()
}

fn read(mut bytes: Bytes) -> Row {
    let length = usize::from(bytes.split_to(1)[0]);
    let key = bytes.split_to(length);
    let row = decode_row(bytes).expect("a row");
    assert_eq!(encode_key(row.key()), key);
    row
}

fn frozen(record: &str, rows: &[Row]) {
    frozen_list(record, rows, stored, read);
}

#[test]
fn rows_of_the_first_release_are_frozen() {
    frozen("rows", &first());
    frozen("outcomes", &outcome_rows(first_outcomes()));
}

#[test]
fn rows_of_the_whole_lock_model_are_frozen() {
    frozen("rows_modes", &second());
    frozen("outcomes_modes", &outcome_rows(second_outcomes()));
}

/// The order of keys in the store is that of the rows in a snapshot.
#[test]
fn stored_keys_sort_as_keys_do() {
    let rows = first().into_iter().chain(second());
    let mut keys: Vec<RowKey> = rows.map(|row| row.key()).collect();
    keys.extend([
        RowKey::Closure(token(300)),
        RowKey::Wait(WaitId { session: SESSION, request: id(2) }),
    ]);
    keys.sort();
    let stored: Vec<_> = keys.iter().map(|key| encode_key(*key)).collect();
    assert!(stored.is_sorted(), "{stored:?}");
}
