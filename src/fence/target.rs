//! Destinations as strict handoff sees them: a name, and a raise.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::error::FenceError;
use crate::locks::Fence;

/// A raise under way.
pub type Raising<'a> = Pin<Box<dyn Future<Output = Result<(), FenceError>> + Send + 'a>>;

/// A destination whose marks can be raised. Every adapter has one; a closure makes one
/// of anything else ([`target`]).
pub trait FenceTarget: Send + Sync {
    /// What errors and logs call it. It holds no password.
    fn name(&self) -> &str;

    /// Raises the marks of these fences, which are of one grant, one a resource and in the
    /// order of their names: of all of them, or of none. Waits at most `within` for writes
    /// that are past their check. It may be called again after any answer, and dropped at
    /// any moment.
    ///
    /// When it returns `Ok`, the marks are durable, and no write with a lower token will be
    /// applied. (I8) (I9)
    ///
    /// # Errors
    /// A [`FenceError`], of which [`FenceError::Stale`] says that a later owner has been
    /// here. The marks may be raised all the same, except where the fence was refused.
    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a>;
}

/// The store gave no answer at all. Drivers often say no more than that it failed.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis"))]
pub(super) fn unreached(error: &dyn std::error::Error) -> FenceError {
    let why = error.source().map_or_else(String::new, |source| format!(": {source}"));
    FenceError::Store(format!("it cannot be reached: {error}{why}").into())
}

/// A raise that is over after `within`, whatever the network does.
#[cfg(feature = "http")]
pub(super) async fn answered(
    within: Duration,
    raise: impl Future<Output = Result<(), FenceError>>,
) -> Result<(), FenceError> {
    let late = |_| Err(FenceError::Busy(format!("no answer within {within:?}").into()));
    tokio::time::timeout(within, raise).await.unwrap_or_else(late)
}

/// A destination that is raised by calling `raise`: see [`FenceTarget::raise`] for what it
/// has to hold.
pub fn target<F, R>(name: impl Into<String>, raise: F) -> impl FenceTarget
where
    F: Fn(Vec<Fence>, Duration) -> R + Send + Sync,
    R: Future<Output = Result<(), FenceError>> + Send,
{
    Called { name: name.into(), raise }
}

struct Called<F> {
    name: String,
    raise: F,
}

impl<F, R> FenceTarget for Called<F>
where
    F: Fn(Vec<Fence>, Duration) -> R + Send + Sync,
    R: Future<Output = Result<(), FenceError>> + Send,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a> {
        Box::pin(async move { (self.raise)(fences.to_vec(), within).await })
    }
}
