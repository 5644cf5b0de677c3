//! Marks held in the memory of one process.

use std::task::{Context, Poll};
use std::time::Duration;

use super::turns::{Ticket, Turns};
use super::{Held, MarkStore, bounded, in_order};
use crate::fence::{FenceError, MemoryMarks};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// A [`MarkStore`] in memory. **Not durable**: its marks are as old as the process, so what
/// stands behind it must die with the process. They grow with the resources ever written.
#[derive(Debug, Default)]
pub struct MemoryStore {
    marks: MemoryMarks,
    turns: Turns,
}

/// Marks held in a [`MemoryStore`].
#[derive(Debug)]
pub struct HeldInMemory {
    _tickets: Vec<Ticket>,
}

impl MemoryStore {
    /// No marks: any authority and any token is accepted first.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`MemoryMarks::adopt`].
    pub fn adopt(&self, from: ClusterId, to: ClusterId) -> usize {
        self.marks.adopt(from, to)
    }
}

impl MarkStore for MemoryStore {
    type Held = HeldInMemory;

    async fn hold(&self, fences: &[Fence], within: Duration) -> Result<HeldInMemory, FenceError> {
        let fences = in_order(fences)?;
        let tickets = bounded(within, async { Ok(self.turns.take(&fences).await) }).await?;
        // Raised under the lock: in one process that is one step, not two.
        self.marks.guarded_set(&fences, || ())?;
        Ok(HeldInMemory { _tickets: tickets })
    }

    async fn raise(&self, fences: &[Fence], within: Duration) -> Result<(), FenceError> {
        self.hold(fences, within).await.map(drop)
    }

    async fn mark(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
        _within: Duration,
    ) -> Result<Option<Token>, FenceError> {
        Ok(self.marks.mark(resource, slot))
    }
}

impl Held for HeldInMemory {
    fn poll_lost(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}
