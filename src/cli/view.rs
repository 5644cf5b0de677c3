//! Answers as they are printed. The JSON field names are promised.

use serde::Serialize;

use crate::locks::{self, ClusterId, Labels};
use crate::wire::v1;

/// A point in the authority's history.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Revision {
    pub index: u64,
    pub ordinal: u32,
}

impl From<locks::Revision> for Revision {
    fn from(locks::Revision { index, ordinal }: locks::Revision) -> Self {
        Self { index, ordinal }
    }
}

impl From<v1::Revision> for Revision {
    fn from(v1::Revision { index, ordinal }: v1::Revision) -> Self {
        Self { index, ordinal }
    }
}

/// Who did something by hand, and why.
#[derive(Debug, Serialize)]
pub struct Note {
    pub actor: String,
    pub reason: String,
}

impl From<v1::Note> for Note {
    fn from(v1::Note { actor, reason }: v1::Note) -> Self {
        Self { actor, reason }
    }
}

/// What a holder shows to all readers.
#[derive(Debug, Serialize)]
pub struct Value {
    /// As text; `null` if it is none.
    pub value: Option<String>,
    /// In hexadecimal digits, where it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_hex: Option<String>,
}

impl Value {
    /// Reads the bytes.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { value: Some(text.to_owned()), value_hex: None },
            Err(_) => {
                let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                Self { value: None, value_hex: Some(digits) }
            }
        }
    }

    /// For people; `None` if there is nothing to show.
    pub fn told(&self) -> Option<String> {
        let text = self.value.clone().filter(|text| !text.is_empty());
        text.or_else(|| self.value_hex.as_ref().map(|digits| format!("0x{digits}")))
    }
}

/// That a holder was asked to give its grant back.
#[derive(Debug, Serialize)]
pub struct Asked {
    pub at: Option<Revision>,
    pub within_ms: u64,
    pub note: Option<Note>,
}

impl From<v1::Asked> for Asked {
    fn from(asked: v1::Asked) -> Self {
        Self {
            at: asked.at.map(Revision::from),
            within_ms: asked.within_ms,
            note: asked.note.map(Note::from),
        }
    }
}

/// A grant.
#[derive(Debug, Serialize)]
pub struct Grant {
    pub token: u64,
    pub floor: u64,
    pub mode: &'static str,
    pub slot: Option<u32>,
    /// How many slots it named; 0 for other modes.
    pub slots: u32,
    pub phase: &'static str,
    pub session: u64,
    pub request: u64,
    pub granted_at: Option<Revision>,
    pub labels: Labels,
    #[serde(flatten)]
    pub value: Value,
    pub lock_delay_ms: u64,
    /// How long it may stay unconfirmed; 0 once it is active.
    pub barrier_ms: u64,
    pub asked: Option<Asked>,
    /// All resources under its token, if they are several.
    pub set: Vec<String>,
}

impl From<v1::Grant> for Grant {
    fn from(grant: v1::Grant) -> Self {
        Self {
            token: grant.token,
            floor: grant.floor,
            mode: mode(grant.mode()),
            slot: grant.slot,
            slots: grant.slots,
            phase: phase(grant.phase()),
            session: grant.session,
            request: grant.request,
            granted_at: grant.granted_at.map(Revision::from),
            labels: grant.labels,
            value: Value::of(&grant.value),
            lock_delay_ms: grant.lock_delay_ms,
            barrier_ms: grant.barrier_ms,
            asked: grant.asked.map(Asked::from),
            set: grant.set,
        }
    }
}

/// A place in a queue.
#[derive(Debug, Serialize)]
pub struct Waiter {
    pub session: u64,
    pub request: u64,
    pub mode: &'static str,
    /// How many slots it names; 0 for other modes.
    pub slots: u32,
    pub queued_at: Option<Revision>,
    pub labels: Labels,
    /// All resources it waits for, if they are several.
    pub set: Vec<String>,
}

impl From<v1::Waiter> for Waiter {
    fn from(waiter: v1::Waiter) -> Self {
        Self {
            session: waiter.session,
            request: waiter.request,
            mode: mode(waiter.mode()),
            slots: waiter.slots,
            queued_at: waiter.queued_at.map(Revision::from),
            labels: waiter.labels,
            set: waiter.set,
        }
    }
}

