//! Watches: what is so at a revision, and then everything that happens. Section 9 of
//! the contract.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::feed::Feed;
use super::{Client, ClientError};
use crate::locks::{ResourceName, Revision};
use crate::wire::v1;

/// How many things may wait for the application, before the authority is read more
/// slowly.
const AHEAD_MAX: usize = 64;

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watching(pub(super) Scope);

/// As [`Watching`] says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    Resource(String),
    Prefix(String),
    Everything,
}

impl Watching {
    /// One resource.
    pub fn resource(name: impl Into<String>) -> Self {
        Self(Scope::Resource(name.into()))
    }

    /// All resources whose names begin so; not empty.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self(Scope::Prefix(prefix.into()))
    }

    /// All resources and sessions: the audit feed of committed changes.
    pub fn everything() -> Self {
        Self(Scope::Everything)
    }
}

/// What a watcher sees.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// A part of the state, in the order of names. The whole state is read before its
    /// first part is told, so the parts follow each other without end or repeat.
    State {
        /// Resources that are held, waited for or kept closed.
        resources: Vec<v1::ResourceView>,
        /// What `resources` says is so after this revision; later events of these
        /// resources follow.
        at: Revision,
        /// Whether this is the last part. The watch can be resumed after its `at`.
        last: bool,
    },
    /// Something happened; in order, each once.
    Event(v1::Event),
    /// Nothing of this watch happened up to here.
    Progress(Revision),
}

/// A watch; begun by the first [`Watcher::next`].
///
/// ```no_run
/// # async fn run(client: ringfence::client::Client) -> Result<(), ringfence::client::ClientError> {
/// use ringfence::client::{Seen, Watching};
///
/// let mut watcher = client.watch(Watching::prefix("job/"));
/// loop {
///     match watcher.next().await? {
///         Seen::State { resources, .. } => println!("{} in use", resources.len()),
///         Seen::Event(event) => println!("{event:?}"),
///         Seen::Progress(at) => println!("nothing up to {at}"),
///     }
/// }
/// # }
/// ```
///
/// It goes on by itself at other nodes, without a gap and without telling anything
/// twice. A node that lags makes it late, never wrong.
#[derive(Debug)]
pub struct Watcher {
    client: Client,
    what: Watching,
    after: Option<Revision>,
    /// Whether it ends as soon as one node has the events no longer.
    anew: bool,
    feed: Option<mpsc::Receiver<Result<Seen, ClientError>>>,
    over: Option<ClientError>,
}

impl Client {
    /// Watches resources: first their state, then everything that happens.
    pub fn watch(&self, what: Watching) -> Watcher {
        Watcher { client: self.clone(), what, after: None, anew: false, feed: None, over: None }
    }
}

impl Watcher {
    /// Tells only what happened after this revision, which an earlier watch on the same
    /// has seen, and no state. After the first [`Watcher::next`] this has no effect.
    #[must_use]
    pub fn resume_after(mut self, revision: Revision) -> Self {
        self.after = Some(revision);
        self
    }

    /// Ends with [`ClientError::Compacted`] as soon as one node says so, though others could
    /// not be asked: for those whom a new state tells all that they missed.
    pub(super) fn or_anew(mut self) -> Self {
        self.anew = true;
        self
    }

    /// The next thing that is seen. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when no node could be reached for the client's call
    /// timeout: call again, and it goes on where it was.
    /// [`ClientError::Compacted`] when no node keeps the events that follow: begin
    /// another watch, without a resume. It and any other error is the end of this
    /// watch. [`ClientError::Invalid`] for a bad name.
    pub async fn next(&mut self) -> Result<Seen, ClientError> {
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        if self.feed.is_none() {
            self.feed = Some(self.begin()?);
        }
        let told = match &mut self.feed {
            Some(feed) => feed.recv().await,
            None => None,
        };
        // A task that vanished went down with its runtime.
        let gone = || ClientError::Unreachable {
            outcome_unknown: false,
            last: "the runtime is shutting down".to_owned(),
        };
        let told = told.unwrap_or_else(|| Err(gone()));
        if let Err(error) = &told
            && !matches!(error, ClientError::Unreachable { .. })
        {
            self.over = Some(error.clone());
        }
        told
    }

    fn begin(&self) -> Result<mpsc::Receiver<Result<Seen, ClientError>>, ClientError> {
        let what = match &self.what.0 {
            Scope::Resource(name) => {
                ResourceName::new(name)?;
                Some(v1::watch_request::What::Resource(name.clone()))
            }
            Scope::Prefix(prefix) => Some(v1::watch_request::What::Prefix(prefix.clone())),
            Scope::Everything => None,
        };
        let (tell, told) = mpsc::channel(AHEAD_MAX);
        let network = Arc::clone(&self.client.shared.network);
        tokio::spawn(Feed::new(network, what, self.after, self.anew, tell).run());
        Ok(told)
    }
}
