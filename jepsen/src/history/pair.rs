//! The two events of an operation, joined.

use std::collections::HashMap;

use anyhow::Result;

use super::op::{Kind, Op, Process};

/// An operation of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its first event.
    pub invoke: Op,
    /// Its second; none if the history ends before.
    pub completion: Option<Op>,
}

impl Call {
    /// When it was invoked: it had no effect before.
    pub fn t_inv(&self) -> u64 {
        self.invoke.time
    }

    /// When it was completed: its effect, if any, came before. None of an operation that may take
    /// effect later still.
    pub fn t_ret(&self) -> Option<u64> {
        match &self.completion {
            Some(op) if op.kind != Kind::Info => Some(op.time),
            Some(_) | None => None,
        }
    }

    /// How it ended; without a completion nobody knows.
    pub fn kind(&self) -> Kind {
        self.completion.as_ref().map_or(Kind::Info, |op| op.kind)
    }

    /// The value to go by: of the completion if there is one, else of the invocation.
    pub fn value(&self) -> &serde_json::Value {
        &self.completion.as_ref().unwrap_or(&self.invoke).value
    }
}

/// What [`pairs`] gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Paired {
    /// An operation of a client.
    Call(Box<Call>),
    /// An event of the nemesis.
    Nemesis(Box<Op>),
}

/// Joins the events of a history as they come. An operation is given at its completion; those
/// without one at the end, in the order of their invocations.
pub fn pairs(ops: impl Iterator<Item = Result<Op>>) -> impl Iterator<Item = Result<Paired>> {
    let mut open: HashMap<Process, Op> = HashMap::new();
    let mut ops = ops.fuse();
    let mut rest: Option<std::vec::IntoIter<Op>> = None;
    std::iter::from_fn(move || {
        for op in ops.by_ref() {
            let op = match op {
                Ok(op) => op,
                Err(error) => return Some(Err(error)),
            };
            if op.process == Process::Nemesis {
                return Some(Ok(Paired::Nemesis(Box::new(op))));
            }
            if op.kind == Kind::Invoke {
                open.insert(op.process, op);
            } else if let Some(invoke) = open.remove(&op.process) {
                return Some(Ok(Paired::Call(Box::new(Call { invoke, completion: Some(op) }))));
            }
        }
        let rest = rest.get_or_insert_with(|| {
            let mut left: Vec<Op> = open.drain().map(|(_, op)| op).collect();
            left.sort_by_key(|op| op.index);
            left.into_iter()
        });
        let invoke = rest.next()?;
        Some(Ok(Paired::Call(Box::new(Call { invoke, completion: None }))))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::history::{Completion, Journal, read};

    #[test]
    fn events_are_joined_and_what_never_completed_comes_last() {
        let mut bytes = Vec::new();
        let mut journal = Journal::new(&mut bytes);
        journal.invoke(1, 0, "renew", json!({"session": 3}), None).unwrap();
        journal.invoke(2, 1, "get", json!({}), None).unwrap();
        journal.invoke(2, 2, "get", json!({}), None).unwrap();
        journal.nemesis(3, "kill", json!({})).unwrap();
        journal.complete(4, 1, Completion::new(Kind::Ok, json!({"holders": []}))).unwrap();
        journal.complete(5, 2, Completion::new(Kind::Info, json!({}))).unwrap();
        let all: Vec<Paired> = pairs(read(bytes.as_slice())).collect::<Result<_>>().unwrap();
        let [Paired::Nemesis(kill), Paired::Call(get), Paired::Call(unknown), Paired::Call(renew)] =
            all.as_slice()
        else {
            panic!("{all:?}");
        };
        assert_eq!(kill.f, "kill");
        assert_eq!((get.t_inv(), get.t_ret(), get.kind()), (2, Some(4), Kind::Ok));
        assert_eq!((unknown.t_ret(), unknown.kind()), (None, Kind::Info));
        assert_eq!((renew.t_ret(), renew.kind()), (None, Kind::Info));
        assert_eq!(renew.value(), &json!({"session": 3}));
    }
}
