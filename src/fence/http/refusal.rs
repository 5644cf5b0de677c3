//! Why a request was answered without its handler, or in its handler's place.

use std::error::Error;
use std::fmt;

use http::StatusCode;
use http::header::HeaderName;
use tonic::Code;

use crate::fence::FenceError;
use crate::fence::validation::NotValidated;
use crate::locks::{ResourceName, Token};

/// What a store's or a client's error said. It is logged; a caller is not told.
type Source = Box<dyn Error + Send + Sync>;

/// A request that was not served. But for [`Self::CutOff`] and [`Self::OutcomeUnknown`]
/// its handler was not called, or wrote nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// It brings no fence, or not all of one.
    Missing {
        /// The first header that is missing.
        header: HeaderName,
    },
    /// What it brings is no fence.
    Malformed {
        /// Where.
        header: HeaderName,
        /// What it must be.
        why: &'static str,
    },
    /// Its fences are not those of what it writes.
    OtherResource {
        /// A resource that is written without a fence; or, if there is none, one that is
        /// fenced and not written.
        resource: ResourceName,
    },
    /// There is nothing to write there.
    NoSuchResource,
    /// The rule refuses, or the store of marks cannot answer.
    Fence(FenceError),
    /// The store of marks failed before the handler was called.
    StoreFailed(Source),
    /// The authority was asked, and the grant is not current.
    NotCurrent {
        /// The resource.
        resource: ResourceName,
        /// The token.
        token: Token,
    },
    /// The authority was asked and did not answer.
    Unanswered(Source),
    /// The handler took longer than a mark may be held, or the store let go of the mark.
    /// What it had done by then may have been applied.
    CutOff,
    /// The handler's own store failed. The write may or may not have been applied.
    OutcomeUnknown(Source),
}

/// How a refusal is told, in each protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::fence) struct Told {
    /// The last part of the problem's type; upper-cased, the reason over gRPC.
    pub word: &'static str,
    pub title: &'static str,
    pub status: StatusCode,
    pub code: Code,
    /// Whether nothing was written, for sure.
    pub applied: Option<bool>,
}

const fn told(word: &'static str, title: &'static str, status: StatusCode, code: Code) -> Told {
    Told { word, title, status, code, applied: Some(false) }
}

impl Refusal {
    /// The one table. Section 10 of docs/fence-spec.md repeats it.
    pub(in crate::fence) fn told(&self) -> Told {
        use Code as C;
        use StatusCode as S;
        match self {
            Self::Missing { .. } => told(
                "missing-fence",
                "A fence is required",
                S::PRECONDITION_REQUIRED,
                C::InvalidArgument,
            ),
            Self::Malformed { .. } => MALFORMED,
            Self::OtherResource { .. } => told(
                "other-resource",
                "The fence is of another resource",
                S::FORBIDDEN,
                C::PermissionDenied,
            ),
            Self::NoSuchResource => {
                told("no-such-resource", "No such resource", S::NOT_FOUND, C::NotFound)
            }
            Self::Fence(error) => told_of(error),
            Self::StoreFailed(_) => told(
                "store-failed",
                "The store of marks failed",
                S::SERVICE_UNAVAILABLE,
                C::Unavailable,
            ),
            Self::NotCurrent { .. } => told(
                "not-current",
                "The grant is not current",
                S::PRECONDITION_FAILED,
                C::FailedPrecondition,
            ),
            Self::Unanswered(_) => told(
                "authority-silent",
                "The authority did not answer",
                S::SERVICE_UNAVAILABLE,
                C::Unavailable,
            ),
            Self::CutOff => Told {
                applied: None,
                ..told("cut-off", "Took too long", S::GATEWAY_TIMEOUT, C::DeadlineExceeded)
            },
            Self::OutcomeUnknown(_) => Told {
                applied: None,
                ..told("outcome-unknown", "Outcome unknown", S::INTERNAL_SERVER_ERROR, C::Unknown)
            },
        }
    }

