//! The client: finds the leader, keeps sessions alive, hands out guards.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use ringfence::client::Client;
//!
//! let client = Client::connect(["127.0.0.1:7301", "127.0.0.1:7302", "127.0.0.1:7303"])?;
//! let session = client.session(Duration::from_secs(10)).await?;
//! let guard = session.acquire("job/7").wait(Duration::from_secs(30)).await?;
//! while guard.is_held() {
//!     // Write to the destination, with guard.fence() in the same transaction.
//! #   break;
//! }
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! | to have | ask | and get |
//! | --- | --- | --- |
//! | one resource, alone | [`Session::acquire`], [`Session::try_acquire`] | [`Guard`] |
//! | a share of it | [`Session::acquire_shared`] | [`SharedGuard`] |
//! | one of its n slots | [`Session::acquire_slot`] | [`SlotGuard`] |
//! | several, all or none | [`Session::acquire_all`] | [`SetGuard`] |
//! | the lead | [`Session::election`], [`Election::campaign`] | [`Leadership`] |
//! | any of these, after its fence is raised everywhere | [`Session::acquire_strict`], [`Acquire::raising`] | the same, active |
//! | the same in your own steps | [`Acquire::strict`] | [`Unconfirmed`] |
//! | what happens to resources | [`Client::watch`] | [`Watcher`] |
//! | who leads | [`Client::observe`] | [`Observer`] |
//!
//! - A guard is *held*, *suspended* (its own deadline has passed without an
//!   acknowledgement: do not act) or *lost*. It tells by arithmetic on
//!   `CLOCK_BOOTTIME`, with no need of the network or of a task that runs.
//! - Every call ends by its deadline, and an error says whether the outcome is
//!   unknown. What may have taken effect though nobody awaits it any longer is
//!   settled in the background: waits are cancelled, grants released. An acquire of the
//!   same name in the same session is sent after that.
//! - Nothing of this stops a process that was paused at the wrong moment. The
//!   fence does, at the destination.

mod acquire;
mod admin;
mod backoff;
mod claim;
mod core;
mod deadline;
mod election;
mod error;
mod fate;
mod feed;
mod grant;
mod guard;
mod handover;
mod holder;
mod holdings;
mod keepers;
mod lanes;
mod leaving;
mod modes;
mod network;
mod observer;
mod operations;
mod reads;
mod renewals;
mod route;
mod session;
mod state;
mod stream;
mod strict;
mod unconfirmed;
mod validation;
mod watch;
mod window;

use std::sync::Arc;
use std::time::Duration;

pub use self::acquire::Acquire;
pub use self::admin::Resized;
pub use self::deadline::Allowance;
pub use self::election::{Election, Leadership};
pub use self::error::ClientError;
pub use self::guard::Guard;
pub use self::handover::Asked;
pub use self::modes::{Hold, SetGuard, SharedGuard, SlotGuard};
pub use self::observer::{Leader, Observer};
pub use self::route::Address;
pub use self::session::{OpenSession, Session};
pub use self::state::{Loss, State};
pub use self::strict::{HandoffError, StrictAcquire};
pub use self::unconfirmed::{NotConfirmed, Unconfirmed};
pub use self::watch::{Seen, Watcher, Watching};
use fate::Settings;
use keepers::Keepers;
use network::Network;

/// How long a call may take if it is not told.
const CALL: Duration = Duration::from_secs(10);
/// How long one attempt at one node may take.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(1);

/// A way to the authority, over any of its nodes. Cheap to clone; all sessions that one
/// client opens in one runtime are renewed over one stream. They end with the runtime.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

/// What the handles of one client share.
#[derive(Debug)]
struct Shared {
    network: Arc<Network>,
    keepers: Keepers,
}

impl Client {
    /// A client of the nodes at these endpoints, `host:port` or
    /// `http://host:port`. Connections are made when they are needed, so that some
    /// of the nodes may be down; the others are learnt from those that answer.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for no endpoint, or one of another form.
    pub fn connect<I>(endpoints: I) -> Result<Self, ClientError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        Self::builder().connect(endpoints)
    }

    /// A client with other timeouts.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Opens a session: an owner's lease that lives for `ttl` after its last
    /// acknowledged renewal. 10 s is a good start; take at least three times what a
    /// change of leader takes.
    pub fn session(&self, ttl: Duration) -> OpenSession {
        OpenSession::new(Arc::clone(&self.shared), ttl)
    }

    /// The nodes that are known so far.
    pub fn nodes(&self) -> Vec<Address> {
        self.shared.network.nodes()
    }
}

/// Sets what [`Client::connect`] leaves at its default.
#[derive(Debug, Clone)]
pub struct ClientBuilder {
    settings: Settings,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        let allowance = Allowance::default();
        Self { settings: Settings { call: CALL, attempt: ATTEMPT, connect: CONNECT, allowance } }
    }
}

impl ClientBuilder {
    /// How long a call may take if it has no deadline of its own; 10 s by default.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.call = timeout;
        self
    }

    /// How long one node may take to answer a call that does not wait in a queue,
    /// before another one is asked; 2 s by default. It grows when all were asked.
    #[must_use]
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.settings.attempt = timeout;
        self
    }

    /// How long a connection may take to be made; 1 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect = timeout;
        self
    }

    /// How much earlier than the authority the client counts; 1 % of the ttl and at
    /// least 10 ms by default.
    #[must_use]
    pub fn allowance(mut self, allowance: Allowance) -> Self {
        self.settings.allowance = allowance;
        self
    }

    /// See [`Client::connect`].
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for no endpoint, or one of another form.
    pub fn connect<I>(self, endpoints: I) -> Result<Client, ClientError>
    where
        I: IntoIterator<Item: AsRef<str>>,
    {
        let nodes = network::addresses(endpoints)?;
        let network = Arc::new(Network::new(nodes, self.settings));
        Ok(Client { shared: Arc::new(Shared { network, keepers: Keepers::default() }) })
    }
}
