//! Events that no correct table makes, to show that the checks would notice.

use ringfence::locks::{
    ClusterId, Done, Effects, Event, Fence, GrantEndCause, Granted, Happened, LockTable, Millis,
    Mode, Phase, Position, RequestId, ResourceName, Revision, SessionId, Term, Token, WaitId,
};

use crate::log::Committed;

fn grant(session: u64, name: &str, token: u64, mode: Mode, slot: Option<u32>) -> Happened {
    let token = Token::new(token).expect("a small token");
    let grant = Granted { token, floor: token, mode, slot, phase: Phase::Active };
    Happened::Granted { wait: wait(session), names: names(name), grant }
}

fn wait(session: u64) -> WaitId {
    WaitId { session: SessionId(session), request: RequestId::FIRST }
}

fn names(name: &str) -> Vec<ResourceName> {
    vec![ResourceName::new(name).expect("a plain name")]
}

pub fn granted(session: u64, name: &str, token: u64) -> Happened {
    grant(session, name, token, Mode::Exclusive, None)
}

pub fn shared(session: u64, name: &str, token: u64) -> Happened {
    grant(session, name, token, Mode::Shared, None)
}

/// One of two slots.
pub fn slot(session: u64, name: &str, token: u64, slot: u32) -> Happened {
    grant(session, name, token, Mode::Slots { of: 2 }, Some(slot))
}

/// The grant that a session of its own was given ends without its doing.
pub fn taken(session: u64, name: &str, token: u64, delay: Millis) -> Happened {
    let token = Token::new(token).expect("a small token");
    let (wait, names, cause) = (wait(session), names(name), GrantEndCause::Unconfirmed);
    Happened::GrantEnded { wait, names, slot: None, token, cause, delay }
}

pub fn fence(name: &str, token: u64, floor: u64, slot: Option<u32>) -> Fence {
    let number = |n| Token::new(n).expect("a small token");
    let resource = names(name).remove(0);
    let (token, floor, cluster) = (number(token), number(floor), ClusterId::new([7; 16]));
    Fence { cluster, resource, slot, token, floor }
}

pub fn queued(session: u64, name: &str) -> Happened {
    Happened::Queued { wait: wait(session), names: names(name), mode: Mode::Exclusive }
}

pub fn committed<T>(what: Happened, check: impl FnOnce(&Committed<'_>) -> T) -> T {
    let event = Event { at: Revision::default(), what };
    let (facts, changes) = (Vec::new(), Vec::new());
    let effects = Effects { outcome: Ok(Done::Nothing), events: vec![event], facts, changes };
    let at = Position { term: Term(1), index: 1 };
    check(&Committed { now: 0, at, command: None, effects: &effects, table: &LockTable::new() })
}
