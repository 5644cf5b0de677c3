//! Asking the authority, for destinations that can keep no mark. **This is no fence.**
//!
//! A [`Validator`] asks whether the grant behind a fence is live and active now. It narrows
//! the window in which a stale owner can write, to the time between the authority's answer
//! and the write. It does not close it: an owner, or the destination itself, that is paused
//! in that time writes after its lease is over. Nothing here holds anything, and no raise
//! can shut such a write out. Where a destination can keep one number durably, keep a mark.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::error::FenceError;
use super::rule::{Refusal, check_set};
use crate::locks::{ClusterId, Fence, ResourceName, Token};
use crate::wire::v1;

/// What an authority's client said.
type Source = Box<dyn Error + Send + Sync>;

/// Whoever can ask the authority: `client::Client` can.
pub trait AskAuthority: Send + Sync + 'static {
    /// Whether that grant is live and active now, after a confirmed round.
    fn ask(
        &self,
        resource: &ResourceName,
        token: Token,
    ) -> impl Future<Output = Result<v1::CheckTokenResponse, Source>> + Send;
}

/// Asks one authority about each fence, every time: it remembers nothing.
#[derive(Debug, Clone)]
pub struct Validator<A> {
    authority: A,
    cluster: ClusterId,
    within: Duration,
}

/// The grant was not found to be current: write nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum NotValidated {
    /// The grant has ended, or is not confirmed yet, or there never was one with this slot
    /// and floor.
    NotCurrent {
        /// The resource.
        resource: ResourceName,
        /// The token that came with the write.
        token: Token,
    },
    /// The fence is malformed, or of another authority.
    Fence(FenceError),
    /// The authority did not answer in time. Nothing is known of the grant.
    Unanswered(Source),
}

impl<A: AskAuthority> Validator<A> {
    /// Asks this authority, whose identity is `cluster`; an answer may take at most `within`.
    pub fn new(authority: A, cluster: ClusterId, within: Duration) -> Self {
        Self { authority, cluster, within }
    }

    /// Whether every one of these grants was current at some moment of this call. What was
    /// true then may be over when this returns.
    ///
    /// # Errors
    /// [`NotValidated`].
    pub async fn validate(&self, fences: &[Fence]) -> Result<(), NotValidated> {
        check_set(fences)?;
        for fence in fences {
            self.belongs(fence)?;
        }
        let asked = tokio::time::timeout(self.within, async {
            for fence in fences {
                self.is_current(fence).await?;
            }
            Ok(())
        });
        let late = || format!("no answer within {:?}", self.within);
        asked.await.unwrap_or_else(|_| Err(NotValidated::Unanswered(late().into())))
    }

    fn belongs(&self, fence: &Fence) -> Result<(), FenceError> {
        if fence.floor > fence.token {
            return Err(FenceError::refused(fence, Refusal::FloorAboveToken));
        }
        if fence.cluster != self.cluster {
            let refusal = Refusal::ForeignCluster { known: self.cluster };
            return Err(FenceError::refused(fence, refusal));
        }
        Ok(())
    }

    async fn is_current(&self, fence: &Fence) -> Result<(), NotValidated> {
        let Fence { cluster: _, resource, slot, token, floor } = fence;
        let answer = self.authority.ask(resource, *token).await;
        let answer = answer.map_err(NotValidated::Unanswered)?;
        let agrees = |grant: v1::Grant| {
            grant.phase() == v1::Phase::Active
                && (grant.token, grant.floor) == (token.get(), floor.get())
                && grant.slot == *slot
        };
        if answer.current && answer.grant.is_some_and(agrees) {
            return Ok(());
        }
        Err(NotValidated::NotCurrent { resource: resource.clone(), token: *token })
    }
}

impl From<FenceError> for NotValidated {
    fn from(error: FenceError) -> Self {
        Self::Fence(error)
    }
}

impl fmt::Display for NotValidated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCurrent { resource, token } => {
                write!(f, "the grant of {resource} with token {token} is not current")
            }
            Self::Fence(error) => error.fmt(f),
            Self::Unanswered(source) => write!(f, "the authority did not answer: {source}"),
        }
    }
}

impl Error for NotValidated {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotCurrent { .. } => None,
            Self::Fence(error) => Some(error),
            Self::Unanswered(source) => Some(source.as_ref()),
        }
    }
}
