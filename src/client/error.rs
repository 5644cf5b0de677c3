//! What a call of the client can end with. Done, refused and unknown are kept
//! apart: [`ClientError::outcome_unknown`].

use crate::locks::{Invalid, Token};
use crate::wire::reason::{Reason, Speaks, Told, key};

/// Why a call did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Held or queued for by others, and the call would not wait.
    #[error("busy: held under token {holder:?}, {waiting} waiting")]
    Busy {
        /// Token of the grant that stands in the way, if there is one.
        holder: Option<Token>,
        /// How many wait.
        waiting: u64,
    },
    /// The wait or the call's deadline is over without a grant. If the outcome is
    /// unknown, the wait is being cancelled in the background, and a grant that
    /// comes all the same is released.
    #[error("not granted in time{}", unknown(*outcome_unknown))]
    Timeout {
        /// False if the authority said so.
        outcome_unknown: bool,
    },
    /// The session holds the resource already.
    #[error("this session holds the resource already, under token {token:?}")]
    AlreadyHeld {
        /// The grant's token.
        token: Option<Token>,
    },
    /// Another call of this session waits for the resource.
    #[error("this session waits for the resource already")]
    AlreadyWaiting,
    /// The authority ended the session, and everything it held with it.
    #[error("the session has ended: it was not renewed in time, or never was")]
    SessionExpired,
    /// The application closed the session.
    #[error("the session is closed")]
    SessionClosed,
    /// The grant has ended, though nobody here released it.
    #[error("the grant under token {token:?} is lost")]
    Lost {
        /// The grant's token.
        token: Option<Token>,
    },
    /// No node gave an answer in time.
    #[error("no answer from the authority in time{}: {last}", unknown(*outcome_unknown))]
    Unreachable {
        /// Whether the request may have taken effect, or may yet. What it may
        /// have taken is given back in the background.
        outcome_unknown: bool,
        /// What the last attempt met.
        last: String,
    },
    /// Refused for another reason.
    #[error("{}: {}{}", told.word, told.message, unknown(*outcome_unknown))]
    Refused {
        /// The refusal.
        told: Box<Told>,
        /// Whether an earlier attempt may have taken effect.
        outcome_unknown: bool,
    },
    /// A value is out of bounds; nothing was done.
    #[error("{field} must be {bound}")]
    Invalid {
        /// The field, as the public API calls it.
        field: String,
        /// What would have been accepted.
        bound: String,
    },
    /// The authority's answer makes no sense to this version.
    #[error("the authority answered with a bad {field}")]
    Malformed {
        /// The field.
        field: &'static str,
    },
    /// The session belongs to the process that opened it, not to this fork.
    #[error("the session belongs to another process: open one after the fork")]
    OtherProcess,
}

fn unknown(unknown: bool) -> &'static str {
    if unknown { " (outcome unknown)" } else { "" }
}

impl ClientError {
    /// Whether the request may have taken effect, or may yet.
    pub const fn outcome_unknown(&self) -> bool {
        match self {
            Self::Timeout { outcome_unknown }
            | Self::Unreachable { outcome_unknown, .. }
            | Self::Refused { outcome_unknown, .. } => *outcome_unknown,
            Self::Busy { .. }
            | Self::AlreadyHeld { .. }
            | Self::AlreadyWaiting
            | Self::SessionExpired
            | Self::SessionClosed
            | Self::Lost { .. }
            | Self::Invalid { .. }
            | Self::Malformed { .. }
            | Self::OtherProcess => false,
        }
    }

    /// What a refusal means to the call it answers. `earlier_unknown` is whether
    /// an earlier attempt under the same id may have taken effect.
    pub(super) fn refused(told: Told, earlier_unknown: bool) -> Self {
        let outcome_unknown = !settles(&told, earlier_unknown);
        let token = |key| told.number(key).and_then(|token| Token::new(token).ok());
        match told.reason {
            Some(Reason::Busy) => Self::Busy {
                holder: token(key::HOLDER),
                waiting: told.number(key::WAITING).unwrap_or(0),
            },
            Some(Reason::WaitTimeout) => Self::Timeout { outcome_unknown: false },
            Some(Reason::AlreadyHeld) => Self::AlreadyHeld { token: token(key::TOKEN) },
            Some(Reason::AlreadyWaiting) => Self::AlreadyWaiting,
            Some(Reason::GrantEnded | Reason::NotHeld) => Self::Lost { token: token(key::TOKEN) },
            Some(Reason::SessionExpired | Reason::SessionUnknown) => Self::SessionExpired,
            Some(Reason::InvalidArgument) if !outcome_unknown => {
                let text = |key, or: &str| told.text(key).unwrap_or(or).to_owned();
                let field = text(key::FIELD, "the request");
                Self::Invalid { field, bound: text(key::BOUND, &told.message) }
            }
            Some(
                Reason::NotLeader
                | Reason::NoQuorum
                | Reason::OutcomeUnknown
                | Reason::Cancelled
                | Reason::StaleRequest
                | Reason::WindowFull
                | Reason::QueueFull
                | Reason::LimitReached
                | Reason::CapacityMismatch
                | Reason::Deadlock
                | Reason::Frozen
                | Reason::Restoring
                | Reason::Compacted
                | Reason::InvalidArgument
                | Reason::PermissionDenied
                | Reason::Overloaded,
            )
            | None => Self::Refused { told: Box::new(told), outcome_unknown },
        }
    }
}

/// Whether this refusal settles its request id: it speaks for the id, or no
/// earlier attempt can have taken effect.
pub(super) fn settles(told: &Told, earlier_unknown: bool) -> bool {
    match told.reason.map(Reason::speaks) {
        Some(Speaks::ForTheId) => true,
        Some(Speaks::ForTheAttempt) => !earlier_unknown,
        Some(Speaks::ForNothing) | None => false,
    }
}

impl From<Invalid> for ClientError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid { field: invalid.field.to_owned(), bound: invalid.bound.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(reason: Reason) -> Told {
        Told::of(&reason.status("", [(key::FIELD, "ttl_ms".into())])).expect("it is ours")
    }

    #[test]
    fn a_refusal_at_the_door_speaks_for_its_attempt_only() {
        assert!(settles(&told(Reason::PermissionDenied), false));
        assert!(!settles(&told(Reason::PermissionDenied), true));
        assert!(settles(&told(Reason::Busy), true));
        assert!(!settles(&told(Reason::StaleRequest), false));
        let denied = ClientError::refused(told(Reason::PermissionDenied), true);
        assert!(denied.outcome_unknown());
        let invalid = ClientError::refused(told(Reason::InvalidArgument), false);
        assert!(matches!(invalid, ClientError::Invalid { field, .. } if field == "ttl_ms"));
    }
}
