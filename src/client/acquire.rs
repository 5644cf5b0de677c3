//! An acquire about to be made.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ClientError;
use super::claim::{self, Caller, Occupied, Wanted};
use super::core::Core;
use super::fate::{Fate, Plan, Settings};
use super::grant::Claimed;
use super::guard::Guard;
use super::leaving::Wish;
use super::modes::{Form, Hold};
use super::session::{Open, Pending, millis};
use super::unconfirmed::Unconfirmed;
use crate::clock::Moment;
use crate::locks::{Claim, Handoff, Invalid, Millis, Mode, ResourceName, Terms, Value, WAIT_MAX};

/// How much longer than the authority this side waits before it cancels by its own
/// clock.
const GRACE: Duration = Duration::from_secs(1);

/// Is told the place in the queue.
type OnQueued = Box<dyn FnOnce(u64) + Send + 'static>;

/// An acquire about to be made: `session.acquire("job/7").await`, or with a bound
/// before the `.await`.
///
/// If its future is dropped, its wait is cancelled in the background, and a grant
/// that comes all the same is released. The same session can ask for the name again at
/// once: the new request is sent when that is done.
#[must_use = "a resource is asked for by .await"]
pub struct Acquire<G = Guard> {
    open: Arc<Open>,
    asked: Asked,
    on_queued: Option<OnQueued>,
    form: PhantomData<fn() -> G>,
}

/// What is asked for, as the application put it.
#[derive(Debug)]
struct Asked {
    resources: Vec<String>,
    mode: Mode,
    /// `None` waits as long as the authority allows.
    wait: Option<Duration>,
    within: Option<Duration>,
    lock_delay: Duration,
    barrier: Option<Duration>,
    value: Vec<u8>,
}

impl<G> Acquire<G> {
    pub(super) fn waiting(open: Arc<Open>, resources: Vec<String>, mode: Mode) -> Self {
        let asked = Asked {
            resources,
            mode,
            wait: None,
            within: None,
            lock_delay: Duration::ZERO,
            barrier: None,
            value: Vec::new(),
        };
        Self { open, asked, on_queued: None, form: PhantomData }
    }

    /// How long to stand in the queue at most, counted by the authority; zero
    /// tries once. At most 24 h. The call ends within a second after it.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.asked.wait = Some(wait);
        self
    }

    /// When the whole call ends, whatever the network does, and the wait with it.
    /// By default: a try ends at the client's call timeout, a wait a second after
    /// it is over, and a wait without a bound when no node could be reached for the
    /// client's call timeout.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.asked.within = Some(within);
        self
    }

    /// How long the resource (of slots: the slot) stays closed to conflicting grants
    /// after this grant's *expiry or revoke*, for destinations that cannot check
    /// tokens; at most a minute, none by default. A release opens it at once.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.asked.lock_delay = delay;
        self
    }

    /// What all may read beside the grant: up to 4,096 bytes. The holder can change it
    /// with [`Guard::set_value`].
    pub fn value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.asked.value = value.into();
        self
    }

    /// Is told, once, how many stand before this acquire (in the longest of the queues,
    /// of several), if it has to wait. Called by the task that awaits the acquire.
    pub fn on_queued(mut self, told: impl FnOnce(u64) + Send + 'static) -> Self {
        self.on_queued = Some(Box::new(told));
        self
    }

    async fn make(self) -> Result<Guard, ClientError> {
        let Self { open, asked, on_queued, form: _ } = self;
        let core = Arc::clone(&open.core);
        core.check()?;
        let wanted = asked.wanted(&core.client.network.settings)?;
        let (wish, stay) = Wish::new(&core.departures, wanted.claim.names.clone());
        let place = room(&core, &wanted).await?;
        let on_queued = on_queued.filter(|_| wanted.wait.0 > 0);
        let (reply, answer) = oneshot::channel();
        let (place_told, place_hears) = oneshot::channel();
        let queued = on_queued.is_some().then_some(place_told);
        let (caller, occupied) =
            (Caller { reply, queued }, Occupied { _place: place, _stay: stay });
        core.spawn(claim::acquire(Arc::clone(&core), wanted, caller, occupied));
        let claimed = answered(answer, place_hears, on_queued).await?;
        wish.fulfilled();
        Ok(Guard::new(claimed, open))
    }
}

impl<G: Hold> Acquire<G> {
    /// How long the whole call may take, if that was said.
    pub(super) fn within(&self) -> Option<Duration> {
        self.asked.within
    }

