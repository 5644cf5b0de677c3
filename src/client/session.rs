//! An owner's lease: opened, renewed in the background, and closed when its last
//! handle is gone.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::acquire::Acquire;
use super::core::{Core, Opened};
use super::election::Election;
use super::fate::{Failure, Fate, Plan};
use super::modes::{SetGuard, SharedGuard, SlotGuard};
use super::network::Target;
use super::state::{Loss, State};
use super::{ClientError, Shared, operations};
use crate::clock::BootMoment;
use crate::locks::{ClusterId, Invalid, LABELS_MAX, Labels, Millis, Mode, OwnerId, SessionId};
use crate::wire::v1;

/// The longest key and value of a label, in bytes.
const LABEL_KEY_BYTES_MAX: usize = 64;
const LABEL_VALUE_BYTES_MAX: usize = 256;
/// How long a session that was dropped tries to say so, beside its ttl.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// A future that the builders turn into.
pub(super) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A session about to be opened: `client.session(ttl).await`, or with labels and a
/// deadline before the `.await`.
#[derive(Debug)]
#[must_use = "a session is opened by .await"]
pub struct OpenSession {
    shared: Arc<Shared>,
    ttl: Duration,
    labels: Labels,
    within: Option<Duration>,
}

impl OpenSession {
    pub(super) fn new(shared: Arc<Shared>, ttl: Duration) -> Self {
        Self { shared, ttl, labels: default_labels(), within: None }
    }

    /// What the session is for, as operators see it: the label `purpose`.
    pub fn purpose(self, purpose: impl Into<String>) -> Self {
        self.label("purpose", purpose)
    }

    /// Sets a label, shown to operators. `host`, `pid` and `purpose` are set from
    /// the start. Up to 16; keys of 1 to 64 bytes, values up to 256.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// How long the opening may take; the client's call timeout by default.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }

    async fn open(self) -> Result<Session, ClientError> {
        let ttl = millis("ttl_ms", self.ttl)?;
        check_labels(&self.labels)?;
        let settings = self.shared.network.settings;
        let plan = Plan::within(&settings, self.within.unwrap_or(settings.call));
        let owner = OwnerId::new(rand::random());
        let mut sent = BootMoment::now();
        let attempt = |target: Target| {
            // Every attempt is a renewal of its own: the one that is answered
            // counts, and no other can be.
            sent = BootMoment::now();
            let message = v1::OpenSessionRequest {
                owner_id: owner.as_bytes().to_vec().into(),
                ttl_ms: ttl.0,
                labels: self.labels.clone(),
            };
            async move { operations::sessions(&target).open(target.request(message)).await }
        };
        let mut fate = Fate::default();
        let answer: Result<v1::OpenSessionResponse, Failure> =
            self.shared.network.call(plan, &mut fate, attempt).await;
        let answer = answer.map_err(|failure| failure.error(&fate))?;
        let cluster = ClusterId::from_slice(&answer.cluster_id)
            .map_err(|Invalid { field, .. }| ClientError::Malformed { field })?;
        let opened = Opened {
            owner,
            session: SessionId(answer.session),
            cluster,
            sent,
            ttl: Duration::from_millis(answer.ttl_ms),
        };
        let core = Arc::new(Core::new(Arc::clone(&self.shared), &opened));
        self.shared.keepers.join(&core);
        Ok(Session { open: Arc::new(Open { core }) })
    }
}

impl IntoFuture for OpenSession {
    type Output = Result<Session, ClientError>;
    type IntoFuture = Pending<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

/// An owner's lease, renewed in the background until it is closed or the last
/// handle, guard and acquire of it is dropped. Cheap to clone.
///
/// The owner id behind it is random and drawn anew for every session object: a
/// session can neither be stored nor inherited. After a fork the child's handles
/// refuse: it must open a session of its own.
#[derive(Debug, Clone)]
pub struct Session {
    open: Arc<Open>,
}

/// Keeps the session open; its end closes it.
#[derive(Debug)]
pub(super) struct Open {
    pub core: Arc<Core>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let core = &self.core;
        // A fork must not end its parent's session.
        if core.check().is_err() {
            return;
        }
        core.end(Loss::SessionClosed);
        let (reply, _) = oneshot::channel();
        let plan = Plan::within(&core.client.network.settings, CLOSE_WITHIN);
        core.spawn(operations::close(Arc::clone(core), plan, reply));
    }
}

