//! What the handles, the guards and the tasks of one session share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use super::Shared;
use super::deadline::LeaseClock;
use super::handover::Asked;
use super::holdings::{Holdings, Listed, Reading};
use super::leaving::{Departures, Leaving};
use super::network::lock;
use super::state::{Loss, State};
use super::window::{Header, RequestWindow};
use super::{ClientError, holder, operations};
use crate::clock::BootMoment;
use crate::locks::{ClusterId, OwnerId, RequestId, ResourceName, Revision, SessionId, Token};
use crate::wire::v1;

/// How many acquires of one session may be outstanding: well below what the
/// authority keeps for it ([`crate::locks::WINDOW_MAX`]).
const ACQUIRES_MAX: usize = 400;
/// How many sendings of renewals are remembered for their answers.
const SENDINGS_MAX: usize = 256;

/// A session, as the authority answered its opening.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opened {
    pub owner: OwnerId,
    pub session: SessionId,
    pub cluster: ClusterId,
    /// Just before the opening was sent.
    pub sent: BootMoment,
    pub ttl: Duration,
}

/// The shared part of one session. Tasks in the background hold it; it does not
/// keep the session open: that is for the application's handles.
pub(super) struct Core {
    pub client: Arc<Shared>,
    pub owner: OwnerId,
    pub session: SessionId,
    pub cluster: ClusterId,
    /// One place for each acquire that is outstanding.
    pub places: Arc<Semaphore>,
    /// Ttl changes are sent one at a time.
    pub ttl_turn: tokio::sync::Mutex<()>,
    /// Names that are not to be asked for at once.
    pub departures: Arc<Departures>,
    /// Where it was opened: its tasks run there.
    pub runtime: Handle,
    process: u32,
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state(None, BootMoment::now());
        let mut shown = f.debug_struct("Core");
        shown.field("session", &self.session).field("state", &state).finish_non_exhaustive()
    }
}

struct Inner {
    clock: LeaseClock,
    window: RequestWindow,
    holdings: Holdings,
    /// Sequence of a renewal, and just before it was sent.
    sendings: BTreeMap<u64, BootMoment>,
    sequence: u64,
    /// An acknowledgement that counts once the change it tells of was read.
    unread: Option<Unread>,
    ended: Option<Loss>,
}

#[derive(Debug, Clone, Copy)]
struct Unread {
    changed_at: Revision,
    sent: BootMoment,
    ttl: Duration,
}

impl Core {
    pub fn new(client: Arc<Shared>, opened: &Opened) -> Self {
        let allowance = client.network.settings.allowance;
        let revision = Revision { index: opened.session.0, ordinal: u32::MAX };
        let inner = Inner {
            clock: LeaseClock::opened(opened.sent, opened.ttl, allowance),
            window: RequestWindow::new(),
            holdings: Holdings::new(revision),
            sendings: BTreeMap::new(),
            sequence: 0,
            unread: None,
            ended: None,
        };
        Self {
            client,
            owner: opened.owner,
            session: opened.session,
            cluster: opened.cluster,
            places: Arc::new(Semaphore::new(ACQUIRES_MAX)),
            ttl_turn: tokio::sync::Mutex::new(()),
            departures: Arc::default(),
            process: std::process::id(),
            runtime: Handle::current(),
            inner: Mutex::new(inner),
            changed: watch::Sender::new(()),
        }
    }

    /// Whether this is the process that opened the session, and not its fork.
    pub fn is_here(&self) -> bool {
        std::process::id() == self.process
    }

    /// Runs on in the background, whatever becomes of the caller.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Pure arithmetic on the clock and on what was heard: right also when the
    /// tasks in the background have not run for long.
    pub fn state(&self, token: Option<Token>, now: BootMoment) -> State {
        if !self.is_here() {
            return State::Lost(Loss::OtherProcess);
        }
        let inner = lock(&self.inner);
        if let Some(loss) = inner.ended {
            return State::Lost(loss);
        }
        if token.is_some_and(|token| !inner.holdings.is_live(token)) {
            return State::Lost(Loss::GrantEnded);
        }
        if inner.clock.left(now).is_zero() { State::Suspended } else { State::Held }
    }

