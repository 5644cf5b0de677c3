//! The names on which something of a session is still ending in the background: a
//! grant on its way back, a wait on its way out of the queue. To ask for such a name
//! at once would be answered with what is not wanted any longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::network::lock;
use crate::locks::ResourceName;

/// All such names of one session.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// How many things are ending on each name.
    leaving: Mutex<BTreeMap<ResourceName, usize>>,
    fewer: watch::Sender<()>,
}

/// Something is ending on these names until this is dropped.
#[derive(Debug)]
pub(super) struct Leaving {
    departures: Arc<Departures>,
    names: Vec<ResourceName>,
}

impl Departures {
    /// Something begins to end.
    pub fn begin(self: &Arc<Self>, names: Vec<ResourceName>) -> Leaving {
        let mut leaving = lock(&self.leaving);
        for name in &names {
            *leaving.entry(name.clone()).or_default() += 1;
        }
        drop(leaving);
        Leaving { departures: Arc::clone(self), names }
    }

    /// Resolves when nothing is ending on these names.
    pub async fn over(&self, names: &[ResourceName]) {
        let mut fewer = self.fewer.subscribe();
        while self.any(names) {
            fewer.changed().await.expect("the sender is a field of self");
        }
    }

    /// Resolves when things are ending and none has come to its end for this long: nobody
    /// is there to end them.
    pub async fn stuck(&self, patience: Duration) {
        let mut fewer = self.fewer.subscribe();
        loop {
            let some = !lock(&self.leaving).is_empty();
            let waited = tokio::time::timeout(patience, fewer.changed()).await;
            if waited.is_err() && some {
                return;
            }
        }
    }

    /// Whether something is ending on these names.
    pub fn any(&self, names: &[ResourceName]) -> bool {
        let leaving = lock(&self.leaving);
        names.iter().any(|name| leaving.contains_key(name))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut leaving = lock(&self.departures.leaving);
        for name in &self.names {
            if let Some(count) = leaving.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    leaving.remove(name);
                }
            }
        }
        drop(leaving);
        self.departures.fewer.send_replace(());
    }
}

/// A call that stands for an acquire. When it ends without the grant, the names count
/// as leaving until the task behind it, which holds the [`Stay`], is done.
#[derive(Debug)]
pub(super) struct Wish {
    departures: Arc<Departures>,
    names: Vec<ResourceName>,
    stay: Stay,
}

/// The task's part of a [`Wish`]; held as long as the task runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Stay(Arc<Mutex<Option<Leaving>>>);

impl Wish {
    pub fn new(departures: &Arc<Departures>, names: Vec<ResourceName>) -> (Self, Stay) {
        let stay = Stay::default();
        (Self { departures: Arc::clone(departures), names, stay: stay.clone() }, stay)
    }

    /// It has the grant.
    pub fn fulfilled(mut self) {
        self.names.clear();
    }
}

impl Drop for Wish {
    fn drop(&mut self) {
        if !self.names.is_empty() {
            let names = std::mem::take(&mut self.names);
            *lock(&self.stay.0) = Some(self.departures.begin(names));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<ResourceName> {
        names.iter().map(|name| ResourceName::new(name).expect("a good name")).collect()
    }

    #[tokio::test]
    async fn a_name_is_free_when_everything_on_it_has_ended() {
        let departures = Arc::<Departures>::default();
        let (first, second) =
            (departures.begin(names(&["a", "b"])), departures.begin(names(&["b"])));
        assert!(departures.any(&names(&["b"])) && !departures.any(&names(&["c"])));
        drop(first);
        assert!(departures.any(&names(&["a", "b"])) && !departures.any(&names(&["a"])));
        let over = {
            let departures = Arc::clone(&departures);
            tokio::spawn(async move { departures.over(&names(&["b"])).await })
        };
        drop(second);
        over.await.expect("not aborted");
    }

    #[test]
    fn a_wish_that_is_given_up_leaves_until_its_task_is_done_and_a_fulfilled_one_does_not() {
        let departures = Arc::<Departures>::default();
        let (wish, task) = Wish::new(&departures, names(&["a"]));
        assert!(!departures.any(&names(&["a"])), "it is asked for, not given up");
        drop(wish);
        assert!(departures.any(&names(&["a"])));
        drop(task);
        assert!(!departures.any(&names(&["a"])));
        let (wish, _task) = Wish::new(&departures, names(&["a"]));
        wish.fulfilled();
        assert!(!departures.any(&names(&["a"])));
        let (wish, task) = Wish::new(&departures, names(&["a"]));
        drop(task);
        drop(wish);
        assert!(!departures.any(&names(&["a"])), "the task was done before");
    }
}
