//! Hand-made histories, good and bad, for every checker.
//!
//! Times are in milliseconds. A story that is good is acquitted by all; a bad one is convicted
//! by the checkers that it names and by no other.

mod grants;
mod inside;
mod sessions;

use serde_json::{Value, json};

use super::evidence::Evidence;
use super::load::from_ops;
use super::settings::Settings;
use super::{Run, Valid, check};
use crate::history::{Kind, Op, Process};

const MS: u64 = 1_000_000;

/// What happened, in any order.
#[derive(Clone, Default)]
struct Story {
    events: Vec<(u64, Op)>,
    processes: u32,
    audit: Option<Vec<Value>>,
    ledger: Option<Vec<Value>>,
    statuses: Vec<(&'static str, Value)>,
    settings: Settings,
}

impl Story {
    fn new() -> Story {
        Story::default()
    }

    fn event(&mut self, time: u64, process: Process, kind: Kind, f: &str, value: Value) -> &mut Op {
        let op = Op {
            index: 0,
            time: time * MS,
            process,
            kind,
            f: f.to_owned(),
            value,
            error: None,
            node: None,
            term: None,
            log_index: None,
        };
        self.events.push((time, op));
        &mut self.events.last_mut().expect("it was pushed").1
    }

    /// An operation from `from` to `to`, ended so.
    fn op(mut self, from: u64, to: u64, kind: Kind, f: &str, value: Value) -> Story {
        let process = Process::Client(self.processes);
        self.processes += 1;
        self.event(from, process, Kind::Invoke, f, value.clone());
        self.event(to, process, kind, f, value);
        self
    }

    fn ok(self, from: u64, to: u64, f: &str, value: Value) -> Story {
        self.op(from, to, Kind::Ok, f, value)
    }

    fn info(self, from: u64, to: u64, f: &str, value: Value) -> Story {
        self.op(from, to, Kind::Info, f, value)
    }

    fn fail(self, from: u64, to: u64, f: &str, value: Value, error: &str) -> Story {
        let mut story = self.op(from, to, Kind::Fail, f, value);
        story.events.last_mut().expect("it was pushed").1.error = Some(error.to_owned());
        story
    }

    fn at_index(mut self, index: u64) -> Story {
        self.events.last_mut().expect("there is one").1.log_index = Some(index);
        self
    }

    /// A session with a ttl of a second.
    fn open(self, from: u64, to: u64, session: u64) -> Story {
        self.ok(from, to, "open", json!({"owner": "o", "ttl_ms": 1000, "session": session}))
    }

    fn renew(self, from: u64, to: u64, session: u64) -> Story {
        self.ok(from, to, "renew", json!({"session": session, "ttl_ms": 1000}))
    }

    /// Request 1 of the session on `r`, granted. `more` are further fields.
    fn grant(self, from: u64, to: u64, session: u64, token: u64, more: &Value) -> Story {
        let mut value = json!({"session": session, "request": 1, "resource": "r",
            "mode": "exclusive", "wait_ms": 9000, "token": token, "floor": token});
        let fields = value.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        self.ok(from, to, "acquire", value)
    }

    /// Request 1 of the session on `r`, queued.
    fn queued(self, from: u64, to: u64, session: u64) -> Story {
        self.ok(
            from,
            to,
            "acquire",
            json!({"session": session, "request": 1, "resource": "r",
            "mode": "exclusive", "wait_ms": 9000, "queued_ahead": 1}),
        )
    }

    fn release(self, from: u64, to: u64, session: u64, token: u64) -> Story {
        self.ok(from, to, "release", json!({"session": session, "resource": "r", "token": token}))
    }

    fn get(self, from: u64, to: u64, tokens: &[u64]) -> Story {
        let holders: Vec<Value> = tokens.iter().map(|token| json!({"token": token})).collect();
        self.ok(from, to, "get", json!({"resource": "r", "holders": holders}))
    }

    /// The last phase: `r` can be had again at this time, with this token.
    fn end(self, time: u64, token: u64) -> Story {
        self.end_in(0, time, token)
    }

    /// The same, in this cluster.
    fn end_in(mut self, cluster: u32, time: u64, token: u64) -> Story {
        self.event(time, Process::Nemesis, Kind::Info, "healed", json!({}));
        let open = json!({"owner": "o", "ttl_ms": 1000, "session": 99, "cluster": cluster});
        let last = json!({"final": true, "cluster": cluster});
        self.ok(time, time + 1, "open", open).grant(time + 1, time + 2, 99, token, &last)
    }

    fn nemesis(mut self, from: u64, to: u64, f: &str) -> Story {
        let value = json!({"outcome": "installed"});
        self.event(from, Process::Nemesis, Kind::Info, f, value.clone());
        self.event(to, Process::Nemesis, Kind::Info, f, value);
        self
    }

    fn audit(mut self, events: &[Value]) -> Story {
        self.audit.get_or_insert_default().extend_from_slice(events);
        self
    }

    fn ledger(mut self, entries: &[Value]) -> Story {
        self.ledger.get_or_insert_default().extend_from_slice(entries);
        self
    }

    fn status(mut self, node: &'static str, status: Value) -> Story {
        self.statuses.push((node, status));
        self
    }

    fn evidence(&self) -> Evidence {
        let mut events = self.events.clone();
        // An operation that ends when another begins ended before it.
        events.sort_by_key(|(time, op)| (*time, op.kind == Kind::Invoke));
        let ops = (0..).zip(events).map(|(index, (_, op))| Ok(Op { index, ..op }));
        let mut evidence = from_ops(ops).expect("a story is well formed");
        evidence.take_audit(self.audit.clone());
        evidence.take_ledger(self.ledger.clone());
        for (node, status) in &self.statuses {
            evidence.take_status(node, status.clone());
        }
        evidence
    }

    /// The checkers that convict it. An unknown answer is none.
    fn convicted(&self) -> Vec<String> {
        let verdicts = check(&Run::new(self.evidence(), self.settings.clone()));
        let bad = verdicts.into_iter().filter(|verdict| verdict.valid == Valid::False);
        bad.map(|verdict| verdict.checker).collect()
    }

    /// All checkers acquit it.
    #[track_caller]
    fn good(self) {
        let verdicts = check(&Run::new(self.evidence(), self.settings.clone()));
        for verdict in verdicts {
            assert_eq!(verdict.valid, Valid::True, "{verdict}");
        }
    }

    /// These convict it, and no other.
    #[track_caller]
    fn bad(self, by: &[&str]) {
        assert_eq!(self.convicted(), by);
    }
}
