//! What a call of the client can end with. Done, refused and unknown are kept
//! apart: [`ClientError::outcome_unknown`].

use crate::locks::{Invalid, SessionId, Token};
use crate::wire::reason::{Reason, Speaks, Told, key};

/// Why a call did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Held or queued for by others, and the call would not wait.
    #[error("busy: {}, {waiting} waiting", holder.map_or("not free".to_owned(), held))]
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
    #[error(
        "this session holds {} already, under {}: use that guard, or another session",
        name(resource), under(*token)
    )]
    AlreadyHeld {
        /// Which, of several.
        resource: Option<String>,
        /// The grant's token.
        token: Option<Token>,
    },
    /// Another call of this session waits for the resource.
    #[error(
        "this session waits for {} already: await that call, or use another session",
        name(resource)
    )]
    AlreadyWaiting {
        /// Which, of several.
        resource: Option<String>,
    },
    /// The wait could never be granted. Nobody waits for this call any longer.
    #[error("{}", deadlock(sessions, resources))]
    Deadlock {
        /// Each waits for the next one, and the last one for the first. Empty if the
        /// authority did not say.
        sessions: Vec<SessionId>,
        /// What each of them waits for, in the same order.
        resources: Vec<String>,
    },
    /// The resource is in use with another number of slots.
    #[error(
        "{} is in use with {} slots: ask for as many, or have it resized",
        name(resource), number(*slots)
    )]
    CapacityMismatch {
        /// The resource.
        resource: Option<String>,
        /// How many slots are in force.
        slots: Option<u64>,
    },
    /// An administrator keeps the resource closed.
    #[error(
        "{} is frozen under {}: have it thawed with that token, or wait for it alone in its queue",
        name(resource), under(*token)
    )]
    Frozen {
        /// The resource.
        resource: Option<String>,
        /// Of the freeze: what a thaw must name.
        token: Option<Token>,
    },
    /// The grant was made and has ended before its answer came: revoked, not confirmed
    /// in time, or released.
    #[error("granted under {}, and ended before it could be used: ask again", under(*token))]
    GrantEnded {
        /// The grant's token.
        token: Option<Token>,
    },
    /// The events that the watch goes on with are no longer kept by any node.
    #[error("the events since the last one seen are no longer kept: watch anew")]
    Compacted,
    /// There is nothing there of what an administrator named; nothing was changed.
    #[error("nothing was changed: {what}")]
    NotFound {
        /// What is not there.
        what: String,
    },
    /// Whether an administrator's call took effect will not be told: it has no request
    /// id to ask under.
    #[error(
        "it is unknown whether this was done: look at the resource (get, explain) before \
         asking again: {last}"
    )]
    OutcomeUnknown {
        /// What the attempt met.
        last: String,
    },
    /// The authority ended the session, and everything it held with it.
    #[error("the session has ended: it was not renewed in time, or never was")]
    SessionExpired,
    /// The application closed the session, or ended the runtime that it was opened in.
    #[error("the session is closed")]
    SessionClosed,
    /// The grant has ended, though nobody here released it.
    #[error("the grant under {} is lost", under(*token))]
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

fn held(token: Token) -> String {
    format!("held under token {token}")
}

fn under(token: Option<Token>) -> String {
    token.map_or_else(|| "an unknown token".to_owned(), |token| format!("token {token}"))
}

fn name(resource: &Option<String>) -> &str {
    resource.as_deref().unwrap_or("the resource")
}

fn number(slots: Option<u64>) -> String {
    slots.map_or_else(|| "another number of".to_owned(), |slots| slots.to_string())
}

fn deadlock(sessions: &[SessionId], resources: &[String]) -> String {
    let steps: Vec<String> = sessions
        .iter()
        .zip(resources)
        .map(|(session, resource)| format!("{session} waits for {resource}"))
        .collect();
    let cycle = if steps.is_empty() { String::new() } else { format!(" ({})", steps.join(", ")) };
    format!("this wait would never end{cycle}: release what is held, and ask again in one order")
}

