//! What the rules know, as the public API tells it.

use prost::Message;

use super::v1;
use crate::locks::{
    Asked, ClosureRow, Fence, FrozenRow, GrantRow, LockTable, Mode, Note, Phase, ResourceName,
    ResourceView, Revision, WaitRow,
};

/// How much of a resource is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// At most so many holders,
    pub holders: usize,
    /// as long as they take at most so many bytes,
    pub holders_bytes: usize,
    /// and at most so many waiters.
    pub waiters: usize,
}

impl Listed {
    /// For one resource that is asked for.
    pub const ALONE: Self = Self { holders: 1_000, holders_bytes: 1 << 20, waiters: 100 };
    /// Where it is one of many: nothing is applied meanwhile.
    pub const AMONG_MANY: Self = Self { holders: 100, holders_bytes: 64 << 10, waiters: 10 };

    /// As many holders as fit into so many bytes, about.
    #[must_use]
    pub const fn with_holders_of(self, bytes: usize) -> Self {
        Self { holders: usize::MAX, holders_bytes: bytes, ..self }
    }
}

/// How many lock delays of a resource are told.
pub const CLOSURES_LISTED_MAX: usize = 1_000;

/// A revision.
pub const fn revision_out(at: Revision) -> v1::Revision {
    v1::Revision { index: at.index, ordinal: at.ordinal }
}

impl From<&v1::Revision> for Revision {
    fn from(at: &v1::Revision) -> Self {
        Self { index: at.index, ordinal: at.ordinal }
    }
}

/// A mode; how many slots is another field.
pub const fn mode_out(mode: Mode) -> i32 {
    match mode {
        Mode::Exclusive => v1::Mode::Exclusive as i32,
        Mode::Shared => v1::Mode::Shared as i32,
        Mode::Slots { .. } => v1::Mode::Slots as i32,
    }
}

/// A phase.
pub const fn phase_out(phase: Phase) -> i32 {
    match phase {
        Phase::Active => v1::Phase::Active as i32,
        Phase::Barrier { .. } => v1::Phase::Barrier as i32,
    }
}

/// Who and why.
pub fn note_out(note: &Note) -> v1::Note {
    v1::Note { actor: note.actor.clone(), reason: note.reason.clone() }
}

/// A grant on one of its resources, with the labels of its holder.
pub fn grant_out(table: &LockTable, grant: &GrantRow, resource: &ResourceName) -> v1::Grant {
    v1::Grant {
        resource: resource.to_string(),
        token: grant.token.get(),
        floor: grant.floor.get(),
        mode: mode_out(grant.mode),
        phase: phase_out(grant.phase),
        session: grant.wait.session.0,
        request: grant.wait.request.get(),
        granted_at: Some(revision_out(grant.granted_at)),
        labels: table.labels(grant.wait.session).cloned().unwrap_or_default(),
        slot: grant.slot,
        slots: grant.mode.slots().unwrap_or(0),
        value: grant.value.as_bytes().to_vec().into(),
        lock_delay_ms: grant.lock_delay.0,
        asked: grant.asked.as_ref().map(asked_out),
        set: set_out(&grant.names),
        barrier_ms: match grant.phase {
            Phase::Active => 0,
            Phase::Barrier { deadline } => deadline.0,
        },
    }
}

/// The fences of a grant, in the order of its names.
pub fn fences_out(table: &LockTable, grant: &GrantRow) -> Vec<v1::Fence> {
    let fences = grant.names.iter().filter_map(|name| table.fence(grant, name));
    fences.map(|fence: Fence| (&fence).into()).collect()
}

/// A resource with its first holders, waiters and lock delays.
pub fn resource_out(
    table: &LockTable,
    view: &ResourceView<'_>,
    listed: Listed,
) -> v1::ResourceView {
    let mut room = listed.holders_bytes;
    let holders = view.holders().take(listed.holders);
    let holders = holders.map(|grant| grant_out(table, grant, view.name)).take_while(|grant| {
        let fits = room > 0;
        room = room.saturating_sub(grant.encoded_len());
        fits
    });
    v1::ResourceView {
        resource: view.name.to_string(),
        holders: holders.collect(),
        holding: view.holding() as u64,
        waiters: view.waiters().take(listed.waiters).map(|wait| waiter_out(table, wait)).collect(),
        waiting: view.waiting() as u64,
        slots: view.slots().unwrap_or(0),
        frozen: view.frozen().map(frozen_out),
        closures: view.closures().take(CLOSURES_LISTED_MAX).map(closure_out).collect(),
    }
}

fn waiter_out(table: &LockTable, wait: &WaitRow) -> v1::Waiter {
    v1::Waiter {
        session: wait.wait.session.0,
        request: wait.wait.request.get(),
        mode: mode_out(wait.mode),
        queued_at: Some(revision_out(wait.queued_at)),
        labels: table.labels(wait.wait.session).cloned().unwrap_or_default(),
        slots: wait.mode.slots().unwrap_or(0),
        set: set_out(&wait.names),
    }
}

fn asked_out(asked: &Asked) -> v1::Asked {
    v1::Asked {
        at: Some(revision_out(asked.at)),
        within_ms: asked.within.0,
        note: Some(note_out(&asked.note)),
    }
}

fn frozen_out(frozen: &FrozenRow) -> v1::Frozen {
    v1::Frozen {
        token: frozen.token.get(),
        since: Some(revision_out(frozen.since)),
        note: Some(note_out(&frozen.note)),
    }
}

fn closure_out(closure: &ClosureRow) -> v1::Closure {
    v1::Closure {
        token: closure.token.get(),
        mode: mode_out(closure.mode),
        slot: closure.slot,
        delay_ms: closure.delay.0,
        since: Some(revision_out(closure.since)),
    }
}

/// One name needs no list.
fn set_out(names: &[ResourceName]) -> Vec<String> {
    match names {
        [_] => Vec::new(),
        names => names.iter().map(ToString::to_string).collect(),
    }
}
