//! Outcomes in words; refusals by the names of section 11 of the contract.

use ringfence::locks::{Administered, Done, Limit, Outcome, Phase, Refusal};

use crate::names::Names;
use crate::words::time;

pub fn outcome(names: &Names, outcome: &Outcome) -> String {
    match outcome {
        Ok(done) => self::done(done),
        Err(refusal) => format!("refused {}", self::refusal(names, refusal)),
    }
}

fn done(done: &Done) -> String {
    match done {
        Done::Nothing => "ok".into(),
        Done::Opened { ttl, created: true, .. } => format!("opened ttl={}", time(*ttl)),
        Done::Opened { ttl, created: false, .. } => format!("is open ttl={}", time(*ttl)),
        Done::Closed => "closed".into(),
        Done::TtlSet { ttl } => format!("set ttl={}", time(*ttl)),
        Done::Granted { token } => format!("granted token={token}"),
        Done::Queued { ahead } => format!("queued behind {ahead}"),
        Done::Released { at } => format!("released at {at}"),
        Done::CancelledTarget => "cancelled".into(),
        Done::Confirmed { at } => format!("confirmed at {at}"),
        Done::ValueSet { at } => format!("value set at {at}"),
        Done::Administered(done) => administered(done),
    }
}

fn administered(done: &Administered) -> String {
    match done {
        Administered::Revoked { names, slot, token, floor } => {
            let names: Vec<_> = names.iter().map(ringfence::locks::ResourceName::as_str).collect();
            let slot = slot.map(|slot| format!(" slot={slot}")).unwrap_or_default();
            format!("revoked fence={}{slot} token={token} floor={floor}", names.join("+"))
        }
        Administered::Frozen { token } => format!("frozen token={token}"),
        Administered::Thawed { at } => format!("thawed at {at}"),
        Administered::Resized { slots, token, floor, removed } => {
            format!("resized slots={slots} removed={removed:?} token={token} floor={floor}")
        }
        Administered::Asked { at } => format!("asked at {at}"),
    }
}

/// By the names of section 11 of the contract.
fn refusal(names: &Names, refusal: &Refusal) -> String {
    match refusal {
        Refusal::SessionExpired => "SESSION_EXPIRED".into(),
        Refusal::SessionUnknown => "SESSION_UNKNOWN".into(),
        Refusal::NotBootstrapped => "NOT_BOOTSTRAPPED".into(),
        Refusal::StaleRequest => "STALE_REQUEST".into(),
        Refusal::WindowFull => "WINDOW_FULL".into(),
        Refusal::RequestChanged => "INVALID_ARGUMENT request_id".into(),
        Refusal::Busy { holder: Some(token), waiting } => {
            format!("BUSY token={token} waiting={waiting}")
        }
        Refusal::Busy { holder: None, waiting } => format!("BUSY waiting={waiting}"),
        Refusal::AlreadyHeld { resource, token, mode, phase } => {
            let phase = match phase {
                Phase::Active => String::new(),
                Phase::Barrier { deadline } => format!(" barrier {}", time(*deadline)),
            };
            format!("ALREADY_HELD {resource}#{token} {mode}{phase}")
        }
        Refusal::AlreadyWaiting { resource, request } => {
            format!("ALREADY_WAITING {resource} id={request}")
        }
        Refusal::GrantEnded { token } => format!("GRANT_ENDED token={token}"),
        Refusal::Cancelled => "CANCELLED".into(),
        Refusal::WaitTimeout => "WAIT_TIMEOUT".into(),
        Refusal::NotHeld => "NOT_HELD".into(),
        Refusal::QueueFull { max } => format!("QUEUE_FULL max={max}"),
        Refusal::TooEntangled { max } => format!("QUEUE_FULL steps={max}"),
        Refusal::Deadlock { cycle } => {
            let step = |step: &ringfence::locks::Blocked| {
                format!(" {} waits for {}", names.of(step.session), step.resource)
            };
            let cycle: Vec<_> = cycle.iter().map(step).collect();
            format!("DEADLOCK{}", cycle.join(","))
        }
        Refusal::CapacityMismatch { resource, slots } => {
            format!("CAPACITY_MISMATCH {resource} slots={slots}")
        }
        Refusal::Frozen { resource, token } => format!("FROZEN {resource}#{token}"),
        Refusal::LimitReached { limit, max } => {
            let limit = match limit {
                Limit::Sessions => "sessions",
                Limit::PlacesPerSession => "places",
                Limit::Tokens => "tokens",
                Limit::Holders => "holders",
                Limit::Closures => "closures",
                Limit::Frozen => "frozen",
            };
            format!("LIMIT_REACHED {limit} max={max}")
        }
        Refusal::TtlOutOfBounds { min, max } => {
            format!("INVALID_ARGUMENT ttl {} to {}", time(*min), time(*max))
        }
    }
}
