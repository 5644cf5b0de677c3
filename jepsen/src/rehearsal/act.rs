//! What a client of the toy does, and how it is written down.

use serde_json::{Value, json};

use super::authority::{Ask, Authority, Grant, TTL, word};
use super::mutant::Mutant;
use super::world::MS;
use crate::history::{Completion, Kind};

/// What it does.
#[derive(Clone, Debug)]
pub enum Act {
    Open,
    Renew,
    Close,
    Acquire(Ask),
    Confirm(Grant),
    Release { resource: String, token: u64, late: bool },
    Get(String),
    Check(Grant),
    Write { grant: Grant, element: String, read: u64 },
}

impl Act {
    /// Its name and arguments, in this session of this cluster; `last` in the last phase.
    pub fn arguments(
        &self,
        session: u64,
        cluster: u32,
        client: usize,
        last: bool,
    ) -> (&'static str, Value) {
        let own = json!({"session": session, "cluster": cluster});
        match self {
            Act::Open => {
                let owner = format!("w{client}");
                ("open", json!({"owner": owner, "ttl_ms": TTL / MS, "cluster": cluster}))
            }
            Act::Renew => ("renew", with(own, json!({"ttl_ms": TTL / MS}))),
            Act::Close => ("close", own),
            Act::Acquire(ask) => {
                let value = json!({"wait_ms": 60_000, "request": ask.request, "final": last,
                    "resource": ask.resource, "mode": word(ask.mode), "slots": ask.slots,
                    "strict": ask.strict, "barrier_ms": 1_000});
                ("acquire", with(own, value))
            }
            Act::Confirm(grant) => {
                let value = json!({"resource": grant.ask.resource, "token": grant.token});
                ("confirm", with(own, value))
            }
            Act::Release { resource, token, .. } => {
                ("release", with(own, json!({"resource": resource, "token": token})))
            }
            Act::Get(resource) => ("get", json!({"resource": resource})),
            Act::Check(grant) => {
                ("check_token", json!({"resource": grant.ask.resource, "token": grant.token}))
            }
            Act::Write { grant, element, .. } => {
                let value = json!({"element": element, "resource": grant.ask.resource,
                    "token": grant.token, "floor": grant.floor, "slot": grant.slot, "dest": "d1"});
                ("write", value)
            }
        }
    }
}

/// The fields of both.
fn with(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

/// Resources of the toy, for so many clients; the beginning of a name says how it is used.
pub fn resources(clients: usize) -> Vec<String> {
    let sets = 0..(clients / 8).max(1);
    let of = |set: usize| {
        ["mx/a", "mx/b", "mx/c", "rw/a", "rw/b", "sl/a", "st/a"].map(|name| format!("{name}{set}"))
    };
    sets.flat_map(of).collect()
}

/// An answer.
pub fn done(outcome: Result<(), &'static str>, value: Value) -> Completion {
    match outcome {
        Ok(()) => Completion::new(Kind::Ok, value),
        Err(reason) => {
            let mut end = Completion::new(Kind::Fail, Value::Null);
            end.error = Some(reason.to_owned());
            end
        }
    }
}

/// What a read shows.
pub fn holders(authority: &Authority, resource: &str) -> Value {
    let active = authority.mutant == Some(Mutant::BarrierShownActive);
    let shown = authority.holders(resource).into_iter().map(|grant| {
        json!({"token": grant.token, "mode": word(grant.ask.mode), "slot": grant.slot,
            "phase": if grant.active || active { "active" } else { "barrier" }})
    });
    json!({"holders": shown.collect::<Vec<_>>()})
}