/// The freeze that keeps a resource closed.
#[derive(Debug, Serialize)]
pub struct Frozen {
    pub token: u64,
    pub since: Option<Revision>,
    pub note: Option<Note>,
}

impl From<v1::Frozen> for Frozen {
    fn from(frozen: v1::Frozen) -> Self {
        Self {
            token: frozen.token,
            since: frozen.since.map(Revision::from),
            note: frozen.note.map(Note::from),
        }
    }
}

/// A lock delay that runs.
#[derive(Debug, Serialize)]
pub struct Closure {
    /// Token of the grant that ended.
    pub token: u64,
    pub mode: &'static str,
    pub slot: Option<u32>,
    pub delay_ms: u64,
    pub since: Option<Revision>,
    /// How long it still runs; `explain` knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
}

impl From<v1::Closure> for Closure {
    fn from(closure: v1::Closure) -> Self {
        Self {
            token: closure.token,
            mode: mode(closure.mode()),
            slot: closure.slot,
            delay_ms: closure.delay_ms,
            since: closure.since.map(Revision::from),
            left_ms: None,
        }
    }
}

/// A resource with who holds it and who waits.
#[derive(Debug, Serialize)]
pub struct Resource {
    pub resource: String,
    pub holders: Vec<Grant>,
    pub waiters: Vec<Waiter>,
    pub waiting: u64,
    /// How many slots it has, while anybody holds or awaits one; else 0.
    pub slots: u32,
    pub frozen: Option<Frozen>,
    pub closures: Vec<Closure>,
}

impl From<v1::ResourceView> for Resource {
    fn from(view: v1::ResourceView) -> Self {
        Self {
            resource: view.resource,
            holders: view.holders.into_iter().map(Grant::from).collect(),
            waiters: view.waiters.into_iter().map(Waiter::from).collect(),
            waiting: view.waiting,
            slots: view.slots,
            frozen: view.frozen.map(Frozen::from),
            closures: view.closures.into_iter().map(Closure::from).collect(),
        }
    }
}

impl Resource {
    /// Whether the next one who asks would be granted it: the authority keeps no record.
    pub fn is_free(&self) -> bool {
        let closed = self.frozen.is_some() || !self.closures.is_empty();
        self.holders.is_empty() && self.waiting == 0 && !closed
    }
}

/// What a destination's mark is raised with.
#[derive(Debug, Serialize)]
pub struct Fence {
    pub cluster: String,
    pub resource: String,
    pub slot: Option<u32>,
    pub token: u64,
    pub floor: u64,
}

impl From<&locks::Fence> for Fence {
    fn from(fence: &locks::Fence) -> Self {
        Self {
            cluster: fence.cluster.to_string(),
            resource: fence.resource.to_string(),
            slot: fence.slot,
            token: fence.token.get(),
            floor: fence.floor.get(),
        }
    }
}

/// How a resource is shared, in the word of the JSON answers.
pub const fn mode(mode: v1::Mode) -> &'static str {
    match mode {
        v1::Mode::Unspecified | v1::Mode::Exclusive => "exclusive",
        v1::Mode::Shared => "shared",
        v1::Mode::Slots => "slots",
    }
}

/// How far a grant has come, in the word of the JSON answers.
pub const fn phase(phase: v1::Phase) -> &'static str {
    match phase {
        v1::Phase::Unspecified | v1::Phase::Active => "active",
        v1::Phase::Barrier => "barrier",
    }
}

/// A cluster id as text; empty if it is none.
pub fn cluster(id: &[u8]) -> String {
    ClusterId::from_slice(id).map(|id| id.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_text_or_hexadecimal_digits() {
        assert_eq!(Value::of(b"db-2:5432").told().as_deref(), Some("db-2:5432"));
        assert_eq!(Value::of(&[0xff, 1]).told().as_deref(), Some("0xff01"));
        assert_eq!(Value::of(b"").told(), None);
        assert_eq!(Value::of(b"").value.as_deref(), Some(""));
    }
}
