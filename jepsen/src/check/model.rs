//! A lock with leases and fencing tokens, as a model for the search.

use super::evidence::{Mode, NEVER};
use super::facts::conflict;
use super::search::{Model, Step};

/// A call on one resource.
#[derive(Clone, Debug)]
pub enum Call {
    /// A grant.
    Acquire {
        /// Its token; none if the answer was lost.
        token: Option<u64>,
        /// Its mode.
        mode: Mode,
        /// Its slot.
        slot: Option<u32>,
        /// It does not end by itself before. 0 if nobody knows.
        end: u64,
    },
    /// The end of the grant with this token.
    Release {
        /// The token.
        token: u64,
        /// What it answered: done, or not held.
        done: bool,
    },
    /// Who holds it, by tokens upwards.
    Read {
        /// The tokens.
        holders: Vec<u64>,
    },
}

/// Someone who holds the resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// 0 if nobody knows.
    token: u64,
    mode: Mode,
    slot: Option<u32>,
    end: u64,
}

/// Who holds it; the highest token so far; and a time that has passed by now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct State {
    holders: Vec<Holder>,
    highest: u64,
    now: u64,
}

/// The lock. A grant ends by release, or by itself, but not before its earliest legal end.
#[derive(Debug)]
pub struct Lock;

impl Model for Lock {
    type Call = Call;
    type State = State;

    fn init(&self) -> State {
        State::default()
    }

    fn step(&self, state: &State, step: &Step<Call>) -> Option<State> {
        let mut state = state.clone();
        state.now = state.now.max(step.inv);
        match &step.call {
            Call::Acquire { token, mode, slot, end } => {
                state.expire(|holder| conflict((*mode, *slot), (holder.mode, holder.slot)));
                if token.is_some_and(|token| token <= state.highest) {
                    return None;
                }
                let token = token.unwrap_or(0);
                state.highest = state.highest.max(token);
                let (mode, slot, end) = (*mode, *slot, *end);
                state.holders.push(Holder { token, mode, slot, end });
                state.holders.sort_by_key(|holder| holder.token);
            }
            Call::Release { token, done: true } => {
                let at = state.holders.iter().position(|holder| holder.token == *token)?;
                state.holders.remove(at);
            }
            Call::Release { token, done: false } => state.expire(|holder| holder.token == *token),
            Call::Read { holders } => {
                state.expire(|holder| !holders.contains(&holder.token));
                if state.holders.len() != holders.len() {
                    return None;
                }
            }
        }
        (state.now <= step.ret.unwrap_or(NEVER)).then_some(state)
    }

    /// A token: its grant, its end, and the reads that show it.
    fn units(&self, call: &Call) -> Vec<u64> {
        match call {
            Call::Acquire { token, .. } => token.iter().copied().collect(),
            Call::Release { token, .. } => vec![*token],
            Call::Read { holders } => holders.clone(),
        }
    }
}

impl State {
    /// Those end by themselves now, which may make it later.
    fn expire(&mut self, which: impl Fn(&Holder) -> bool) {
        for holder in self.holders.iter().filter(|holder| which(holder)) {
            self.now = self.now.max(holder.end);
        }
        self.holders.retain(|holder| !which(holder));
    }
}
