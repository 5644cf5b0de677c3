//! A grant in the application's hands.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::claim::Claimed;
use super::core::{Core, Loss, State};
use super::fate::Plan;
use super::session::Open;
use super::{ClientError, operations};
use crate::clock::BootMoment;
use crate::locks::{Fence, ResourceName, SessionId, Token};

/// The longest sleep: tokio's clock stands still in suspend, the deadline's does
/// not.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Authority over one resource. Dropped, it is released in the background.
///
/// A guard that says *held* was held a moment ago, and no more can be known: a
/// process may stop between the question and the write. Send [`Guard::fence`]
/// along with every write, and let the destination check it.
#[derive(Debug)]
#[must_use = "a guard that is dropped is released"]
pub struct Guard {
    // Dropped in this order: the grant goes back before the session can end.
    claimed: Claimed,
    open: Arc<Open>,
}

impl Guard {
    pub(super) fn new(claimed: Claimed, open: Arc<Open>) -> Self {
        Self { claimed, open }
    }

    /// What is held.
    pub fn resource(&self) -> &ResourceName {
        &self.claimed.fence.resource
    }

    /// The fencing token: greater than every token issued before it. (I1)
    pub fn token(&self) -> Token {
        self.claimed.fence.token
    }

    /// What must travel with every protected write.
    pub fn fence(&self) -> &Fence {
        &self.claimed.fence
    }

    /// The session that holds it.
    pub fn session(&self) -> SessionId {
        self.core().session
    }

    /// Held, suspended or lost, by the clock at this moment: right also when no
    /// task of the client has run for long.
    pub fn state(&self) -> State {
        self.core().state(Some(self.token()), BootMoment::now())
    }

    /// Whether the owner may act.
    pub fn is_held(&self) -> bool {
        self.state() == State::Held
    }

    /// How long the owner may act if no renewal is acknowledged from here on; zero
    /// when it must not.
    pub fn valid_for(&self) -> Duration {
        let now = BootMoment::now();
        match self.core().state(Some(self.token()), now) {
            State::Held => self.core().deadline().since(now),
            State::Suspended | State::Lost(_) => Duration::ZERO,
        }
    }

    /// Resolves when the grant is over for good.
    pub async fn lost(&self) -> Loss {
        let mut changes = self.core().changes();
        loop {
            if let State::Lost(loss) = self.state() {
                return loss;
            }
            changes.changed().await.expect("the guard holds the sender");
        }
    }

    /// Resolves when the owner must not act: at its own deadline, or when the
    /// grant is lost. Never says held.
    pub async fn not_held(&self) -> State {
        let mut changes = self.core().changes();
        loop {
            let state = self.state();
            if state != State::Held {
                return state;
            }
            tokio::select! {
                woken = changes.changed() => woken.expect("the guard holds the sender"),
                () = tokio::time::sleep(self.valid_for().min(SLEEP_MAX)) => {}
            }
        }
    }

    /// Gives the grant back and waits for the authority to say so, at most the
    /// client's call timeout.
    ///
    /// # Errors
    /// See [`Guard::release_within`].
    pub async fn release(self) -> Result<(), ClientError> {
        let within = self.core().client.network.settings.call;
        self.release_within(within).await
    }

    /// Gives the grant back and waits at most this long for the authority to say
    /// so. The release goes on in the background if it takes longer, or if this
    /// future is dropped.
    ///
    /// # Errors
    /// [`ClientError::Lost`] if the grant had ended before, and
    /// [`ClientError::SessionExpired`] if its session had;
    /// [`ClientError::Unreachable`] if no node answered in time.
    pub async fn release_within(self, within: Duration) -> Result<(), ClientError> {
        let Self { claimed, open } = self;
        let core = Arc::clone(&claimed.core);
        core.check()?;
        let Fence { resource, token, .. } = claimed.fence.clone();
        if let State::Lost(_) = core.state(Some(token), BootMoment::now()) {
            return Err(ClientError::Lost { token: Some(token) });
        }
        claimed.disarm();
        let (reply, answer) = oneshot::channel();
        let plan = Plan::within(&core.client.network.settings, within);
        core.spawn(operations::release(Arc::clone(&core), resource, token, plan, reply));
        let outcome = answer.await.unwrap_or(Err(ClientError::SessionClosed));
        drop(open);
        outcome
    }

    fn core(&self) -> &Arc<Core> {
        &self.claimed.core
    }
}