impl Session {
    /// Its id: the revision of its opening.
    pub fn id(&self) -> SessionId {
        self.core().session
    }

    /// The authority that it was opened at.
    pub fn cluster(&self) -> ClusterId {
        self.core().cluster
    }

    /// The ttl that counts: the lower of two while a change is under way.
    pub fn ttl(&self) -> Duration {
        self.core().ttl()
    }

    /// Held, suspended or lost, by the clock at this moment.
    pub fn state(&self) -> State {
        self.core().state(None, BootMoment::now())
    }

    /// How long the owner may act if no renewal is acknowledged from here on; zero
    /// when it must not.
    pub fn valid_for(&self) -> Duration {
        let now = BootMoment::now();
        match self.core().state(None, now) {
            State::Held => self.core().deadline().since(now),
            State::Suspended | State::Lost(_) => Duration::ZERO,
        }
    }

    /// Resolves when the session is over.
    pub async fn lost(&self) -> Loss {
        self.core().ended().await
    }

    /// Asks for a resource and waits for it in the order of the queue, until it is
    /// granted or the future is dropped; see [`Acquire`] for shorter waits.
    pub fn acquire(&self, resource: impl Into<String>) -> Acquire {
        self.ask([resource], Mode::Exclusive)
    }

    /// Asks for a resource and takes no for an answer: [`ClientError::Busy`].
    pub fn try_acquire(&self, resource: impl Into<String>) -> Acquire {
        self.acquire(resource).wait(Duration::ZERO)
    }

    /// Asks for a share of a resource: many may have one, while nobody holds it
    /// exclusively. Nobody overtakes: behind a waiting writer a reader waits.
    pub fn acquire_shared(&self, resource: impl Into<String>) -> Acquire<SharedGuard> {
        self.ask([resource], Mode::Shared)
    }

    /// Asks for one of so many slots of a resource, 1 to 65,536; the lowest that is
    /// free. All who use the resource name the same number, while it is in use.
    pub fn acquire_slot(&self, resource: impl Into<String>, slots: u32) -> Acquire<SlotGuard> {
        self.ask([resource], Mode::Slots { of: slots })
    }

    /// Asks for up to 64 different resources at once: all are granted together, under
    /// one token, or none. While it stands first in a queue it keeps that resource
    /// closed, also when it still waits for another.
    pub fn acquire_all<I>(&self, resources: I) -> Acquire<SetGuard>
    where
        I: IntoIterator<Item: Into<String>>,
    {
        self.ask(resources, Mode::Exclusive)
    }

