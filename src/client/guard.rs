//! A grant in the application's hands.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;

use super::ClientError;
use super::core::Core;
use super::fate::{Fate, Plan};
use super::grant::Claimed;
use super::handover::Asked;
use super::holder::{self, Named, Reply};
use super::network::lock;
use super::session::Open;
use super::state::{Loss, State};
use crate::clock::{BootMoment, Moment};
use crate::locks::{Fence, Mode, ResourceName, Revision, SessionId, Token, Value};

/// The longest sleep: tokio's clock stands still in suspend, the deadline's does
/// not.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Authority over a resource, or over several at once. Dropped, it is released in the
/// background.
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
    /// The last ask that was handed to the application.
    told: Mutex<Revision>,
    /// Changes of the value are sent one at a time, or the last one might not stay.
    value_turn: Arc<tokio::sync::Mutex<()>>,
}

impl Guard {
    pub(super) fn new(claimed: Claimed, open: Arc<Open>) -> Self {
        Self { claimed, open, told: Mutex::default(), value_turn: Arc::default() }
    }

    /// What is held; of several the first, in the order of names.
    pub fn resource(&self) -> &ResourceName {
        &self.fence().resource
    }

    /// The fencing token: greater than every token issued before it. (I1)
    pub fn token(&self) -> Token {
        self.fence().token
    }

    /// What must travel with every protected write; of several resources, the one for
    /// the first.
    pub fn fence(&self) -> &Fence {
        &self.fences()[0]
    }

    /// One for each resource that is held, in the order of their names; at least one.
    pub fn fences(&self) -> &[Fence] {
        self.claimed.grant.fences()
    }

    /// How the resource is shared.
    pub fn mode(&self) -> Mode {
        self.claimed.grant.mode
    }

    /// The session that holds it.
    pub fn session(&self) -> SessionId {
        self.core().session
    }

    /// Held, suspended or lost, by the clock at this moment: right also when no
    /// task of the client has run for long.
    pub fn state(&self) -> State {
        self.claimed.state()
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

    /// That somebody has asked for the grant back, as last heard: the authority tells
    /// with a renewal, so within a third of the ttl. `None` if nobody did, or if it is
    /// over already.
    pub fn asked(&self) -> Option<Asked> {
        self.core().asked(self.token())
    }

    /// Resolves when somebody asks for the grant back, once for each ask. Finish what
    /// is under way and release: the next holder starts after that, and not before.
    /// Never resolves for a grant that is over; see [`Guard::lost`].
    pub async fn handover_asked(&self) -> Asked {
        let mut changes = self.core().changes();
        loop {
            if let Some(asked) = self.asked() {
                let mut told = lock(&self.told);
                if asked.at > *told {
                    *told = asked.at;
                    return asked;
                }
            }
            changes.changed().await.expect("the guard holds the sender");
        }
    }

    /// Changes what all may read beside the grant: up to 4,096 bytes. Waits at most the
    /// client's call timeout.
    ///
    /// # Errors
    /// See [`Guard::set_value_within`].
    pub async fn set_value(&self, value: &[u8]) -> Result<(), ClientError> {
        self.set_value_within(value, self.core().client.network.settings.call).await
    }

    /// As [`Guard::set_value`], but waits at most this long. The change goes on in the
    /// background if it takes longer, or if this future is dropped; a later one is sent
    /// after it.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a longer value; [`ClientError::Lost`] if the grant
    /// has ended, [`ClientError::SessionExpired`] if its session has;
    /// [`ClientError::Unreachable`] if no node answered in time.
    pub async fn set_value_within(
        &self,
        value: &[u8],
        within: Duration,
    ) -> Result<(), ClientError> {
        let core = Arc::clone(self.core());
        core.check()?;
        self.check()?;
        let value = Value::new(value)?;
        let plan = Plan::within(&core.client.network.settings, within);
        let turn = Arc::clone(&self.value_turn).lock_owned();
        let left = plan.until.map_or(Duration::MAX, |until| until.since(Moment::now()));
        let Ok(turn) = tokio::time::timeout(left, turn).await else {
            return Err(Fate::default().unreachable());
        };
        let (grant, background) = (self.named(), Arc::clone(&core));
        told(&core, |reply| async move {
            holder::set_value(background, grant, value, plan, reply).await;
            drop(turn);
        })
        .await
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
        let core = Arc::clone(self.core());
        core.check()?;
        self.check()?;
        let grant = self.named();
        let leaving = core.leave(self.claimed.grant.names().cloned().collect());
        let Self { claimed, open, .. } = self;
        claimed.disarm();
        let plan = Plan::within(&core.client.network.settings, within);
        let background = Arc::clone(&core);
        let outcome = told(&core, |reply| async move {
            holder::release(background, grant, plan, reply).await;
            drop(leaving);
        })
        .await;
        drop(open);
        outcome
    }

    /// Confirms a grant in phase barrier, and waits at most this long.
    pub(super) async fn confirm_within(&self, within: Duration) -> Result<(), ClientError> {
        let core = Arc::clone(self.core());
        core.check()?;
        self.check()?;
        let plan = Plan::within(&core.client.network.settings, within);
        let (grant, background) = (self.named(), Arc::clone(&core));
        told(&core, |reply| holder::confirm(background, grant, plan, reply)).await
    }

    /// How long calls take if they are not told.
    pub(super) fn call_timeout(&self) -> Duration {
        self.core().client.network.settings.call
    }

    /// An error if the grant is over.
    fn check(&self) -> Result<(), ClientError> {
        match self.state() {
            State::Lost(_) => Err(ClientError::Lost { token: Some(self.token()) }),
            State::Held | State::Suspended => Ok(()),
        }
    }

    fn named(&self) -> Named {
        Named { resource: self.resource().clone(), token: self.token() }
    }

    fn core(&self) -> &Arc<Core> {
        &self.claimed.core
    }
}

/// Runs a request in the background, and waits for what it tells.
async fn told<F>(core: &Core, request: impl FnOnce(Reply) -> F) -> Result<(), ClientError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    core.spawn(request(reply));
    // A task that vanished went down with its runtime.
    answer.await.unwrap_or(Err(ClientError::SessionClosed))
}
