//! Marks in the memory of one process. Not durable: they are as old as the
//! process, so what they protect must die with it. For tests, and for
//! destinations that live in one process (a device, a cache, an actor).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(feature = "client")]
use std::{sync::TryLockError, time::Duration};

use super::error::FenceError;
use super::rule::{Marks, Verdict, check_set, decide};
#[cfg(feature = "client")]
use super::target::{FenceTarget, Raising};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// How often it is looked whether a write is over.
#[cfg(feature = "client")]
const POLL: Duration = Duration::from_millis(1);

/// The marks of one destination. They grow with the resources ever written.
#[derive(Debug, Default)]
pub struct MemoryMarks {
    resources: Mutex<BTreeMap<ResourceName, Resource>>,
}

#[derive(Debug, Clone)]
struct Resource {
    cluster: ClusterId,
    mark: Token,
    slots: BTreeMap<u32, Token>,
}

#[cfg(feature = "client")]
impl FenceTarget for MemoryMarks {
    fn name(&self) -> &str {
        "memory"
    }

    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a> {
        let free = || match self.resources.try_lock() {
            Ok(mut free) => Some(judged(&mut free, fences, || ())),
            Err(TryLockError::Poisoned(free)) => {
                Some(judged(&mut free.into_inner(), fences, || ()))
            }
            Err(TryLockError::WouldBlock) => None,
        };
        // A write under way is awaited, and no thread of the runtime is stopped by it.
        let raised = async move {
            loop {
                if let Some(raised) = free() {
                    return raised;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        Box::pin(async move {
            let raised = tokio::time::timeout(within, raised).await;
            raised.unwrap_or_else(|_| Err(FenceError::Busy("a write is under way".into())))
        })
    }
}

impl MemoryMarks {
    /// No marks: any authority and any token is accepted first.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the fence, raises the mark and runs `write`, in one step: no raise
    /// comes between, nor any other guarded write. `write` must not call back.
    ///
    /// # Errors
    /// [`FenceError::Stale`], [`FenceError::FloorAboveToken`] or
    /// [`FenceError::ForeignCluster`]; `write` was not run.
    pub fn guarded<T>(&self, fence: &Fence, write: impl FnOnce() -> T) -> Result<T, FenceError> {
        self.guarded_set(std::slice::from_ref(fence), write)
    }

    /// The same for a write under the fences of several resources, each named once, as of
    /// a set: all are accepted and their marks raised, or none.
    ///
    /// # Errors
    /// As [`Self::guarded`], for the first that is refused, in the order given;
    /// [`FenceError::Set`] for none, or a resource that is named twice.
    pub fn guarded_set<T>(
        &self,
        fences: &[Fence],
        write: impl FnOnce() -> T,
    ) -> Result<T, FenceError> {
        judged(&mut self.lock(), fences, write)
    }

    /// Raises the mark without a write: from then on earlier owners are refused.
    ///
    /// # Errors
    /// As [`Self::guarded`].
    pub fn raise(&self, fence: &Fence) -> Result<(), FenceError> {
        self.guarded(fence, || ())
    }

    /// The mark of a resource, or of one of its slots.
    pub fn mark(&self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        let resources = self.lock();
        let known = resources.get(resource)?;
        slot.map_or(Some(known.mark), |slot| known.slots.get(&slot).copied())
    }

    /// Takes the marks of authority `from` over for authority `to`, as after a
    /// restore; returns how many resources changed hands. No mark falls.
    pub fn adopt(&self, from: ClusterId, to: ClusterId) -> usize {
        let mut resources = self.lock();
        let taken = resources.values_mut().filter(|known| known.cluster == from);
        taken.map(|known| known.cluster = to).count()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResourceName, Resource>> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks are raised before `write` runs, so a panic in it leaves them whole.
fn judged<T>(
    resources: &mut BTreeMap<ResourceName, Resource>,
    fences: &[Fence],
    write: impl FnOnce() -> T,
) -> Result<T, FenceError> {
    check_set(fences)?;
    let judged: Vec<Marks> = fences
        .iter()
        .map(|fence| match decide(known(resources, fence), fence) {
            Verdict::Accept(marks) => Ok(marks),
            Verdict::Refuse(refusal) => Err(FenceError::refused(fence, refusal)),
        })
        .collect::<Result<_, _>>()?;
    for (fence, marks) in fences.iter().zip(judged) {
        let (cluster, mark) = (marks.cluster, marks.resource);
        let first = || Resource { cluster, mark, slots: BTreeMap::new() };
        let resource = resources.entry(fence.resource.clone()).or_insert_with(first);
        resource.mark = resource.mark.max(marks.resource);
        resource.slots.extend(fence.slot.zip(marks.slot));
    }
    Ok(write())
}

fn known(resources: &BTreeMap<ResourceName, Resource>, fence: &Fence) -> Option<Marks> {
    let known = resources.get(&fence.resource)?;
    let slot = fence.slot.and_then(|slot| known.slots.get(&slot).copied());
    Some(Marks { cluster: known.cluster, resource: known.mark, slot })
}
