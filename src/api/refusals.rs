//! Every refusal as a status that says which: a stable reason, a sentence, and what
//! a client needs to go on. Section 11 of the contract.

use tonic::Status;

use crate::locks::{Blocked, Invalid, Limit, Phase, Refusal, Revision};
use crate::raft::{ConfirmError, ProposeError};
use crate::wire::reason::{Reason, key};

/// A field is out of its bounds.
pub fn invalid(invalid: &Invalid) -> Status {
    let metadata = [(key::FIELD, invalid.field.to_owned()), (key::BOUND, invalid.bound.to_owned())];
    Reason::InvalidArgument.status(invalid.to_string(), metadata)
}

/// The rules said no.
pub fn refused(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::SessionExpired => Reason::SessionExpired
            .status("the session has ended, with all its grants and waits", []),
        Refusal::SessionUnknown => {
            Reason::SessionUnknown.status("there never was such a session", [])
        }
        Refusal::NotBootstrapped => Reason::NoQuorum.status("the cluster is still starting", []),
        Refusal::StaleRequest => Reason::StaleRequest
            .status("this request id is settled and its answer is no longer kept", []),
        Refusal::WindowFull => Reason::WindowFull.status(
            "the session keeps 1024 answers: raise oldest_outstanding or name answered ids",
            [],
        ),
        Refusal::RequestChanged => invalid(&Invalid {
            field: "request_id",
            bound: "used with the same contents as before",
        }),
        Refusal::Busy { holder, waiting } => busy(*holder, *waiting),
        Refusal::GrantEnded { token } => Reason::GrantEnded.status(
            format!("the grant was made with token {token} and has ended"),
            [(key::TOKEN, token.to_string())],
        ),
        Refusal::Cancelled => Reason::Cancelled.status("the request was cancelled", []),
        Refusal::WaitTimeout => {
            Reason::WaitTimeout.status("not granted before the wait's deadline", [])
        }
        Refusal::NotHeld => {
            Reason::NotHeld.status("the session holds no such grant; nothing was changed", [])
        }
        Refusal::QueueFull { max } => {
            Reason::QueueFull.status(format!("{max} wait for the resource already"), [])
        }
        Refusal::LimitReached { limit, max } => limit_reached(*limit, *max),
        Refusal::TtlOutOfBounds { min, max } => ttl_out_of_bounds(min.0, max.0),
        Refusal::AlreadyHeld { .. }
        | Refusal::AlreadyWaiting { .. }
        | Refusal::TooEntangled { .. }
        | Refusal::Deadlock { .. }
        | Refusal::CapacityMismatch { .. }
        | Refusal::Frozen { .. } => not_for_this_session(refusal),
    }
}

/// What stands between this session, or this claim, and the resource.
fn not_for_this_session(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::AlreadyHeld { resource, token, mode, phase } => Reason::AlreadyHeld.status(
            format!("the session holds {resource} already ({mode}), with token {token}"),
            [
                (key::TOKEN, token.to_string()),
                (key::RESOURCE, resource.to_string()),
                (key::MODE, mode.to_string()),
                (key::PHASE, phase_word(*phase).to_owned()),
            ],
        ),
        Refusal::AlreadyWaiting { resource, request } => Reason::AlreadyWaiting.status(
            format!("the session waits for {resource} already, under request id {request}"),
            [(key::REQUEST, request.to_string()), (key::RESOURCE, resource.to_string())],
        ),
        Refusal::TooEntangled { max } => Reason::QueueFull.status(
            format!("whether this wait could ever end was not found in {max} steps"),
            [(key::BOUND, max.to_string())],
        ),
        Refusal::Deadlock { cycle } => deadlock(cycle),
        Refusal::CapacityMismatch { resource, slots } => Reason::CapacityMismatch.status(
            format!("{resource} is in use with {slots} slots: name as many"),
            [(key::RESOURCE, resource.to_string()), (key::SLOTS, slots.to_string())],
        ),
        Refusal::Frozen { resource, token } => Reason::Frozen.status(
            format!("an administrator keeps {resource} closed, by the freeze with token {token}"),
            [(key::RESOURCE, resource.to_string()), (key::TOKEN, token.to_string())],
        ),
        other => unreachable!("told elsewhere: {other:?}"),
    }
}

/// The command was not appended, or its fate is unseen: never a guess.
pub fn not_proposed(error: &ProposeError) -> Status {
    match error {
        ProposeError::NotLeader { leader } => {
            not_leader(leader.as_ref().map(|(_, address)| address.as_str()))
        }
        ProposeError::NoQuorum => no_quorum(),
        ProposeError::Unknown => outcome_unknown(),
    }
}