impl ClientError {
    /// Whether the request may have taken effect, or may yet.
    pub const fn outcome_unknown(&self) -> bool {
        match self {
            Self::Timeout { outcome_unknown }
            | Self::Unreachable { outcome_unknown, .. }
            | Self::Refused { outcome_unknown, .. } => *outcome_unknown,
            Self::OutcomeUnknown { .. } => true,
            Self::Busy { .. }
            | Self::AlreadyHeld { .. }
            | Self::AlreadyWaiting { .. }
            | Self::Deadlock { .. }
            | Self::CapacityMismatch { .. }
            | Self::Frozen { .. }
            | Self::GrantEnded { .. }
            | Self::Compacted
            | Self::NotFound { .. }
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
        let resource = told.text(key::RESOURCE).map(str::to_owned);
        match told.reason {
            Some(Reason::Busy) => Self::Busy {
                holder: token(key::HOLDER),
                waiting: told.number(key::WAITING).unwrap_or(0),
            },
            Some(Reason::WaitTimeout) => Self::Timeout { outcome_unknown: false },
            Some(Reason::AlreadyHeld) => Self::AlreadyHeld { resource, token: token(key::TOKEN) },
            Some(Reason::AlreadyWaiting) => Self::AlreadyWaiting { resource },
            Some(Reason::Deadlock) => cycle(&told),
            Some(Reason::CapacityMismatch) => {
                Self::CapacityMismatch { resource, slots: told.number(key::SLOTS) }
            }
            Some(Reason::Frozen) => Self::Frozen { resource, token: token(key::TOKEN) },
            Some(Reason::GrantEnded) => Self::GrantEnded { token: token(key::TOKEN) },
            Some(Reason::NotHeld) => Self::Lost { token: token(key::TOKEN) },
            Some(Reason::Compacted) => Self::Compacted,
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
                | Reason::Restoring
                | Reason::InvalidArgument
                | Reason::PermissionDenied
                | Reason::Overloaded,
            )
            | None => Self::Refused { told: Box::new(told), outcome_unknown },
        }
    }
}

/// The cycle that a refused wait would have closed.
fn cycle(told: &Told) -> ClientError {
    let sessions = told.text(key::SESSIONS).unwrap_or_default().split(',');
    let resources = told.text(key::RESOURCES).unwrap_or_default().lines();
    ClientError::Deadlock {
        sessions: sessions.filter_map(|id| id.parse().ok().map(SessionId)).collect(),
        resources: resources.map(str::to_owned).collect(),
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

    #[test]
    fn a_refusal_says_what_to_do_also_when_it_tells_nothing_more() {
        let said = |reason: Reason, metadata: &[(&str, &str)]| {
            let metadata = metadata.iter().map(|&(key, value)| (key, value.to_owned()));
            let told = Told::of(&reason.status("", metadata)).expect("it is ours");
            ClientError::refused(told, true).to_string()
        };
        let frozen = [(key::RESOURCE, "db"), (key::TOKEN, "9")];
        assert_eq!(
            said(Reason::Frozen, &frozen),
            "db is frozen under token 9: have it thawed with that token, or wait for it alone in its queue"
        );
        let cycle = [(key::SESSIONS, "4,7"), (key::RESOURCES, "a\nb")];
        assert_eq!(
            said(Reason::Deadlock, &cycle),
            "this wait would never end (s4 waits for a, s7 waits for b): release what is held, \
             and ask again in one order"
        );
        let bare = "this wait would never end: release what is held, and ask again in one order";
        assert_eq!(said(Reason::Deadlock, &[]), bare);
        let slots = [(key::RESOURCE, "screens"), (key::SLOTS, "3")];
        assert_eq!(
            said(Reason::CapacityMismatch, &slots),
            "screens is in use with 3 slots: ask for as many, or have it resized"
        );
        assert_eq!(
            said(Reason::GrantEnded, &[(key::TOKEN, "9")]),
            "granted under token 9, and ended before it could be used: ask again"
        );
        assert_eq!(
            said(Reason::AlreadyHeld, &[]),
            "this session holds the resource already, under an unknown token: use that guard, or \
             another session"
        );
    }
}
