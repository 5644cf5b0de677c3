//! Stores that *hold* marks while something else is done, for destinations whose writes go
//! where no transaction of the mark's store reaches: a service behind HTTP or gRPC.
//!
//! A [`MarkStore`] first raises the marks durably, then locks them, judges the fences
//! once more and keeps the lock until its [`Held`] is dropped:
//!
//! ```text
//! hold   raise (committed)   lock, check again   ... the request is served ...   let go
//! raise                                          waits here ------------------->
//! ```
//!
//! - So no write exists without its mark: the mark is durable before the write begins.
//!   A crash in between leaves a mark without a write, which harms no one but its owner.
//! - A later owner may come between the two steps: the second check refuses then, and the
//!   marks are as after a raise.
//! - A raise waits for whoever is past the check, or is answered [`FenceError::Busy`].
//!
//! What no store can do is call a write back. Once a hold is over, so is the protection of
//! writes that its holder has sent elsewhere and that have not arrived: end them first.
//! Requests for one resource pass one after another, those of shared holders too.

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod turns;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use memory::{HeldInMemory, MemoryStore};
#[cfg(feature = "postgres")]
pub use postgres::{HeldInPostgres, PostgresStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{HeldInSqlite, SqliteStore};

use super::error::FenceError;
use super::rule::check_set;
use crate::locks::{Fence, ResourceName, Token};

/// Marks that can be held. Everything here is judged by the rule of [`super::decide`], for
/// all fences or for none, whatever their order.
pub trait MarkStore: Send + Sync + 'static {
    /// The lock on the marks of one call of [`Self::hold`]. Dropped, it lets go.
    type Held: Held;

    /// Raises the marks durably, then locks them and checks again. From its return on, and
    /// until the `Held` is dropped or lost, no raise and no other hold of these resources
    /// passes. (I8) Waits at most `within`; dropped before it returns, it lets go, and the
    /// marks may be raised all the same.
    ///
    /// # Errors
    /// As [`super::FenceTarget::raise`].
    fn hold(
        &self,
        fences: &[Fence],
        within: Duration,
    ) -> impl Future<Output = Result<Self::Held, FenceError>> + Send;

    /// Raises the marks, as [`super::FenceTarget::raise`].
    ///
    /// # Errors
    /// As there.
    fn raise(
        &self,
        fences: &[Fence],
        within: Duration,
    ) -> impl Future<Output = Result<(), FenceError>> + Send;

    /// The mark of a resource, or of one of its slots. Does not wait for who holds that.
    ///
    /// # Errors
    /// What the store says, and [`FenceError::Busy`] after `within`.
    fn mark(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
        within: Duration,
    ) -> impl Future<Output = Result<Option<Token>, FenceError>> + Send;
}

/// Marks that are held for as long as this lives.
pub trait Held: Send + 'static {
    /// Ready when the store has let go by itself, as when its server is gone: then stop
    /// at once. Pending for ever in a store that cannot.
    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// A store that others use too, as to adopt marks.
impl<S: MarkStore> MarkStore for Arc<S> {
    type Held = S::Held;

    async fn hold(&self, fences: &[Fence], within: Duration) -> Result<S::Held, FenceError> {
        S::hold(self, fences, within).await
    }

    async fn raise(&self, fences: &[Fence], within: Duration) -> Result<(), FenceError> {
        S::raise(self, fences, within).await
    }

    async fn mark(
        &self,
        resource: &ResourceName,
        slot: Option<u32>,
        within: Duration,
    ) -> Result<Option<Token>, FenceError> {
        S::mark(self, resource, slot, within).await
    }
}

/// The fences in the byte order of their resources, in which marks are locked.
fn in_order(fences: &[Fence]) -> Result<Vec<Fence>, FenceError> {
    check_set(fences)?;
    let mut ordered = fences.to_vec();
    ordered.sort_by(|one, other| one.resource.cmp(&other.resource));
    Ok(ordered)
}

/// Bounds everything that a store does for one call.
async fn bounded<T>(
    within: Duration,
    call: impl Future<Output = Result<T, FenceError>>,
) -> Result<T, FenceError> {
    let late = || FenceError::Busy(format!("not free within {within:?}").into());
    tokio::time::timeout(within, call).await.unwrap_or_else(|_| Err(late()))
}
