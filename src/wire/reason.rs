//! Why a call was refused, in stable words. Every refusal is a gRPC status with a
//! `google.rpc.ErrorInfo`: domain [`DOMAIN`], one of these reasons, and metadata
//! under the names in [`key`]. Sections 5 and 11 of the contract.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The domain of every `ErrorInfo` of ours.
pub const DOMAIN: &str = "ringfence";

/// Request metadata by which a client asks a node that does not lead to answer
/// `NOT_LEADER` instead of forwarding the call; any value.
pub const NO_FORWARD: &str = "ringfence-no-forward";

/// Names of metadata in the `ErrorInfo`.
pub mod key {
    /// Client address of the leader, `host:port`.
    pub const LEADER: &str = "leader";
    /// The fencing token that the refusal speaks of.
    pub const TOKEN: &str = "token";
    /// Token of the grant that stands in the way.
    pub const HOLDER: &str = "holder";
    /// How many wait in the queue.
    pub const WAITING: &str = "waiting";
    /// The request id that the refusal speaks of.
    pub const REQUEST: &str = "request";
    /// The resource that the refusal speaks of.
    pub const RESOURCE: &str = "resource";
    /// The field that is out of bounds.
    pub const FIELD: &str = "field";
    /// What the field must be.
    pub const BOUND: &str = "bound";
    /// How long to wait before the next attempt, in milliseconds.
    pub const RETRY_AFTER_MS: &str = "retry_after_ms";
    /// The destination's high-water mark.
    pub const MARK: &str = "mark";
    /// After which revision all events are kept, as index and ordinal with a dot between.
    pub const SINCE: &str = "since";
    /// The limit that is reached.
    pub const LIMIT: &str = "limit";
    /// How a grant is held: `exclusive`, `shared`, `slots(n)`.
    pub const MODE: &str = "mode";
    /// How far a grant has come: `active` or `barrier`.
    pub const PHASE: &str = "phase";
    /// How many slots the resource is in use with.
    pub const SLOTS: &str = "slots";
    /// The sessions of a cycle of waits, with commas between them.
    pub const SESSIONS: &str = "sessions";
    /// What each of them waits for, one a line.
    pub const RESOURCES: &str = "resources";
}

/// What a refusal says about the request id it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// It is the id's outcome: the same for every attempt, for ever.
    ForTheId,
    /// At the door: this attempt has not and will not take effect. If an earlier
    /// attempt is unknown, the id stays unknown.
    ForTheAttempt,
    /// It says nothing about the effect.
    ForNothing,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $text:literal $code:ident $speaks:ident;)*) => {
        /// A reason of a refusal.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// All of them, in the order of the contract.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The stable word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The gRPC code that goes with it.
            pub const fn code(self) -> Code {
                match self { $(Self::$name => Code::$code,)* }
            }

            /// What it says about the request id.
            pub const fn speaks(self) -> Speaks {
                match self { $(Self::$name => Speaks::$speaks,)* }
            }
        }
    };
}

// The one table: reason, word, gRPC code, what it speaks for.
reasons! {
    /// This node does not lead. Go to `leader`, if named.
    NotLeader "NOT_LEADER" Unavailable ForTheAttempt;
    /// This node leads, or knows no leader, and reaches no majority.
    NoQuorum "NO_QUORUM" Unavailable ForTheAttempt;
    /// It may have taken effect. Ask again under the same request id, anywhere.
    OutcomeUnknown "OUTCOME_UNKNOWN" Unknown ForNothing;
    /// The session has ended, with all its grants and waits.
    SessionExpired "SESSION_EXPIRED" FailedPrecondition ForTheAttempt;
    /// There never was such a session.
    SessionUnknown "SESSION_UNKNOWN" NotFound ForTheAttempt;
    /// No such grant of this session; nothing was changed.
    NotHeld "NOT_HELD" FailedPrecondition ForTheId;
    /// Held or queued for by others, and the request would not wait.
    Busy "BUSY" Aborted ForTheId;
    /// The session holds the resource already, under another request id.
    AlreadyHeld "ALREADY_HELD" AlreadyExists ForTheId;
    /// The session waits for the resource already, under another request id.
    AlreadyWaiting "ALREADY_WAITING" AlreadyExists ForTheId;
    /// The grant of this request was made and has ended.
    GrantEnded "GRANT_ENDED" FailedPrecondition ForTheId;
    /// The request was cancelled.
    Cancelled "CANCELLED" Cancelled ForTheId;
    /// The request is settled and forgotten: a correct client never sees it.
    StaleRequest "STALE_REQUEST" OutOfRange ForNothing;
    /// The session keeps as many outcomes as it may.
    WindowFull "WINDOW_FULL" ResourceExhausted ForTheAttempt;
    /// The wait's deadline passed.
    WaitTimeout "WAIT_TIMEOUT" DeadlineExceeded ForTheId;
    /// The resource has as many waiters as it may.
    QueueFull "QUEUE_FULL" ResourceExhausted ForTheId;
    /// Another named limit is reached.
    LimitReached "LIMIT_REACHED" ResourceExhausted ForTheId;
    /// The resource is in use with another number of slots.
    CapacityMismatch "CAPACITY_MISMATCH" FailedPrecondition ForTheId;
    /// The wait could never be granted.
    Deadlock "DEADLOCK" Aborted ForTheId;
    /// An administrator keeps the resource closed.
    Frozen "FROZEN" FailedPrecondition ForTheId;
    /// No grants yet after a restore.
    Restoring "RESTORING" Unavailable ForTheAttempt;
    /// The watch asks for events that are no longer kept.
    Compacted "COMPACTED" OutOfRange ForTheAttempt;
    /// A field is out of bounds; `field` and `bound` say which and how.
    InvalidArgument "INVALID_ARGUMENT" InvalidArgument ForTheAttempt;
    /// The caller may not do this.
    PermissionDenied "PERMISSION_DENIED" PermissionDenied ForTheAttempt;
    /// Too much is under way. Try again after `retry_after_ms`.
    Overloaded "OVERLOADED" ResourceExhausted ForTheAttempt;
}

