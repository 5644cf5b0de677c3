//! Strict handoff in one call: granted, raised everywhere, confirmed. Section 7 of the
//! contract.

use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::acquire::Acquire;
use super::backoff::Backoff;
use super::guard::Guard;
use super::modes::Hold;
use super::unconfirmed::{NotConfirmed, Unconfirmed};
use super::{ClientError, Session};
use crate::clock::Moment;
use crate::fence::{Fence, FenceError, FenceTarget};
use crate::locks::Token;

/// How long a grant may stay unconfirmed if it is not told. Section 7 of the contract.
const BARRIER: Duration = Duration::from_secs(30);

/// The least pause before a destination is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// An acquire that raises its fence at every destination before anybody may act under
/// it: `session.acquire_strict("db/primary", &[&orders, &cache]).await`.
///
/// When it returns, no owner whose authority ended before this grant writes at any of
/// these destinations any more; for a shared grant that is no exclusive owner, for a slot
/// no earlier holder of that slot. (I9)
///
/// 1. The grant is awaited, in phase *barrier*: it keeps everybody else out.
/// 2. The fence is raised at all destinations at once. Each waits for the writes that are
///    past their check there.
/// 3. The grant is confirmed.
///
/// If a destination fails, or the barrier's time is over before, the grant is given back
/// and the error names the destination. It was not active. If it is the confirm that gets no
/// answer, the grant may be active until it is given back, which goes on in the background:
/// nobody acts under it, and every mark is raised. Marks that were raised
/// stay: they shut out earlier owners only, and never the next one, whose token is
/// greater. So it can be called again after any failure, and after a crash of the process
/// in any of these steps by whoever is next; the grant of the crashed one ends with its
/// session or its barrier.
///
/// If its future is dropped, the grant is given back in the background.
#[must_use = "a resource is asked for by .await"]
pub struct StrictAcquire<'a, G = Guard> {
    acquire: Acquire<G>,
    targets: &'a [&'a dyn FenceTarget],
    barrier: Duration,
    keeps_trying: bool,
    on_granted: Option<OnGranted>,
}

/// Is told the token.
type OnGranted = Box<dyn FnOnce(Token) + Send + 'static>;

/// Why a strict acquire did not end well. Nobody may act under it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandoffError {
    /// The grant was not made, or has ended, or was not confirmed.
    #[error(transparent)]
    Authority(#[from] ClientError),
    /// The grant ended, by its barrier or with its session, while it was raised.
    #[error("the grant ended while its fence was raised at {}: {error}", destinations.join(", "))]
    Ended {
        /// [`FenceTarget::name`] of those that had not answered.
        destinations: Vec<String>,
        /// How it ended.
        #[source]
        error: ClientError,
    },
    /// A destination did not raise its mark; the grant is given back.
    #[error("the fence is not raised at {destination}: {error}")]
    NotRaised {
        /// [`FenceTarget::name`].
        destination: String,
        /// What it said last.
        #[source]
        error: FenceError,
    },
}

impl Session {
    /// Asks for a resource, raises its fence at each of these destinations and confirms
    /// it: see [`StrictAcquire`]. For other modes, [`Acquire::raising`].
    pub fn acquire_strict<'a>(
        &self,
        resource: impl Into<String>,
        targets: &'a [&'a dyn FenceTarget],
    ) -> StrictAcquire<'a> {
        self.acquire(resource).raising(targets)
    }
}

impl<G: Hold> Acquire<G> {
    /// Raises the fence at these destinations, one or more, and confirms the grant before
    /// it is handed out: see [`StrictAcquire`].
    pub fn raising<'a>(self, targets: &'a [&'a dyn FenceTarget]) -> StrictAcquire<'a, G> {
        let on_granted = None;
        StrictAcquire { acquire: self, targets, barrier: BARRIER, keeps_trying: false, on_granted }
    }
}

impl<G: Hold> StrictAcquire<'_, G> {
    /// How long the grant may stay unconfirmed, counted by the authority from the grant
    /// on: 1 ms to an hour, 30 s by default. A destination is given what is left of it.
    pub fn barrier(mut self, barrier: Duration) -> Self {
        self.barrier = barrier;
        self
    }

    /// Asks a destination again, as long as the barrier's time lasts, that is down or
    /// where an earlier owner is still inside. Otherwise the first such answer ends the
    /// acquire. One that refuses is never asked again.
    pub fn keep_trying(mut self) -> Self {
        self.keeps_trying = true;
        self
    }

