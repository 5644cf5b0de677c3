//! One event of a history.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// One event: an invocation, a completion, or something that the nemesis did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// Place in the history: 0, 1, 2 and so on without a gap.
    pub index: u64,
    /// Nanoseconds since the run began, by the one clock of the harness. Never falls. An
    /// invocation is stamped before its request can leave, a completion after its answer
    /// was read: so the operation took effect within the two, if it did before its completion.
    pub time: u64,
    /// Who did it.
    pub process: Process,
    /// Which of the two events of an operation it is.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The name of the operation (`acquire`) or of the fault (`power-cut`). The names and the
    /// fields of their values are listed in `check/mod.rs`.
    pub f: String,
    /// Of an invocation the arguments; of a completion the arguments and the results.
    pub value: Value,
    /// The stable reason of a refusal (`NOT_HELD`), or what became of the attempt (`timeout`).
    #[serde(default)]
    pub error: Option<String>,
    /// The node that was asked.
    #[serde(default)]
    pub node: Option<String>,
    /// The Raft term in which it was answered, if the answer told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// The log index at which it took effect or of which the answer speaks, if the answer told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_index: Option<u64>,
}

/// Who does operations. A client process has one outstanding operation at a time; after an
/// `info` its number is never used again, and who went on under it takes a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    /// A client, by number.
    Client(u32),
    /// What makes faults. Its events are `info`, in pairs: begun and ended.
    Nemesis,
}

/// What an event says of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It begins.
    Invoke,
    /// It took effect between its two events.
    Ok,
    /// It had no effect and never will.
    Fail,
    /// Nobody knows: it may take effect at any time after its invocation, or never.
    Info,
}

impl Kind {
    /// The word for it in every format.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Invoke => "invoke",
            Kind::Ok => "ok",
            Kind::Fail => "fail",
            Kind::Info => "info",
        }
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Process::Client(number) => write!(f, "{number}"),
            Process::Nemesis => f.write_str("nemesis"),
        }
    }
}

impl Serialize for Process {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Process::Client(number) => serializer.serialize_u32(*number),
            Process::Nemesis => serializer.serialize_str("nemesis"),
        }
    }
}

impl<'de> Deserialize<'de> for Process {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ProcessForm)
    }
}

/// A number, or the word for the nemesis.
struct ProcessForm;

impl Visitor<'_> for ProcessForm {
    type Value = Process;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the number of a client, or nemesis")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Process, E> {
        u32::try_from(number).map(Process::Client).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Process, E> {
        match name {
            "nemesis" => Ok(Process::Nemesis),
            other => Err(E::custom(format!("no process is named {other}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_its_line_format() {
        let line = r#"{"index":41,"time":1203344551,"process":3,"type":"ok","f":"acquire","value":{"resource":"mx/4","token":912},"error":null,"node":"n2","term":4,"log_index":912}"#;
        let op: Op = serde_json::from_str(line).unwrap();
        assert_eq!(op.process, Process::Client(3));
        assert_eq!(serde_json::to_string(&op).unwrap(), line);

        let line = r#"{"index":42,"time":1203399000,"process":"nemesis","type":"info","f":"power-cut","value":{"targets":["n1"]},"error":null,"node":null}"#;
        let op: Op = serde_json::from_str(line).unwrap();
        assert_eq!((op.process, op.kind), (Process::Nemesis, Kind::Info));
        assert_eq!(serde_json::to_string(&op).unwrap(), line);

        assert!(serde_json::from_str::<Op>(&line.replace("nemesis", "somebody")).is_err());
    }
}