    /// From here on the owner must not act, unless it renews before.
    pub fn deadline(&self) -> BootMoment {
        lock(&self.inner).clock.deadline()
    }

    /// The ttl that counts.
    pub fn ttl(&self) -> Duration {
        lock(&self.inner).clock.ttl()
    }

    /// Whether renewals are acknowledged as they should be.
    pub fn is_in_contact(&self, now: BootMoment) -> bool {
        let inner = lock(&self.inner);
        now.since(inner.clock.acknowledged_at()) < inner.clock.ttl() / 2
    }

    /// Wakes at every change of what [`Core::state`] tells, time aside.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// An error if the session is over for the caller.
    pub fn check(&self) -> Result<(), ClientError> {
        if !self.is_here() {
            return Err(ClientError::OtherProcess);
        }
        lock(&self.inner).ended.map_or(Ok(()), |loss| Err(loss.error()))
    }

    /// The session is over. The first cause counts.
    pub fn end(&self, loss: Loss) {
        lock(&self.inner).ended.get_or_insert(loss);
        self.client.keepers.leave(self.session);
        self.changed.send_replace(());
    }

    /// Resolves when the session is over.
    pub async fn ended(&self) -> Loss {
        let mut changes = self.changes();
        loop {
            if let Some(loss) = lock(&self.inner).ended {
                return loss;
            }
            changes.changed().await.expect("the sender is a field of self");
        }
    }

    // Requests.

    pub fn begin(&self) -> RequestId {
        lock(&self.inner).window.begin()
    }

    pub fn header(&self, id: RequestId) -> Header {
        lock(&self.inner).window.header(id)
    }

    pub fn told(&self, header: &Header) {
        lock(&self.inner).window.told(header);
    }

    pub fn settle(&self, id: RequestId) {
        lock(&self.inner).window.settle(id);
    }

    /// Settles the acquire and takes in its grant in one step, so that no list can
    /// come in between and find the grant unawaited. False if it has ended.
    pub fn granted(
        &self,
        id: RequestId,
        token: Token,
        granted_at: u64,
        asked: Option<Asked>,
    ) -> bool {
        let mut inner = lock(&self.inner);
        inner.window.settle(id);
        inner.holdings.granted(token, granted_at, asked)
    }

    /// The grant is given back, or the authority said that it is gone.
    pub fn forget(&self, token: Token) {
        lock(&self.inner).holdings.forget(token);
        self.changed.send_replace(());
    }

    /// That the grant is asked back, as last heard.
    pub fn asked(&self, token: Token) -> Option<Asked> {
        lock(&self.inner).holdings.asked(token).cloned()
    }

    /// Something begins to end on these names.
    pub fn leave(&self, names: Vec<ResourceName>) -> Leaving {
        self.departures.begin(names)
    }

    /// Releases a grant in the background.
    pub fn give_back(self: &Arc<Self>, names: Vec<ResourceName>, token: Token) {
        let Some(resource) = names.first().cloned() else { return };
        let leaving = self.leave(names);
        let core = Arc::clone(self);
        self.spawn(async move {
            holder::give_back(core, resource, token).await;
            drop(leaving);
        });
    }

    // The ttl.

    pub fn ttl_asked(&self, ttl: Duration) {
        lock(&self.inner).clock.ask(ttl);
        self.changed.send_replace(());
    }

    pub fn ttl_settled(&self, id: RequestId, sent: BootMoment, ttl: Duration) {
        let mut inner = lock(&self.inner);
        inner.window.settle(id);
        inner.clock.settle(sent, BootMoment::now(), ttl);
        drop(inner);
        self.changed.send_replace(());
    }

    /// The change ended without effect, or nobody will know.
    pub fn ttl_refused(&self, id: RequestId, unknown: bool) {
        let mut inner = lock(&self.inner);
        inner.window.settle(id);
        if unknown {
            inner.clock.give_up();
        } else {
            inner.clock.withdraw();
        }
    }

    // Renewals.

