//! Stored records are frozen: the bytes of each kind, per format version, in
//! `tests/formats/v<version>/<record>.hex`.
//!
//! `RINGFENCE_WRITE_FORMATS=1 cargo test --test formats` writes the files of records
//! that have none yet. One that is there is never rewritten: what a release has
//! written is read for ever.
#![cfg(feature = "server")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ringfence::raft_types::{
    EncodedCommand, Entry, EntryPayload, Member, Membership, StoredMembership, Vote,
};
use ringfence::storage::AppliedState;
use ringfence::storage::format::{
    FORMAT_VERSION, decode_applied, decode_entry, decode_log_id, decode_membership, decode_vote,
    encode_applied, encode_entry, encode_entry_into, encode_log_id, encode_membership, encode_vote,
    log_id,
};

#[path = "formats/commands.rs"]
mod commands;
#[path = "formats/rows.rs"]
mod rows;

fn file(record: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/formats/v{FORMAT_VERSION}/{record}.hex"))
}

fn to_hex(bytes: &[u8]) -> String {
    let mut lines = String::new();
    for line in bytes.chunks(32) {
        lines.extend(line.iter().map(|byte| format!("{byte:02x}")));
        lines.push('\n');
    }
    lines
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| {
        let pair: String = pair.iter().collect();
        u8::from_str_radix(&pair, 16).expect("hexadecimal digits in pairs")
    };
    digits.chunks(2).map(byte).collect()
}

/// The value has these bytes, and these bytes have the value.
fn frozen<T: Debug + PartialEq>(record: &str, value: &T, bytes: &[u8], read: impl Fn(Bytes) -> T) {
    let path = file(record);
    if std::env::var_os("RINGFENCE_WRITE_FORMATS").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("created");
        std::fs::write(&path, to_hex(bytes)).expect("written");
    }
    let golden = std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; see the head of this file", path.display()));
    assert_eq!(to_hex(bytes), golden, "{record} is written otherwise than it was");
    assert_eq!(&read(Bytes::from(from_hex(&golden))), value, "{record} is read otherwise");
}

/// The same of many values; each is a line of the file.
fn frozen_list<T: Debug + PartialEq>(
    record: &str,
    values: &[T],
    write: impl Fn(&T) -> Bytes,
    read: impl Fn(Bytes) -> T,
) {
    let path = file(record);
    let line = |value: &T| to_hex(&write(value)).replace('\n', "");
    let written: Vec<_> = values.iter().map(line).collect();
    if std::env::var_os("RINGFENCE_WRITE_FORMATS").is_some() && !path.exists() {
        std::fs::write(&path, written.join("\n") + "\n").expect("written");
    }
    let golden = std::fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("{}: {e}; see the head of this file", path.display()));
    let golden: Vec<_> = golden.lines().collect();
    assert_eq!(golden.len(), values.len(), "{record} is a list of another length");
    for ((value, written), golden) in values.iter().zip(&written).zip(golden) {
        assert_eq!(written, golden, "{value:?} is written otherwise than it was");
        assert_eq!(&read(Bytes::from(from_hex(golden))), value, "it is read otherwise");
    }
}

fn member(node: u8) -> Member {
    Member { address: format!("node-{node}.example:7000"), incarnation: [node; 16] }
}

/// Voters 1, 2, 3 on their way to 2, 3, 4; node 5 learns.
fn joint() -> Membership {
    let configs = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3, 4])];
    let nodes: BTreeMap<u64, Member> = (1..=5).map(|n| (u64::from(n), member(n))).collect();
    Membership::new(configs, nodes).expect("voters that are nodes")
}

fn frozen_entry(record: &str, payload: EntryPayload) {
    let entry = Entry { log_id: log_id(3, 70_000), payload };
    let bytes = encode_entry(&entry);
    let mut appended = vec![9];
    encode_entry_into(&entry, &mut appended);
    assert_eq!(appended[1..], bytes);
    frozen(record, &entry, &bytes, |bytes| decode_entry(bytes).expect("an entry"));
}

#[test]
fn log_entries_are_frozen() {
    let command = EncodedCommand(Bytes::from_static(b"\x12\x02\x10\x05 opaque here"));
    frozen_entry("log_entry_blank", EntryPayload::Blank);
    frozen_entry("log_entry_command", EntryPayload::Normal(command));
    frozen_entry("log_entry_membership", EntryPayload::Membership(joint()));
}

#[test]
fn the_first_log_entry_is_frozen() {
    let entry = Entry { log_id: log_id(0, 0), payload: EntryPayload::Blank };
    let read = |bytes| decode_entry(bytes).expect("an entry");
    frozen("log_entry_first", &entry, &encode_entry(&entry), read);
}

#[test]
fn votes_are_frozen() {
    let read = |bytes| decode_vote(bytes).expect("a vote");
    for (record, vote) in
        [("vote", Vote::new(300, 2)), ("vote_committed", Vote::new_committed(300, 2))]
    {
        frozen(record, &vote, &encode_vote(&vote), read);
    }
}

#[test]
fn log_ids_are_frozen() {
    let id = log_id(300, 1 << 40);
    frozen("log_id", &id, &encode_log_id(&id), |bytes| decode_log_id(bytes).expect("a log id"));
}

#[test]
fn memberships_are_frozen() {
    let read = |bytes| decode_membership(bytes).expect("a membership");
    frozen("membership", &joint(), &encode_membership(&joint()), read);
    let none = Membership::default();
    frozen("membership_none", &none, &encode_membership(&none), read);
}

#[test]
fn applied_states_are_frozen() {
    let read = |bytes| decode_applied(bytes).expect("an applied state");
    let applied = AppliedState {
        last_applied: Some(log_id(3, 70_001)),
        membership: StoredMembership::new(Some(log_id(3, 70_000)), joint()),
    };
    frozen("applied", &applied, &encode_applied(&applied), read);
    let none = AppliedState::default();
    frozen("applied_none", &none, &encode_applied(&none), read);
}

#[test]
fn records_of_a_newer_kind_are_refused_not_guessed() {
    // A log entry with payload number 9, which is none of this release's.
    assert!(decode_entry(&[0x08, 3, 0x10, 7, 0x4a, 0][..]).is_err());
    assert!(decode_entry(&[0xff][..]).is_err());
    // A voter that is no node, and an incarnation of 3 bytes.
    assert!(decode_membership(&[0x0a, 3, 0x0a, 1, 1][..]).is_err());
    assert!(decode_membership(&[0x12, 7, 0x08, 1, 0x1a, 3, 1, 2, 3][..]).is_err());
}
