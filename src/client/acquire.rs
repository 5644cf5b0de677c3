//! An acquire about to be made.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::ClientError;
use super::claim::{self, Wanted};
use super::fate::{Fate, Plan, Settings};
use super::guard::Guard;
use super::session::{Open, Pending, millis};
use crate::clock::Moment;
use crate::locks::{Invalid, Millis, ResourceName, WAIT_MAX};

/// How much longer than the authority this side waits before it cancels by its own
/// clock.
const GRACE: Duration = Duration::from_secs(1);

/// An acquire about to be made: `session.acquire("job/7").await`, or with a bound
/// before the `.await`.
///
/// If its future is dropped, its wait is cancelled in the background, and a grant
/// that comes all the same is released.
#[derive(Debug)]
#[must_use = "a resource is asked for by .await"]
pub struct Acquire {
    open: Arc<Open>,
    resource: String,
    /// `None` waits as long as the authority allows.
    wait: Option<Duration>,
    within: Option<Duration>,
}

impl Acquire {
    pub(super) fn waiting(open: Arc<Open>, resource: String) -> Self {
        Self { open, resource, wait: None, within: None }
    }

    pub(super) fn trying(open: Arc<Open>, resource: String) -> Self {
        Self { open, resource, wait: Some(Duration::ZERO), within: None }
    }

    /// How long to stand in the queue at most, counted by the authority; zero
    /// tries once. At most 24 h. The call ends within a second after it.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// When the whole call ends, whatever the network does, and the wait with it.
    /// By default: a try ends at the client's call timeout, a wait a second after
    /// it is over, and a wait without a bound when no node could be reached for the
    /// client's call timeout.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }

    /// What this comes to: how long the authority is to wait, and the call.
    fn wanted(&self, settings: &Settings) -> Result<(Millis, Plan), Invalid> {
        let wait = match (self.wait, self.within) {
            (Some(wait), _) if wait.is_zero() => Millis(0),
            (Some(wait), _) => millis("wait_ms", wait)?,
            (None, Some(within)) => millis("deadline", within.min(WAIT_MAX.duration()))?,
            (None, None) => WAIT_MAX,
        };
        if wait > WAIT_MAX {
            return Err(Invalid { field: "wait_ms", bound: "at most 24 h" });
        }
        let within = match (self.within, self.wait) {
            (Some(within), _) => Some(within),
            (None, Some(_)) if wait.0 == 0 => Some(settings.call),
            (None, Some(wait)) => Some(wait.saturating_add(GRACE)),
            (None, None) => None,
        };
        let plan = Plan {
            until: within.map(|within| Moment::now().plus(within)),
            attempt: (wait.0 == 0).then_some(settings.attempt),
            patience: within.is_none().then_some(settings.call),
            leader: true,
        };
        Ok((wait, plan))
    }

    async fn make(self) -> Result<Guard, ClientError> {
        let core = Arc::clone(&self.open.core);
        core.check()?;
        let resource = ResourceName::new(&self.resource)?;
        let settings = &core.client.network.settings;
        let (wait, plan) = self.wanted(settings)?;
        let left = plan.until.map_or(Duration::MAX, |until| until.since(Moment::now()));
        let place = Arc::clone(&core.places).acquire_owned();
        let Ok(place) = tokio::time::timeout(left, place).await else {
            return Err(Fate::default().unreachable());
        };
        let place = place.expect("the places of a session are never closed");
        let (reply, answer) = oneshot::channel();
        let wanted = Wanted { resource, wait, plan };
        core.spawn(claim::acquire(Arc::clone(&core), wanted, reply, place));
        // A task that vanished went down with its runtime.
        let claimed = answer.await.unwrap_or(Err(ClientError::SessionClosed))?;
        Ok(Guard::new(claimed, self.open))
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Guard, ClientError>;
    type IntoFuture = Pending<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}
