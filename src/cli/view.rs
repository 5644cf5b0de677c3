//! Answers as they are printed. The JSON field names are promised.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use super::output::{NONE, shown};
use crate::clock::unix_seconds;
use crate::locks::{ClusterId, Labels};
use crate::wire::v1;

/// Label under which `lock` tells operators when it was started: wall-clock time
/// of its machine, for display only.
pub const STARTED: &str = "started";

/// A point in the authority's history.
#[derive(Debug, Serialize)]
pub struct Revision {
    index: u64,
    ordinal: u32,
}

impl From<v1::Revision> for Revision {
    fn from(v1::Revision { index, ordinal }: v1::Revision) -> Self {
        Self { index, ordinal }
    }
}

/// A grant.
#[derive(Debug, Serialize)]
pub struct Grant {
    pub token: u64,
    pub floor: u64,
    pub mode: &'static str,
    pub phase: &'static str,
    pub session: u64,
    pub request: u64,
    pub granted_at: Option<Revision>,
    pub labels: Labels,
}

impl From<v1::Grant> for Grant {
    fn from(grant: v1::Grant) -> Self {
        Self {
            token: grant.token,
            floor: grant.floor,
            mode: mode(grant.mode()),
            phase: phase(grant.phase()),
            session: grant.session,
            request: grant.request,
            granted_at: grant.granted_at.map(Revision::from),
            labels: grant.labels,
        }
    }
}

/// A place in a queue.
#[derive(Debug, Serialize)]
pub struct Waiter {
    pub session: u64,
    pub request: u64,
    pub mode: &'static str,
    pub queued_at: Option<Revision>,
    pub labels: Labels,
}

impl From<v1::Waiter> for Waiter {
    fn from(waiter: v1::Waiter) -> Self {
        Self {
            session: waiter.session,
            request: waiter.request,
            mode: mode(waiter.mode()),
            queued_at: waiter.queued_at.map(Revision::from),
            labels: waiter.labels,
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
}

impl From<v1::ResourceView> for Resource {
    fn from(view: v1::ResourceView) -> Self {
        Self {
            resource: view.resource,
            holders: view.holders.into_iter().map(Grant::from).collect(),
            waiters: view.waiters.into_iter().map(Waiter::from).collect(),
            waiting: view.waiting,
        }
    }
}

const fn mode(mode: v1::Mode) -> &'static str {
    match mode {
        v1::Mode::Unspecified | v1::Mode::Exclusive => "exclusive",
        v1::Mode::Shared => "shared",
        v1::Mode::Slots => "slots",
    }
}

const fn phase(phase: v1::Phase) -> &'static str {
    match phase {
        v1::Phase::Unspecified | v1::Phase::Active => "active",
        v1::Phase::Barrier => "barrier",
    }
}

/// The header of [`who`].
pub const WHO: [&str; 4] = ["HOST", "PID", "PURPOSE", "STARTED"];

/// A session's owner, by its labels, as cells of a table.
pub fn who(labels: &Labels) -> [String; 4] {
    ["host", "pid", "purpose", STARTED]
        .map(|key| labels.get(key).map_or_else(|| NONE.to_owned(), Clone::clone))
}

/// A grant in half a sentence, for a message.
pub fn holder(grant: &v1::Grant) -> String {
    let label = |key: &str| grant.labels.get(key).map(|value| shown(value));
    let mut text = format!("held with token {}", grant.token);
    if let Some(host) = label("host") {
        text += &format!(" by host {host}");
    }
    if let Some(pid) = label("pid") {
        text += &format!(" pid {pid}");
    }
    if let Some(purpose) = label("purpose").filter(|purpose| !purpose.is_empty()) {
        text += &format!(" ({purpose})");
    }
    if let Some(started) = label(STARTED) {
        text += &format!(", started {started}");
    }
    text
}

/// Wall-clock time so much later than now, in UTC and whole seconds: for display only.
pub fn wall_clock(later: Duration) -> String {
    let since_1970 = Duration::from_secs(unix_seconds()).saturating_add(later);
    let time = UNIX_EPOCH.checked_add(since_1970).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}

/// A cluster id as text; empty if it is none.
pub fn cluster(id: &[u8]) -> String {
    ClusterId::from_slice(id).map(|id| id.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_told_by_its_labels_as_far_as_it_has_some() {
        let mut grant = v1::Grant { token: 41, ..v1::Grant::default() };
        assert_eq!(holder(&grant), "held with token 41");
        grant.labels.extend([("host".into(), "web-3".into()), ("pid".into(), "7".into())]);
        grant.labels.insert("purpose".into(), "sh".into());
        assert_eq!(holder(&grant), "held with token 41 by host web-3 pid 7 (sh)");
        assert_eq!(who(&grant.labels), ["web-3", "7", "sh", "-"]);
    }
}