    /// Is told the token when the wait is over and the raising begins, to show progress.
    pub fn on_granted(mut self, told: impl FnOnce(Token) + Send + 'static) -> Self {
        self.on_granted = Some(Box::new(told));
        self
    }

    async fn make(self) -> Result<G, HandoffError> {
        let Self { acquire, targets, barrier, keeps_trying, on_granted } = self;
        if targets.is_empty() {
            let (field, bound) = ("targets".to_owned(), "one destination or more".to_owned());
            return Err(ClientError::Invalid { field, bound }.into());
        }
        let deadline = acquire.within().map(|within| Moment::now().plus(within));
        let unconfirmed = acquire.strict(barrier).await?;
        let until = Moment::now().plus(barrier);
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        if let Some(told) = on_granted {
            told(unconfirmed.token());
        }
        let open = Mutex::new(targets.iter().map(|target| target.name()).collect::<Vec<_>>());
        let raises = targets.iter().map(async |target| {
            raise_at(*target, unconfirmed.fences(), until, keeps_trying).await?;
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            let at = open.iter().position(|name| *name == target.name());
            open.swap_remove(at.expect("each is open until it has answered"));
            Ok(())
        });
        let raised = tokio::select! {
            biased;
            loss = unconfirmed.lost() => {
                let open = open.lock().unwrap_or_else(PoisonError::into_inner);
                let destinations = open.iter().map(ToString::to_string).collect();
                return Err(HandoffError::Ended { destinations, error: loss.error() });
            }
            // At all of them at once; the first that fails ends the others.
            raised = futures_util::future::try_join_all(raises) => raised,
        };
        if let Err(failed) = raised {
            give_back(unconfirmed, deadline).await;
            return Err(failed);
        }
        match unconfirmed.confirm_within(until.since(Moment::now())).await {
            Ok(confirmed) => Ok(confirmed),
            Err(NotConfirmed { error, grant }) => {
                if let Some(unconfirmed) = grant {
                    give_back(*unconfirmed, deadline).await;
                }
                Err(error.into())
            }
        }
    }
}

impl<'a, G: Hold> IntoFuture for StrictAcquire<'a, G> {
    type Output = Result<G, HandoffError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}

impl<G> fmt::Debug for StrictAcquire<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<_> = self.targets.iter().map(|target| target.name()).collect();
        f.debug_struct("StrictAcquire")
            .field("acquire", &self.acquire)
            .field("targets", &targets)
            .field("barrier", &self.barrier)
            .finish_non_exhaustive()
    }
}

/// Waits until others can have it, as far as that can be had in time; what is left of it
/// is done in the background. Unconfirmed, it ends by its barrier at the latest.
async fn give_back<G: Hold>(unconfirmed: Unconfirmed<G>, deadline: Option<Moment>) {
    let given = match deadline {
        Some(deadline) => unconfirmed.release_within(deadline.since(Moment::now())).await,
        None => unconfirmed.release().await,
    };
    if let Err(error) = given {
        tracing::debug!(%error, "an unconfirmed grant is given back in the background");
    }
}

async fn raise_at(
    target: &dyn FenceTarget,
    fences: &[Fence],
    until: Moment,
    keeps_trying: bool,
) -> Result<(), HandoffError> {
    let mut backoff = Backoff::default();
    let mut last = None;
    loop {
        let left = until.since(Moment::now());
        let Ok(answer) = tokio::time::timeout(left, target.raise(fences, left)).await else {
            let silent = || FenceError::Busy("no answer within the barrier's time".into());
            return Err(not_raised(target, last.unwrap_or_else(silent)));
        };
        let Err(error) = answer else { return Ok(()) };
        let again = match &error {
            FenceError::Conflict(_) => true,
            FenceError::Busy(_) | FenceError::Store(_) => keeps_trying,
            FenceError::Stale { .. }
            | FenceError::FloorAboveToken { .. }
            | FenceError::ForeignCluster { .. }
            | FenceError::Set
            | FenceError::NoTransaction
            | FenceError::Unchecked { .. }
            | FenceError::NotDurable { .. }
            | FenceError::SchemaMissing
            | FenceError::SchemaNewer { .. } => false,
        };
        if !again {
            return Err(not_raised(target, error));
        }
        tracing::debug!(destination = target.name(), %error, "the fence is raised again");
        last = Some(error);
        let pause = PAUSE + backoff.pause(rand::random());
        tokio::time::sleep(pause.min(until.since(Moment::now()))).await;
    }
}

fn not_raised(target: &dyn FenceTarget, error: FenceError) -> HandoffError {
    HandoffError::NotRaised { destination: target.name().to_owned(), error }
}