    /// A renewal that is about to be sent; `None` when the session is over.
    pub fn renewal(&self, now: BootMoment) -> Option<v1::Renewal> {
        let mut inner = lock(&self.inner);
        if inner.ended.is_some() {
            return None;
        }
        inner.sequence += 1;
        let sequence = inner.sequence;
        inner.sendings.insert(sequence, now);
        if inner.sendings.len() > SENDINGS_MAX {
            inner.sendings.pop_first();
        }
        let owner_id = self.owner.as_bytes().to_vec().into();
        Some(v1::Renewal { owner_id, session: self.session.0, sequence })
    }

    /// The renewal of this sequence is acknowledged. It counts at once, unless it
    /// tells of a change that must be read first.
    pub fn renewed(self: &Arc<Self>, sequence: u64, ttl: Duration, changed_at: Revision) {
        let mut inner = lock(&self.inner);
        let Some(sent) = inner.sendings.remove(&sequence) else { return };
        inner.sendings = inner.sendings.split_off(&sequence);
        if !inner.holdings.is_behind(changed_at) {
            inner.clock.acknowledge(sent, ttl);
            drop(inner);
            self.changed.send_replace(());
            return;
        }
        let reading = inner.unread.is_some();
        let (changed_at, sent) = inner
            .unread
            .map_or((changed_at, sent), |u| (u.changed_at.max(changed_at), u.sent.max(sent)));
        inner.unread = Some(Unread { changed_at, sent, ttl });
        drop(inner);
        if !reading {
            self.spawn(operations::read(Arc::clone(self)));
        }
    }

    /// Takes in a list. True if a newer change must be read still.
    pub fn read(self: &Arc<Self>, reading: Reading) -> bool {
        let mut guard = lock(&self.inner);
        let inner = &mut *guard;
        let window = &inner.window;
        let orphans = inner.holdings.read(reading, |id| window.is_outstanding(id));
        let behind = inner.unread.is_some_and(|u| inner.holdings.is_behind(u.changed_at));
        if !behind && let Some(unread) = inner.unread.take() {
            inner.clock.acknowledge(unread.sent, unread.ttl);
        }
        drop(guard);
        self.changed.send_replace(());
        for Listed { token, names, request, .. } in orphans {
            tracing::debug!(?names, %token, %request, "releasing a grant that nobody awaits");
            self.give_back(names, token);
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    fn core(sent: BootMoment) -> Core {
        let client = Client::connect(["127.0.0.1:9"]).expect("a good endpoint");
        let opened = Opened {
            owner: OwnerId::new([1; 16]),
            session: SessionId(7),
            cluster: ClusterId::new([2; 16]),
            sent,
            ttl: Duration::from_secs(10),
        };
        Core::new(client.shared, &opened)
    }

    #[tokio::test]
    async fn an_acknowledgement_counts_from_the_sending_that_it_names() {
        let start = BootMoment::from_nanos(0);
        let after = |ms| start.plus(Duration::from_millis(ms));
        let core = Arc::new(core(start));
        let sequence = |now| core.renewal(now).expect("live").sequence;
        let (first, second, third) =
            (sequence(after(3_000)), sequence(after(6_000)), sequence(after(9_000)));
        let ttl = Duration::from_secs(10);
        core.renewed(second, ttl, Revision::default());
        assert_eq!(core.deadline(), after(15_900));
        core.renewed(first, ttl, Revision::default());
        core.renewed(99, ttl, Revision::default());
        assert_eq!(core.deadline(), after(15_900));
        assert_eq!(core.state(None, after(15_899)), State::Held);
        assert_eq!(core.state(None, after(15_900)), State::Suspended);
        core.renewed(third, ttl, Revision::default());
        assert_eq!(core.state(None, after(15_900)), State::Held);
        core.end(Loss::SessionExpired);
        core.end(Loss::SessionClosed);
        assert_eq!(core.state(None, after(0)), State::Lost(Loss::SessionExpired));
        assert!(core.renewal(after(0)).is_none());
    }

    #[tokio::test]
    async fn a_fork_holds_nothing_and_may_ask_for_nothing() {
        let mut core = core(BootMoment::now());
        assert_eq!(core.state(None, BootMoment::now()), State::Held);
        core.process = core.process.wrapping_add(1);
        assert_eq!(core.state(None, BootMoment::now()), State::Lost(Loss::OtherProcess));
        assert_eq!(core.check(), Err(ClientError::OtherProcess));
    }
}