/// No round confirmed this node as the leader.
pub fn not_confirmed(error: &ConfirmError) -> Status {
    match error {
        ConfirmError::NotLeader { leader } => {
            not_leader(leader.as_ref().map(|(_, address)| address.as_str()))
        }
        ConfirmError::NoQuorum => no_quorum(),
    }
}

/// This node does not lead; go to the leader, if it is known.
pub fn not_leader(leader: Option<&str>) -> Status {
    match leader {
        Some(address) => Reason::NotLeader.status(
            format!("this node does not lead; the leader is at {address}"),
            [(key::LEADER, address.to_owned())],
        ),
        None => Reason::NoQuorum.status("no leader is known: an election may be under way", []),
    }
}

/// This node leads, as far as it knows, but no majority answers it.
pub fn no_quorum() -> Status {
    Reason::NoQuorum.status("this node reaches no majority of the cluster", [])
}

/// This node follows a leader to which it has no connection, so that nothing was sent.
pub fn leader_unreachable() -> Status {
    Reason::NoQuorum.status("the leader cannot be reached from here: an election may follow", [])
}

/// It may have taken effect.
pub fn outcome_unknown() -> Status {
    Reason::OutcomeUnknown
        .status("the outcome is unknown here: ask again under the same request id, on any node", [])
}

/// Too much is under way.
pub fn overloaded(retry_after_ms: u64) -> Status {
    Reason::Overloaded.status(
        "too many requests are under way on this node",
        [(key::RETRY_AFTER_MS, retry_after_ms.to_string())],
    )
}

/// A watch needs events that are no longer kept here.
pub fn compacted(read: Revision, since: Revision) -> Status {
    let behind = since.index.saturating_sub(read.index);
    Reason::Compacted.status(
        format!(
            "the watch has got to entry {} and this node keeps what happened after entry {}: it \
             is {behind} entries too late; begin anew with the state",
            read.index, since.index
        ),
        [(key::SINCE, since.to_string())],
    )
}

/// As many watch on this node as may.
pub fn too_many_watchers(max: usize) -> Status {
    Reason::LimitReached.status(
        format!("the limit is reached: {max} watch on this node; another may have room"),
        [(key::LIMIT, "watchers".to_owned()), (key::BOUND, max.to_string())],
    )
}

/// The node is asked to stop: what goes on for long goes on elsewhere.
pub fn stopping() -> Status {
    Reason::NoQuorum.status("this node stops: go on at another one", [])
}

/// This node has heard of no majority lately: what happens is not learned here.
pub fn cut_off() -> Status {
    let text = "this node is in contact with no majority of the cluster: ask another one";
    Reason::NoQuorum.status(text, [])
}

fn busy(holder: Option<crate::locks::Token>, waiting: u64) -> Status {
    let message = match holder {
        Some(token) => format!("held with token {token}; {waiting} waiting"),
        None => format!("{waiting} waiting"),
    };
    let holder = holder.map(|token| (key::HOLDER, token.to_string()));
    Reason::Busy.status(message, holder.into_iter().chain([(key::WAITING, waiting.to_string())]))
}

/// Each waits for what the next one holds or stands before.
fn deadlock(cycle: &[Blocked]) -> Status {
    let steps: Vec<_> = cycle.iter().map(|b| format!("{} for {}", b.session, b.resource)).collect();
    let sessions: Vec<_> = cycle.iter().map(|b| b.session.0.to_string()).collect();
    let resources: Vec<_> = cycle.iter().map(|b| b.resource.to_string()).collect();
    Reason::Deadlock.status(
        format!(
            "this wait would never end: each of these waits for the next: {}",
            steps.join(", ")
        ),
        [(key::SESSIONS, sessions.join(",")), (key::RESOURCES, resources.join("\n"))],
    )
}

const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Active => "active",
        Phase::Barrier { .. } => "barrier",
    }
}

fn limit_reached(limit: Limit, max: u64) -> Status {
    let (name, what) = match limit {
        Limit::Sessions => ("sessions", "sessions are live"),
        Limit::PlacesPerSession => ("places_per_session", "grants and waits of one session"),
        Limit::Tokens => ("tokens", "is the last token"),
        Limit::Holders => ("holders", "hold or await the resource together"),
        Limit::Closures => ("closures", "lock delays run on the resource"),
        Limit::Frozen => ("frozen", "resources are frozen"),
    };
    Reason::LimitReached.status(
        format!("the limit is reached: {max} {what}"),
        [(key::LIMIT, name.to_owned()), (key::BOUND, max.to_string())],
    )
}

fn ttl_out_of_bounds(min: u64, max: u64) -> Status {
    let bound = format!("{min} to {max}");
    Reason::InvalidArgument.status(
        format!("ttl_ms must be {bound}"),
        [(key::FIELD, "ttl_ms".to_owned()), (key::BOUND, bound)],
    )
}