    /// Strict handoff: the grant arrives in phase *barrier*. It keeps everybody else
    /// out, but is not current until its owner has raised the fence at every
    /// destination and confirmed ([`Unconfirmed::confirm`]). Not confirmed within
    /// `barrier` (1 ms to an hour; 30 s is a good start) it ends. (I9)
    pub fn strict(self, barrier: Duration) -> Acquire<Unconfirmed<G>> {
        let Self { open, mut asked, on_queued, form: _ } = self;
        asked.barrier = Some(barrier);
        Acquire { open, asked, on_queued, form: PhantomData }
    }
}

impl<G: Form> IntoFuture for Acquire<G> {
    type Output = Result<G, ClientError>;
    type IntoFuture = Pending<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.make().await.map(G::form) })
    }
}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl Asked {
    /// What this comes to: the claim, how long the authority is to wait, and the call.
    fn wanted(&self, settings: &Settings) -> Result<Wanted, Invalid> {
        let names = self.resources.iter().map(|name| ResourceName::new(name));
        let names = names.collect::<Result<_, _>>()?;
        let handoff = match self.barrier {
            None => Handoff::Plain,
            Some(barrier) => Handoff::Strict { barrier: millis("barrier_ms", barrier)? },
        };
        let lock_delay = match self.lock_delay.as_nanos() {
            0 => Millis(0),
            _ => millis("lock_delay_ms", self.lock_delay)?,
        };
        let terms = Terms { lock_delay, handoff, value: Value::new(&self.value)? };
        let claim = Claim::new(names, self.mode, terms)?;
        let wait = self.authority_waits()?;
        Ok(Wanted { claim, wait, plan: self.plan(wait, settings) })
    }

    fn authority_waits(&self) -> Result<Millis, Invalid> {
        let wait = match (self.wait, self.within) {
            (Some(wait), _) if wait.is_zero() => Millis(0),
            (Some(wait), _) => millis("wait_ms", wait)?,
            (None, Some(within)) => millis("deadline", within.min(WAIT_MAX.duration()))?,
            (None, None) => WAIT_MAX,
        };
        if wait > WAIT_MAX {
            return Err(Invalid { field: "wait_ms", bound: "at most 24 h" });
        }
        Ok(wait)
    }

    fn plan(&self, wait: Millis, settings: &Settings) -> Plan {
        let within = match (self.within, self.wait) {
            (Some(within), _) => Some(within),
            (None, Some(_)) if wait.0 == 0 => Some(settings.call),
            (None, Some(wait)) => Some(wait.saturating_add(GRACE)),
            (None, None) => None,
        };
        Plan {
            until: within.map(|within| Moment::now().plus(within)),
            attempt: (wait.0 == 0).then_some(settings.attempt),
            patience: within.is_none().then_some(settings.call),
            leader: true,
            repeats: true,
        }
    }
}

/// A place among the session's acquires, when nothing of the session is still ending on
/// these names.
async fn room(core: &Core, wanted: &Wanted) -> Result<OwnedSemaphorePermit, ClientError> {
    let left = wanted.plan.until.map_or(Duration::MAX, |until| until.since(Moment::now()));
    let patience = wanted.plan.patience.unwrap_or(Duration::MAX);
    tokio::select! {
        biased;
        loss = core.ended() => Err(loss.error()),
        place = place(core, &wanted.claim.names) => Ok(place),
        () = tokio::time::sleep(left) => Err(Fate::default().unreachable()),
        () = core.departures.stuck(patience) => Err(Fate::default().unreachable()),
    }
}

/// The place is taken last: who waits for a name does not keep others from theirs.
async fn place(core: &Core, names: &[ResourceName]) -> OwnedSemaphorePermit {
    loop {
        core.departures.over(names).await;
        let place = Arc::clone(&core.places).acquire_owned().await;
        if !core.departures.any(names) {
            return place.expect("the places of a session are never closed");
        }
    }
}

/// The answer; on the way, if it comes, the place in the queue.
async fn answered(
    mut answer: oneshot::Receiver<Result<Claimed, ClientError>>,
    place: oneshot::Receiver<u64>,
    on_queued: Option<OnQueued>,
) -> Result<Claimed, ClientError> {
    // A task that vanished went down with its runtime.
    let gone = |_| Err(ClientError::SessionClosed);
    let Some(on_queued) = on_queued else { return answer.await.unwrap_or_else(gone) };
    tokio::select! {
        biased;
        Ok(ahead) = place => on_queued(ahead),
        answer = &mut answer => return answer.unwrap_or_else(gone),
    }
    answer.await.unwrap_or_else(gone)
}
