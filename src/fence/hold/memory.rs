//! Marks held in the memory of one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use super::{Held, MarkStore, bounded, in_order};
use crate::fence::{FenceError, MemoryMarks};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// A [`MarkStore`] in memory. **Not durable**: its marks are as old as the process, so what
/// stands behind it must die with the process. They grow with the resources ever written.
#[derive(Debug, Default)]
pub struct MemoryStore {
    marks: MemoryMarks,
    /// Who holds a resource, and who waits for it, in the order of arrival.
    turns: Mutex<BTreeMap<ResourceName, Arc<Turn<()>>>>,
}

/// Marks held in a [`MemoryStore`].
#[derive(Debug)]
pub struct HeldInMemory(#[expect(dead_code, reason = "held is all they are")] Vec<Passed>);

type Passed = OwnedMutexGuard<()>;

impl MemoryStore {
    /// No marks: any authority and any token is accepted first.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`MemoryMarks::adopt`].
    pub fn adopt(&self, from: ClusterId, to: ClusterId) -> usize {
        self.marks.adopt(from, to)
    }

    fn turn(&self, resource: &ResourceName) -> Arc<Turn<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(turns.entry(resource.clone()).or_default())
    }
}

impl MarkStore for MemoryStore {
    type Held = HeldInMemory;

    async fn hold(&self, fences: &[Fence], within: Duration) -> Result<HeldInMemory, FenceError> {
        let fences = in_order(fences)?;
        let passed = bounded(within, async {
            let mut passed = Vec::new();
            for fence in &fences {
                passed.push(self.turn(&fence.resource).lock_owned().await);
            }
            Ok(passed)
        });
        let passed = passed.await?;
        // Locked before they are raised: in one process that is one step, not two.
        self.marks.guarded_set(&fences, || ())?;
        Ok(HeldInMemory(passed))
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
