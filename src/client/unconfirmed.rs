//! A grant in phase barrier. Section 7 of the contract.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::ClientError;
use super::guard::Guard;
use super::modes::{Form, Hold};
use super::state::{Loss, State};
use crate::locks::{Fence, Mode, ResourceName, Token};

/// A grant of a strict handoff, in phase *barrier*: it keeps everybody else out, but is
/// not current yet. Raise its fence at every destination (a raise waits there for
/// writes already past the check), and then confirm. Dropped, it is released in the
/// background; not confirmed in time, it ends. (I9)
///
/// ```no_run
/// # async fn run(session: ringfence::client::Session) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn raise(_: &ringfence::locks::Fence) -> Result<(), std::io::Error> { Ok(()) }
/// use std::time::Duration;
///
/// let unconfirmed = session.acquire("db/primary").strict(Duration::from_secs(30)).await?;
/// for fence in unconfirmed.fences() {
///     // At every destination. If one fails, the grant is released by the `?`.
///     raise(fence).await?;
/// }
/// let guard = unconfirmed.confirm().await?;
/// # Ok(()) }
/// ```
#[must_use = "a grant that is dropped is released"]
pub struct Unconfirmed<G> {
    guard: Guard,
    form: PhantomData<fn() -> G>,
}

impl<G: Hold> Form for Unconfirmed<G> {
    fn form(guard: Guard) -> Self {
        Self { guard, form: PhantomData }
    }
}

impl<G: Hold> Unconfirmed<G> {
    /// What to raise at every destination, one for each resource; at least one.
    pub fn fences(&self) -> &[Fence] {
        self.guard.fences()
    }

    /// The fencing token; the confirmed grant has the same.
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// What is held; of several the first.
    pub fn resource(&self) -> &ResourceName {
        self.guard.resource()
    }

    /// How the resource is shared.
    pub fn mode(&self) -> Mode {
        self.guard.mode()
    }

    /// Held, suspended or lost. Held means that others are kept out; it does not mean
    /// that the owner may act.
    pub fn state(&self) -> State {
        self.guard.state()
    }

    /// Resolves when it is over for good, also because it was not confirmed in time.
    pub async fn lost(&self) -> Loss {
        self.guard.lost().await
    }

    /// Makes the grant active: its fence is raised at every destination. Waits at most
    /// the client's call timeout.
    ///
    /// # Errors
    /// See [`Unconfirmed::confirm_within`].
    pub async fn confirm(self) -> Result<G, NotConfirmed<G>> {
        let within = self.guard.call_timeout();
        self.confirm_within(within).await
    }

    /// As [`Unconfirmed::confirm`], but waits at most this long. The request goes on in
    /// the background if it takes longer. If this future is dropped the grant is
    /// released.
    ///
    /// # Errors
    /// [`NotConfirmed`], with the grant to try again if it may still be there.
    pub async fn confirm_within(self, within: Duration) -> Result<G, NotConfirmed<G>> {
        match self.guard.confirm_within(within).await {
            Ok(()) => Ok(G::form(self.guard)),
            Err(error) => {
                let over = matches!(self.state(), State::Lost(_));
                let grant = (!over).then(|| Box::new(self));
                Err(NotConfirmed { error, grant })
            }
        }
    }

    /// Gives the grant back unconfirmed, as [`Guard::release`].
    ///
    /// # Errors
    /// See [`Guard::release_within`].
    pub async fn release(self) -> Result<(), ClientError> {
        self.guard.release().await
    }

    /// As [`Unconfirmed::release`], but waits at most this long.
    ///
    /// # Errors
    /// See [`Guard::release_within`].
    pub async fn release_within(self, within: Duration) -> Result<(), ClientError> {
        self.guard.release_within(within).await
    }
}

impl<G> fmt::Debug for Unconfirmed<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unconfirmed").field(&self.guard).finish()
    }
}

/// A confirm that did not end well. Dropped, it releases the grant; so `?` in a
/// function that returns [`ClientError`] does.
#[derive(Debug, thiserror::Error)]
#[error("not confirmed: {error}")]
pub struct NotConfirmed<G> {
    /// Why.
    #[source]
    pub error: ClientError,
    /// The grant, if it may still be there: confirming again is safe, and so is to drop
    /// it. Nobody may act under it yet.
    pub grant: Option<Box<Unconfirmed<G>>>,
}

impl<G> From<NotConfirmed<G>> for ClientError {
    fn from(failed: NotConfirmed<G>) -> Self {
        failed.error
    }
}
