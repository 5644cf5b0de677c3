//! Commands of the log.

use std::collections::BTreeMap;

use ringfence::locks::{
    Bootstrap, Claim, ClusterId, Command, Handoff, Header, Limits, Millis, Mode, Note, Overdue,
    OwnerId, RequestId, ResourceName, SessionId, Terms, Token, Value, Wait, WaitId,
};
use ringfence::wire::log::{decode_command, encode_command};

use crate::frozen_list;

pub fn name(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a good name")
}

pub fn names(names: &[&str]) -> Vec<ResourceName> {
    names.iter().map(|n| name(n)).collect()
}

pub fn token(number: u64) -> Token {
    Token::new(number).expect("a good token")
}

pub fn id(number: u64) -> RequestId {
    RequestId::new(number).expect("1 or more")
}

pub fn note() -> Note {
    Note::new("dana", "moved to Köln").expect("a good note")
}

pub fn value() -> Value {
    Value::new(&[0, 1, 255]).expect("a short value")
}

fn owner() -> OwnerId {
    OwnerId::new([0xa5; 16])
}

fn header() -> Header {
    let (owner, session) = (owner(), SessionId(300));
    let answered = vec![id(9), id(12)];
    Header { owner, session, id: id(13), oldest_outstanding: id(7), answered }
}

fn acquire(names: Vec<ResourceName>, mode: Mode, terms: Terms, wait: Wait) -> Command {
    let claim = Claim::new(names, mode, terms).expect("a good claim");
    Command::Acquire { header: header(), claim, wait }
}

/// Those of the first release, whose bytes it wrote itself.
fn first() -> Vec<Command> {
    let limits = Limits {
        ttl_min: Millis(1),
        ttl_max: Millis(2),
        sessions_max: 3,
        places_per_session_max: 4,
        waiters_per_resource_max: 5,
    };
    let cluster = ClusterId::new([7; 16]);
    let labels = BTreeMap::from([("host".to_owned(), "db-7".to_owned())]);
    let sessions = vec![SessionId(300), SessionId(1 << 40)];
    let (resource, token) = (name("job/7"), token(1 << 50));
    let plain = Terms::default;
    let overdue = vec![Overdue { session: SessionId(300), seen: 299 }];
    let waits = vec![WaitId { session: SessionId(300), request: id(13) }];
    vec![
        Command::Bootstrap(Bootstrap { cluster, token_floor: 1 << 41, limits }),
        Command::OpenSession { owner: owner(), ttl: Millis(10_000), labels },
        Command::CloseSession { owner: owner(), session: SessionId(300) },
        Command::SetTtl { header: header(), ttl: Millis(20_000) },
        Command::MarkSeen { sessions },
        acquire(names(&["job/7"]), Mode::Exclusive, plain(), Wait::Try),
        acquire(names(&["a", "b/ü"]), Mode::Exclusive, plain(), Wait::UpTo(Millis(60_000))),
        Command::Cancel { header: header(), target: id(12) },
        Command::Release { header: header(), resource, token },
        Command::ExpireSessions { sessions: overdue },
        Command::ExpireWaits { waits },
    ]
}

/// Those of the whole lock model.
fn second() -> Vec<Command> {
    let terms = Terms {
        lock_delay: Millis(5_000),
        handoff: Handoff::Strict { barrier: Millis(30_000) },
        value: value(),
    };
    let (resource, token) = (name("job/7"), token(1 << 50));
    let named = || (resource.clone(), token, note());
    let tokens = vec![token, Token::new(1).expect("a good token")];
    let plain = Terms::default();
    let of_holder = |set: Option<Value>| {
        let (header, resource) = (header(), resource.clone());
        match set {
            Some(value) => Command::SetValue { header, resource, token, value },
            None => Command::Confirm { header, resource, token },
        }
    };
    let (revoke, thaw, ask) = (named(), named(), named());
    vec![
        acquire(names(&["map"]), Mode::Shared, plain, Wait::Try),
        acquire(names(&["s"]), Mode::Slots { of: 65_536 }, terms, Wait::UpTo(Millis(1))),
        of_holder(None),
        of_holder(Some(value())),
        of_holder(Some(Value::default())),
        Command::Revoke { resource: revoke.0, token: revoke.1, note: revoke.2 },
        Command::Freeze { resource: resource.clone(), note: note() },
        Command::Thaw { resource: thaw.0, token: thaw.1, note: thaw.2 },
        Command::Resize { resource: resource.clone(), slots: 300, note: note() },
        Command::AskRelease { resource: ask.0, token: ask.1, within: Millis(30_000), note: ask.2 },
        Command::ExpireBarriers { tokens: tokens.clone() },
        Command::EndClosures { tokens },
        Command::Settle,
    ]
}

fn frozen(record: &str, commands: &[Command]) {
    let read = |bytes| decode_command(bytes).expect("a command");
    frozen_list(record, commands, encode_command, read);
}

#[test]
fn commands_of_the_first_release_are_frozen() {
    frozen("commands", &first());
}

#[test]
fn commands_of_the_whole_lock_model_are_frozen() {
    frozen("commands_modes", &second());
}

#[test]
fn commands_of_a_newer_kind_are_refused_not_guessed() {
    // Kind 21, and an acquire in mode 4.
    assert!(decode_command(bytes::Bytes::from_static(&[0xaa, 1, 0])).is_err());
    let known = acquire(names(&["a"]), Mode::Shared, Terms::default(), Wait::Try);
    let stored = encode_command(&known);
    let place = stored.iter().rposition(|byte| *byte == 2).expect("mode 2 is last");
    let mut changed = stored.to_vec();
    changed[place] = 4;
    assert!(decode_command(changed.into()).is_err());
}
