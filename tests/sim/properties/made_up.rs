//! Entries that no correct table makes, to show that the checks would notice.

use ringfence::locks::{
    Done, Effects, Event, Granted, Happened, LockTable, Mode, Phase, Position, RequestId,
    ResourceName, Revision, SessionId, Term, Token, WaitId,
};

use crate::log::Committed;

pub fn granted(session: u64, name: &str, token: u64) -> Happened {
    let wait = WaitId { session: SessionId(session), request: RequestId::FIRST };
    let names = vec![ResourceName::new(name).expect("a plain name")];
    let token = Token::new(token).expect("a small token");
    let (floor, mode, slot, phase) = (token, Mode::Exclusive, None, Phase::Active);
    Happened::Granted { wait, names, grant: Granted { token, floor, mode, slot, phase } }
}

pub fn committed<T>(what: Happened, check: impl FnOnce(&Committed<'_>) -> T) -> T {
    let event = Event { at: Revision::default(), what };
    let (facts, changes) = (Vec::new(), Vec::new());
    let effects = Effects { outcome: Ok(Done::Nothing), events: vec![event], facts, changes };
    let at = Position { term: Term(1), index: 1 };
    check(&Committed { now: 0, at, command: None, effects: &effects, table: &LockTable::new() })
}
