//! The rules that every history keeps, checked where it is written and where it is read.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::op::{Kind, Op, Process};

/// What a rule was broken by.
#[derive(Debug, PartialEq, Eq)]
pub enum Breach {
    /// Indexes are 0, 1, 2 and so on.
    Index {
        /// The index that was due.
        due: u64,
        /// The one that came.
        came: u64,
    },
    /// Time never falls.
    Time {
        /// The event at which it fell.
        index: u64,
    },
    /// A process invokes one operation at a time.
    Outstanding(Process),
    /// A process that got `info` does nothing more.
    Retired(Process),
    /// A completion has an invocation of the same name.
    Unasked(Process),
    /// What the nemesis does is `info`.
    Nemesis {
        /// The event that is not.
        index: u64,
    },
    /// A token fits a signed 64-bit integer.
    Token(u64),
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Breach::Index { due, came } => write!(f, "event {came} came where {due} was due"),
            Breach::Time { index } => write!(f, "time falls at event {index}"),
            Breach::Outstanding(process) => {
                write!(f, "process {process} invokes while an operation of it is outstanding")
            }
            Breach::Retired(process) => write!(f, "process {process} goes on after info"),
            Breach::Unasked(process) => {
                write!(f, "process {process} completes what it did not invoke")
            }
            Breach::Nemesis { index } => write!(f, "the nemesis event {index} is not info"),
            Breach::Token(token) => write!(f, "the token {token} is 2^63 or more"),
        }
    }
}

impl std::error::Error for Breach {}

/// What must be remembered of a history to judge its next event.
#[derive(Debug, Default)]
pub struct Rules {
    next: u64,
    time: u64,
    outstanding: HashMap<Process, String>,
    retired: HashSet<Process>,
}

impl Rules {
    /// The index that the next event must have.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Admits the next event.
    ///
    /// # Errors
    /// The rule that it breaks; nothing is remembered of it then.
    pub fn admit(&mut self, op: &Op) -> Result<(), Breach> {
        if op.index != self.next {
            return Err(Breach::Index { due: self.next, came: op.index });
        }
        if op.time < self.time {
            return Err(Breach::Time { index: op.index });
        }
        if let Some(token) = op.value.get("token").and_then(serde_json::Value::as_u64)
            && token >= 1 << 63
        {
            return Err(Breach::Token(token));
        }
        self.turn(op)?;
        self.next += 1;
        self.time = op.time;
        Ok(())
    }

    fn turn(&mut self, op: &Op) -> Result<(), Breach> {
        if op.process == Process::Nemesis {
            return match op.kind {
                Kind::Info => Ok(()),
                Kind::Invoke | Kind::Ok | Kind::Fail => Err(Breach::Nemesis { index: op.index }),
            };
        }
        if self.retired.contains(&op.process) {
            return Err(Breach::Retired(op.process));
        }
        if op.kind == Kind::Invoke {
            if self.outstanding.contains_key(&op.process) {
                return Err(Breach::Outstanding(op.process));
            }
            self.outstanding.insert(op.process, op.f.clone());
            return Ok(());
        }
        if self.outstanding.get(&op.process) != Some(&op.f) {
            return Err(Breach::Unasked(op.process));
        }
        self.outstanding.remove(&op.process);
        if op.kind == Kind::Info {
            self.retired.insert(op.process);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn op(index: u64, time: u64, process: u32, kind: Kind) -> Op {
        Op {
            index,
            time,
            process: Process::Client(process),
            kind,
            f: "get".into(),
            value: json!({}),
            error: None,
            node: None,
            term: None,
            log_index: None,
        }
    }

    fn last(ops: &[Op]) -> Result<(), Breach> {
        let mut rules = Rules::default();
        let (end, before) = ops.split_last().unwrap();
        before.iter().for_each(|op| rules.admit(op).unwrap());
        rules.admit(end)
    }

    #[test]
    fn each_rule_refuses_what_breaks_it() {
        let invoke = op(0, 5, 1, Kind::Invoke);
        let process = Process::Client(1);
        assert_eq!(last(&[invoke.clone(), op(1, 5, 1, Kind::Ok)]), Ok(()));
        assert_eq!(
            last(&[invoke.clone(), op(2, 5, 1, Kind::Ok)]),
            Err(Breach::Index { due: 1, came: 2 })
        );
        assert_eq!(last(&[invoke.clone(), op(1, 4, 1, Kind::Ok)]), Err(Breach::Time { index: 1 }));
        assert_eq!(
            last(&[invoke.clone(), op(1, 5, 1, Kind::Invoke)]),
            Err(Breach::Outstanding(process))
        );
        assert_eq!(
            last(&[invoke.clone(), op(1, 5, 1, Kind::Info), op(2, 5, 1, Kind::Invoke)]),
            Err(Breach::Retired(process))
        );
        assert_eq!(last(&[op(0, 5, 1, Kind::Ok)]), Err(Breach::Unasked(process)));
        let other = Op { f: "renew".into(), ..op(1, 5, 1, Kind::Ok) };
        assert_eq!(last(&[invoke.clone(), other]), Err(Breach::Unasked(process)));
        let nemesis = Op { process: Process::Nemesis, ..op(0, 5, 1, Kind::Ok) };
        assert_eq!(last(&[nemesis]), Err(Breach::Nemesis { index: 0 }));
        let token = Op { value: json!({"token": 1u64 << 63}), ..op(1, 5, 1, Kind::Ok) };
        assert_eq!(last(&[invoke, token]), Err(Breach::Token(1 << 63)));
    }
}