impl Reason {
    /// Reads the word; `None` for one that this version does not know.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == word)
    }

    /// Whether it is a refusal at the door. Section 5 of the contract.
    pub const fn is_at_the_door(self) -> bool {
        matches!(self.speaks(), Speaks::ForTheAttempt)
    }

    /// The status to answer with: one sentence for people, and metadata under the
    /// names in [`key`].
    pub fn status<'a>(
        self,
        message: impl Into<String>,
        metadata: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Status {
        let metadata: HashMap<String, String> =
            metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let details = ErrorDetails::with_error_info(self.as_str(), DOMAIN, metadata);
        Status::with_error_details(self.code(), message, details)
    }

    /// The reason that a status carries; `None` if it is not ours.
    pub fn of(status: &Status) -> Option<Self> {
        Told::of(status).and_then(|told| told.reason)
    }
}

/// A refusal as its receiver reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The reason; `None` for a word that this version does not know.
    pub reason: Option<Reason>,
    /// The word itself.
    pub word: String,
    /// One sentence for people.
    pub message: String,
    metadata: HashMap<String, String>,
}

impl Told {
    /// Reads a status; `None` if it is not ours (a broken connection, a proxy).
    pub fn of(status: &Status) -> Option<Self> {
        let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
        Some(Self {
            reason: Reason::parse(&info.reason),
            word: info.reason,
            message: status.message().to_owned(),
            metadata: info.metadata,
        })
    }

    /// The metadata under this name.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    /// The metadata under this name, if it is a whole number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    /// How long to wait before the next attempt, if it says so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.number(key::RETRY_AFTER_MS).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_the_wire() {
        for &reason in Reason::ALL {
            let status = reason.status("why", [(key::TOKEN, "7".to_owned())]);
            let told = Told::of(&status).expect("it is ours");
            assert_eq!((told.reason, told.number(key::TOKEN)), (Some(reason), Some(7)));
            assert_eq!(told.message, "why");
            assert_eq!(status.code(), reason.code());
            assert_eq!(Reason::of(&status), Some(reason));
        }
    }

    #[test]
    fn the_refusals_at_the_door_are_those_of_the_contract() {
        let door: Vec<&str> =
            Reason::ALL.iter().filter(|r| r.is_at_the_door()).map(|r| r.as_str()).collect();
        assert_eq!(
            door,
            [
                "NOT_LEADER",
                "NO_QUORUM",
                "SESSION_EXPIRED",
                "SESSION_UNKNOWN",
                "WINDOW_FULL",
                "RESTORING",
                "COMPACTED",
                "INVALID_ARGUMENT",
                "PERMISSION_DENIED",
                "OVERLOADED",
            ]
        );
    }

    #[test]
    fn a_status_of_another_domain_is_not_ours() {
        let details = ErrorDetails::with_error_info("BUSY", "proxy", HashMap::new());
        let status = Status::with_error_details(Code::Aborted, "", details);
        assert_eq!(Told::of(&status), None);
        assert_eq!(Reason::of(&Status::unavailable("gone")), None);
    }
}
