//! Events that no correct table makes, to show that the checks would notice.

use ringfence::locks::{
    Done, Effects, Event, Granted, Happened, LockTable, Mode, Phase, Position, RequestId,
    ResourceName, Revision, SessionId, Term, Token, WaitId,
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
