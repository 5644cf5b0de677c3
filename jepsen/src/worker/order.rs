//! What a client process is told and what it answers: one JSON object a line.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::history::Kind;

/// One operation that a client process is to do now, beside all others that it does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The answer carries it.
    pub id: u64,
    /// The operation's name, as in the history.
    pub f: String,
    /// Its arguments, as in the history.
    pub args: Value,
    /// What the call needs besides, and the history does not tell: the owner's credential,
    /// `oldest` (the lowest outstanding request), the fence of a write.
    #[serde(default)]
    pub aside: Value,
    /// The address to ask, `host:port`.
    pub address: String,
    /// After so long without an answer the outcome is unknown.
    pub timeout_ms: u64,
}

/// How it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// Of the order.
    pub id: u64,
    /// `ok`, `fail` or `info`.
    pub kind: Kind,
    /// The results.
    pub value: Value,
    /// The stable reason of a refusal, or what became of the attempt.
    #[serde(default)]
    pub error: Option<String>,
    /// The log index that the answer speaks of.
    #[serde(default)]
    pub log_index: Option<u64>,
    /// The token that a refusal names.
    #[serde(default)]
    pub told_token: Option<u64>,
    /// What the history does not tell.
    #[serde(default)]
    pub aside: Value,
}

impl Answer {
    /// It took effect.
    #[must_use]
    pub fn ok(id: u64, value: Value) -> Answer {
        Answer::of(id, Kind::Ok, value, None)
    }

    /// It ended in this way, for this reason.
    #[must_use]
    pub fn of(id: u64, kind: Kind, value: Value, error: Option<String>) -> Answer {
        Answer { id, kind, value, error, log_index: None, told_token: None, aside: Value::Null }
    }
}