    /// What the caller may know beyond the title.
    pub(in crate::fence) fn detail(&self) -> String {
        match self {
            Self::Missing { header } => format!("{header} is missing"),
            Self::Malformed { header, why } => format!("{header} {why}"),
            Self::OtherResource { resource } => {
                format!("{resource}: what is fenced and what is written differ")
            }
            Self::NoSuchResource => "there is nothing to write here".to_owned(),
            Self::Fence(FenceError::Busy(_) | FenceError::Conflict(_)) => {
                "others hold the mark: try again".to_owned()
            }
            Self::Fence(FenceError::Store(_)) => "nothing was written".to_owned(),
            Self::Fence(error) => error.to_string(),
            Self::NotCurrent { resource, token } => {
                format!("the grant of {resource} with token {token} is not current")
            }
            Self::StoreFailed(_) | Self::Unanswered(_) => {
                "the request was not passed on".to_owned()
            }
            Self::CutOff => "the request was cut off while it held the mark".to_owned(),
            Self::OutcomeUnknown(_) => "the write may have been applied".to_owned(),
        }
    }

    /// Puts what the caller is not told into the log.
    pub(in crate::fence) fn log(&self) {
        match self {
            Self::StoreFailed(error)
            | Self::Unanswered(error)
            | Self::OutcomeUnknown(error)
            | Self::Fence(
                FenceError::Busy(error) | FenceError::Conflict(error) | FenceError::Store(error),
            ) => {
                tracing::warn!(%error, "a fenced request was not served");
            }
            Self::Missing { .. }
            | Self::Malformed { .. }
            | Self::OtherResource { .. }
            | Self::NoSuchResource
            | Self::NotCurrent { .. }
            | Self::CutOff
            | Self::Fence(_) => {}
        }
    }

    /// A refusal of a handler that checks in its own transaction.
    pub(in crate::fence) fn of_handler(error: FenceError) -> Self {
        match error {
            FenceError::Store(source) => Self::OutcomeUnknown(source),
            other => Self::Fence(other),
        }
    }
}

const MALFORMED: Told = told(
    "malformed-fence",
    "The fence is malformed",
    StatusCode::BAD_REQUEST,
    Code::InvalidArgument,
);

fn told_of(error: &FenceError) -> Told {
    use Code as C;
    use StatusCode as S;
    match error {
        FenceError::Stale { .. } => told(
            "stale-fence",
            "A later owner has been here",
            S::PRECONDITION_FAILED,
            C::FailedPrecondition,
        ),
        FenceError::FloorAboveToken { .. } | FenceError::Set => MALFORMED,
        // Not 412: nobody has been here that this caller would have to stop for.
        FenceError::ForeignCluster { .. } => told(
            "foreign-authority",
            "The mark is another authority's",
            S::CONFLICT,
            C::FailedPrecondition,
        ),
        // The handler's fault, not the caller's.
        FenceError::Unchecked { .. } => told(
            "unguarded-write",
            "The service wrote without a check",
            S::INTERNAL_SERVER_ERROR,
            C::Internal,
        ),
        FenceError::NoTransaction
        | FenceError::NotDurable { .. }
        | FenceError::SchemaMissing
        | FenceError::SchemaNewer { .. } => told(
            "store-unfit",
            "The store of marks is not fit for use",
            S::INTERNAL_SERVER_ERROR,
            C::Internal,
        ),
        FenceError::Busy(_) | FenceError::Conflict(_) => {
            told("busy", "The mark is held", S::SERVICE_UNAVAILABLE, C::Unavailable)
        }
        FenceError::Store(_) => told(
            "store-failed",
            "The store of marks failed",
            S::SERVICE_UNAVAILABLE,
            C::Unavailable,
        ),
    }
}

impl From<FenceError> for Refusal {
    fn from(error: FenceError) -> Self {
        match error {
            FenceError::Store(source) => Self::StoreFailed(source),
            other => Self::Fence(other),
        }
    }
}

impl From<NotValidated> for Refusal {
    fn from(answer: NotValidated) -> Self {
        match answer {
            NotValidated::NotCurrent { resource, token } => Self::NotCurrent { resource, token },
            NotValidated::Fence(error) => error.into(),
            NotValidated::Unanswered(source) => Self::Unanswered(source),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.told().title, self.detail())
    }
}

impl Error for Refusal {}
