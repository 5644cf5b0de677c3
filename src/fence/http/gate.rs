//! What stands between a request and its handler.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::refusal::Refusal;
use crate::fence::hold::{Held, MarkStore};
use crate::fence::validation::{AskAuthority, Validator};
use crate::locks::{Fence, ResourceName, Token};

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// Lets requests through by their fences. The layer has one; there are three.
pub trait Gate: Send + Sync + 'static {
    /// What is kept while the request is served.
    type Held: Held;

    /// Judges the fences, and holds what it judged them by.
    ///
    /// # Errors
    /// A [`Refusal`]: the handler is not called.
    fn admit(&self, fences: &[Fence]) -> impl Future<Output = Result<Self::Held, Refusal>> + Send;

    /// The longest time for which a request is served; none if nothing is held meanwhile.
    fn bound(&self) -> Option<Duration> {
        None
    }

    /// Its marks, if it keeps any.
    fn marks(&self) -> Option<&dyn Marks> {
        None
    }
}

/// Marks that are raised and read without a write.
pub trait Marks: Send + Sync {
    /// Raises them.
    fn raise<'a>(&'a self, fences: &'a [Fence]) -> Answer<'a, ()>;
    /// Reads one.
    fn mark<'a>(
        &'a self,
        resource: &'a ResourceName,
        slot: Option<u32>,
    ) -> Answer<'a, Option<Token>>;
}

/// Lets every well-formed fence through: the handler checks, in its own transaction.
#[derive(Debug, Clone, Copy)]
pub struct Parsing;

/// Checks, and holds the mark while the request is served.
#[derive(Debug)]
pub struct Holding<S> {
    store: Arc<S>,
    /// How long a request waits for its mark.
    wait: Duration,
    /// How long it may be served.
    bound: Duration,
}

/// Asks the authority: no fence.
#[derive(Debug)]
pub struct Asking<A>(pub(super) Validator<A>);

/// Nothing is held.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Held for Nothing {
    fn poll_lost(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Gate for Parsing {
    type Held = Nothing;

    async fn admit(&self, _fences: &[Fence]) -> Result<Nothing, Refusal> {
        Ok(Nothing)
    }
}

impl<A: AskAuthority> Gate for Asking<A> {
    type Held = Nothing;

    async fn admit(&self, fences: &[Fence]) -> Result<Nothing, Refusal> {
        self.0.validate(fences).await?;
        Ok(Nothing)
    }
}

impl<S> Holding<S> {
    const WAIT: Duration = Duration::from_secs(10);

    pub(super) fn new(store: S, bound: Duration) -> Self {
        Self { store: Arc::new(store), wait: Self::WAIT, bound }
    }

    pub(super) fn waiting(&self, wait: Duration) -> Self {
        Self { store: Arc::clone(&self.store), wait, bound: self.bound }
    }
}

impl<S: MarkStore> Gate for Holding<S> {
    type Held = S::Held;

    async fn admit(&self, fences: &[Fence]) -> Result<S::Held, Refusal> {
        Ok(self.store.hold(fences, self.wait).await?)
    }

    fn bound(&self) -> Option<Duration> {
        Some(self.bound)
    }

    fn marks(&self) -> Option<&dyn Marks> {
        Some(self)
    }
}

impl<S: MarkStore> Marks for Holding<S> {
    fn raise<'a>(&'a self, fences: &'a [Fence]) -> Answer<'a, ()> {
        Box::pin(async move { Ok(self.store.raise(fences, self.wait).await?) })
    }

    fn mark<'a>(
        &'a self,
        resource: &'a ResourceName,
        slot: Option<u32>,
    ) -> Answer<'a, Option<Token>> {
        Box::pin(async move { Ok(self.store.mark(resource, slot, self.wait).await?) })
    }
}
