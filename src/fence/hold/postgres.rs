//! Marks held in a PostgreSQL database.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_postgres::{Client, Config, IsolationLevel, NoTls};

use super::turns::{Ticket, Turns};
use super::{Held, MarkStore, bounded, in_order};
use crate::fence::{FenceError, postgres};
use crate::locks::{Fence, ResourceName, Token};

/// A [`MarkStore`] in PostgreSQL, durable as the cluster is.
///
/// Each hold is an open transaction on a connection of its own. PostgreSQL is told not to
/// end it for being idle: a destination that is frozen keeps its marks until it goes on or
/// its connection ends, so that it cannot wake up past a raise. Where the server ends the
/// connection all the same (an administrator, `transaction_timeout`, TCP keepalive after a
/// loss of the network), the hold is *lost*: the holder is told as soon as its side of the
/// connection hears of it, and what it had sent elsewhere until then is not protected.
/// Connect directly or through a pooler in session mode, by a socket or a tunnel: without
/// TLS. Requests of one process queue for a resource before they take a connection.
#[derive(Debug)]
pub struct PostgresStore {
    shared: Arc<Shared>,
    turns: Turns,
}

#[derive(Debug)]
struct Shared {
    config: Config,
    free: Mutex<Vec<Connected>>,
    holds: Arc<Semaphore>,
    asides: Arc<Semaphore>,
}

/// How many connections there are beside those of holds.
const ASIDES: usize = 2;

#[derive(Debug)]
struct Connected {
    client: Client,
    /// Closes when the connection has ended.
    ended: oneshot::Receiver<()>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Marks of a [`PostgresStore`], held by an open transaction.
#[derive(Debug)]
pub struct HeldInPostgres {
    shared: Arc<Shared>,
    connected: Option<Connected>,
    tickets: Vec<Ticket>,
}

impl PostgresStore {
    /// Marks in a database in which they are installed ([`postgres::install`]), over at most
    /// so many connections: as many requests are served at a time, at least one, and others
    /// wait. Raises and reads of marks wait for none of them: they have two more.
    pub fn new(config: Config, connections: usize) -> Self {
        let holds = Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS)));
        let asides = Arc::new(Semaphore::new(ASIDES));
        let shared = Arc::new(Shared { config, free: Mutex::default(), holds, asides });
        Self { shared, turns: Turns::default() }
    }

    async fn connected(&self, permits: &Arc<Semaphore>) -> Result<Connected, FenceError> {
        let shared = &self.shared;
        let permit = Arc::clone(permits).acquire_owned().await;
        let permit = permit.expect("nobody closes the permits");
        let free = shared.free().pop();
        if let Some(free) = free.filter(|free| !free.client.is_closed()) {
            return Ok(Connected { _permit: Some(permit), ..free });
        }
        let (client, connection) = shared.config.connect(NoTls).await?;
        let (ends, ended) = oneshot::channel::<()>();
        tokio::spawn(async move {
            let _ends = ends;
            if let Err(error) = connection.await {
                tracing::warn!(%error, "a connection to the marks has ended");
            }
        });
        Ok(Connected { client, ended, _permit: Some(permit) })
    }
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Vec<Connected>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, connected: Connected) {
        self.free().push(Connected { _permit: None, ..connected });
    }
}

impl MarkStore for PostgresStore {
    type Held = HeldInPostgres;

    async fn hold(&self, fences: &[Fence], within: Duration) -> Result<HeldInPostgres, FenceError> {
        let fences = in_order(fences)?;
        bounded(within, async {
            let tickets = self.turns.take(&fences).await;
            let mut connected = self.connected(&self.shared.holds).await?;
            if let Err(refused) = raise(&mut connected.client, &fences, within).await {
                self.shared.give_back(connected);
                return Err(refused);
            }
            connected.client.batch_execute(&begin(within)).await?;
            // From here on a drop, also of this call, rolls back.
            let shared = Arc::clone(&self.shared);
            let held = HeldInPostgres { shared, connected: Some(connected), tickets };
            let client = &held.connected.as_ref().expect("it was just put there").client;
            for fence in &fences {
                postgres::check_in(client, fence).await?;
            }
            Ok(held)
        })
        .await
    }

    async fn raise(&self, fences: &[Fence], within: Duration) -> Result<(), FenceError> {
        let fences = in_order(fences)?;
        bounded(within, async {
            let _tickets = self.turns.take(&fences).await;
            let mut connected = self.connected(&self.shared.asides).await?;
            let raised = raise(&mut connected.client, &fences, within).await;
            self.shared.give_back(connected);
            raised
        })
        .await
    }

    async fn mark(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
        within: Duration,
    ) -> Result<Option<Token>, FenceError> {
        bounded(within, async {
            let connected = self.connected(&self.shared.asides).await?;
            let mark = postgres::mark(&connected.client, resource, slot).await;
            self.shared.give_back(connected);
            mark
        })
        .await
    }
}

impl Held for HeldInPostgres {
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let connected = self.connected.as_mut().expect("it is taken by drop alone");
        Pin::new(&mut connected.ended).poll(cx).map(drop)
    }
}

impl Drop for HeldInPostgres {
    /// Nothing of it is to be kept: the marks were committed before. Without a runtime the
    /// connection is closed, and PostgreSQL rolls back.
    fn drop(&mut self) {
        let connected = self.connected.take().expect("it is taken by drop alone");
        let (shared, tickets) = (Arc::clone(&self.shared), std::mem::take(&mut self.tickets));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let rolled_back = connected.client.batch_execute("ROLLBACK").await;
            drop(tickets);
            match rolled_back {
                Ok(()) => shared.give_back(connected),
                Err(error) => tracing::warn!(%error, "a hold ended with its connection"),
            }
        });
    }
}

async fn raise(client: &mut Client, fences: &[Fence], within: Duration) -> Result<(), FenceError> {
    // Of its own: there is nothing to see in an older snapshot but a conflict.
    let isolation = IsolationLevel::ReadCommitted;
    let transaction = client.build_transaction().isolation_level(isolation).start().await?;
    postgres::bound(&transaction, within).await?;
    for fence in fences {
        postgres::check(&transaction, fence).await?;
    }
    Ok(transaction.commit().await?)
}

/// The wait for the mark is bounded, the hold is not: its holder bounds it.
fn begin(within: Duration) -> String {
    let ms = within.as_millis().clamp(1, 2_147_483_647);
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {ms}; \
         SET LOCAL statement_timeout = {ms}; SET LOCAL idle_in_transaction_session_timeout = 0"
    )
}
