//! Turns at resources, within one process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::locks::{Fence, ResourceName};

type Waiting = BTreeMap<ResourceName, Arc<Turn<()>>>;

/// Who is at a resource, and who waits for it, in the order of arrival. Holds nothing of a
/// resource at which nobody is.
#[derive(Debug, Default, Clone)]
pub(super) struct Turns(Arc<Mutex<Waiting>>);

/// A place in the queue of one resource, and the turn once it has come.
#[derive(Debug)]
pub(super) struct Ticket {
    turns: Turns,
    resource: ResourceName,
    turn: Option<Arc<Turn<()>>>,
    passed: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn at each of these resources, which are in the order of names.
    pub(super) async fn take(&self, fences: &[Fence]) -> Vec<Ticket> {
        let mut taken = Vec::with_capacity(fences.len());
        for fence in fences {
            let (mut ticket, turn) = self.queue(&fence.resource);
            ticket.passed = Some(turn.lock_owned().await);
            taken.push(ticket);
        }
        taken
    }

    fn queue(&self, resource: &ResourceName) -> (Ticket, Arc<Turn<()>>) {
        let turn = Arc::clone(self.waiting().entry(resource.clone()).or_default());
        let (turns, resource) = (self.clone(), resource.clone());
        (Ticket { turns, resource, turn: Some(Arc::clone(&turn)), passed: None }, turn)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.waiting().len()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        (self.passed, self.turn) = (None, None);
        let mut waiting = self.turns.waiting();
        // Whoever else is in the queue has a share of it.
        if waiting.get(&self.resource).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            waiting.remove(&self.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::locks::{ClusterId, Token};

    #[tokio::test]
    async fn turns_pass_one_by_one_and_nothing_is_left_of_them() {
        let turns = Turns::default();
        let token = Token::new(1).expect("a token");
        let fence = |name| Fence {
            cluster: ClusterId::new([7; 16]),
            resource: ResourceName::new(name).expect("a name"),
            slot: None,
            token,
            floor: token,
        };
        let (both, one) = ([fence("a"), fence("b")], [fence("b")]);
        let taken = turns.take(&both).await;
        let given_up = tokio::time::timeout(Duration::from_millis(1), turns.take(&one)).await;
        assert!(given_up.is_err(), "it is not free");
        let next = turns.clone();
        let next = tokio::spawn(async move { next.take(&one).await });
        while turns.waiting().values().all(|turn| Arc::strong_count(turn) < 4) {
            tokio::task::yield_now().await;
        }
        drop(taken);
        let taken = next.await.expect("it ran");
        assert_eq!((taken.len(), turns.len()), (1, 1));
        drop(taken);
        assert_eq!(turns.len(), 0);
    }
}