    /// An election among those who campaign under this name.
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election::new(self.clone(), name.into())
    }

    /// Asks in any mode, for a guard of any kind.
    pub(super) fn ask<I, G>(&self, resources: I, mode: Mode) -> Acquire<G>
    where
        I: IntoIterator<Item: Into<String>>,
    {
        let resources = resources.into_iter().map(Into::into).collect();
        Acquire::waiting(Arc::clone(&self.open), resources, mode)
    }

    /// Changes the ttl and says which one is in force. From the sending on, until
    /// the authority has answered, the lower of both counts. Waits at most the
    /// client's call timeout.
    ///
    /// # Errors
    /// See [`Session::set_ttl_within`].
    pub async fn set_ttl(&self, ttl: Duration) -> Result<Duration, ClientError> {
        self.set_ttl_within(ttl, self.core().client.network.settings.call).await
    }

    /// As [`Session::set_ttl`], but waits at most this long. The change goes on in
    /// the background if it takes longer, or if this future is dropped.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] outside the bounds in force,
    /// [`ClientError::SessionExpired`], [`ClientError::Unreachable`].
    pub async fn set_ttl_within(
        &self,
        ttl: Duration,
        within: Duration,
    ) -> Result<Duration, ClientError> {
        let core = self.core();
        core.check()?;
        let ttl = millis("ttl_ms", ttl)?;
        let plan = Plan::within(&core.client.network.settings, within);
        let (reply, answer) = oneshot::channel();
        core.spawn(operations::set_ttl(Arc::clone(core), ttl, plan, reply));
        answer.await.unwrap_or(Err(ClientError::SessionClosed))
    }

    /// Ends the session with all its grants and waits. Its guards are lost before
    /// the authority is told, whatever it answers. Waits at most the client's call
    /// timeout.
    ///
    /// # Errors
    /// See [`Session::close_within`].
    pub async fn close(self) -> Result<(), ClientError> {
        let within = self.core().client.network.settings.call;
        self.close_within(within).await
    }

    /// As [`Session::close`], but waits at most this long. The closing goes on in the
    /// background if it takes longer, or if this future is dropped, until the session's
    /// ttl is over.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] if no node answered in time. A session that had ended
    /// already is no error; nor is one that this client has given up, by another clone's
    /// close or with the runtime that it was opened in: the authority may hear of that
    /// later, or end it by its ttl.
    pub async fn close_within(self, within: Duration) -> Result<(), ClientError> {
        let core = self.core();
        match core.check() {
            Ok(()) => {}
            Err(ClientError::SessionExpired | ClientError::SessionClosed) => return Ok(()),
            Err(other) => return Err(other),
        }
        core.end(Loss::SessionClosed);
        let plan = Plan::within(&core.client.network.settings, within);
        let (reply, answer) = oneshot::channel();
        core.spawn(operations::close(Arc::clone(core), plan, reply));
        answer.await.unwrap_or(Err(ClientError::SessionClosed))
    }

    fn core(&self) -> &Arc<Core> {
        &self.open.core
    }
}

/// A duration as the wire has it.
pub(super) fn millis(field: &'static str, duration: Duration) -> Result<Millis, Invalid> {
    let refused = Invalid { field, bound: "1 ms or more" };
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 { Err(refused) } else { Ok(Millis(millis)) }
}

fn default_labels() -> Labels {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let purpose = std::env::current_exe().ok();
    let purpose = purpose.as_deref().and_then(|path| path.file_name());
    let purpose = purpose.map(|name| name.to_string_lossy().into_owned());
    BTreeMap::from([
        ("host".to_owned(), cut(host)),
        ("pid".to_owned(), std::process::id().to_string()),
        ("purpose".to_owned(), cut(purpose.unwrap_or_default())),
    ])
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LABEL_VALUE_BYTES_MAX));
    text
}

fn check_labels(labels: &Labels) -> Result<(), Invalid> {
    let good = |(key, value): (&String, &String)| {
        (1..=LABEL_KEY_BYTES_MAX).contains(&key.len()) && value.len() <= LABEL_VALUE_BYTES_MAX
    };
    if labels.len() > LABELS_MAX || !labels.iter().all(good) {
        let bound = "at most 16, keys of 1 to 64 bytes, values up to 256";
        return Err(Invalid { field: "labels", bound });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_of_a_process_name_host_pid_and_purpose_within_bounds() {
        let labels = default_labels();
        assert_eq!(
            labels.keys().map(String::as_str).collect::<Vec<_>>(),
            ["host", "pid", "purpose"]
        );
        assert_eq!(labels["pid"], std::process::id().to_string());
        assert_eq!(check_labels(&labels), Ok(()));
        assert_eq!(cut("é".repeat(200)).len(), 256);
        let long = Labels::from([("k".repeat(65), String::new())]);
        assert_eq!(check_labels(&long).map_err(|e| e.field), Err("labels"));
    }

    #[test]
    fn a_ttl_of_nothing_is_refused() {
        assert_eq!(millis("ttl_ms", Duration::from_micros(9)).map_err(|e| e.field), Err("ttl_ms"));
        assert_eq!(millis("ttl_ms", Duration::MAX), Ok(Millis(u64::MAX)));
    }
}
