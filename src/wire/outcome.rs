//! The answers that a session's window keeps, as they are stored.

use super::fields::mode_in;
use super::log::Unreadable;
use super::rows::{barrier_out, phase_in};
use super::storage as stored;
use crate::locks::{
    Blocked, Done, Invalid, Limit, Millis, Outcome, Refusal, RequestId, ResourceName, Revision,
    SessionId, Token,
};

/// The kinds are those of the state hash (`locks::hash`): 1 to 99 done, 101 up
/// refused.
pub(super) fn outcome_out(outcome: &Outcome) -> stored::Outcome {
    match outcome {
        Ok(done) => done_out(done),
        Err(refusal) => refusal_out(refusal),
    }
}

const fn kind(kind: u32) -> stored::Outcome {
    stored::Outcome {
        kind,
        token: 0,
        number: 0,
        second: 0,
        name: String::new(),
        index: 0,
        ordinal: 0,
        sessions: Vec::new(),
        names: Vec::new(),
    }
}

fn token(n: u32, token: Token) -> stored::Outcome {
    stored::Outcome { token: token.get(), ..kind(n) }
}

fn number(n: u32, number: u64) -> stored::Outcome {
    stored::Outcome { number, ..kind(n) }
}

fn pair(n: u32, number: u64, second: u64) -> stored::Outcome {
    stored::Outcome { number, second, ..kind(n) }
}

fn done_out(done: &Done) -> stored::Outcome {
    match done {
        Done::Nothing => kind(1),
        Done::Opened { session, ttl, created } => {
            let index = u64::from(*created);
            stored::Outcome { index, ..pair(2, session.0, ttl.0) }
        }
        Done::Closed => kind(3),
        Done::TtlSet { ttl } => number(4, ttl.0),
        Done::Granted { token: t } => token(5, *t),
        Done::Queued { ahead } => number(6, *ahead),
        Done::Released { at } => {
            stored::Outcome { index: at.index, ordinal: at.ordinal, ..kind(7) }
        }
        Done::CancelledTarget => kind(8),
        Done::Confirmed { at } => {
            stored::Outcome { index: at.index, ordinal: at.ordinal, ..kind(9) }
        }
        Done::ValueSet { at } => {
            stored::Outcome { index: at.index, ordinal: at.ordinal, ..kind(10) }
        }
        // Belongs to no session, and so is never kept.
        Done::Administered(_) => kind(99),
    }
}

fn refusal_out(refusal: &Refusal) -> stored::Outcome {
    match refusal {
        Refusal::SessionExpired => kind(101),
        Refusal::SessionUnknown => kind(102),
        Refusal::NotBootstrapped => kind(103),
        Refusal::StaleRequest => kind(104),
        Refusal::WindowFull => kind(105),
        Refusal::RequestChanged => kind(106),
        Refusal::Busy { holder, waiting } => {
            let token = holder.map_or(0, Token::get);
            stored::Outcome { token, ..number(107, *waiting) }
        }
        Refusal::AlreadyHeld { resource, token: t, mode, phase } => stored::Outcome {
            name: resource.to_string(),
            number: u64::from(mode.code()),
            second: barrier_out(*phase),
            ..token(108, *t)
        },
        Refusal::AlreadyWaiting { resource, request } => {
            stored::Outcome { name: resource.to_string(), ..number(109, request.get()) }
        }
        Refusal::GrantEnded { token: t } => token(110, *t),
        Refusal::Cancelled => kind(111),
        Refusal::WaitTimeout => kind(112),
        Refusal::NotHeld => kind(113),
        Refusal::QueueFull { max } => number(114, *max),
        Refusal::LimitReached { limit, max } => pair(115, u64::from(limit.code()), *max),
        Refusal::TtlOutOfBounds { min, max } => pair(116, min.0, max.0),
        Refusal::TooEntangled { max } => number(117, *max),
        Refusal::Deadlock { cycle } => stored::Outcome {
            sessions: cycle.iter().map(|blocked| blocked.session.0).collect(),
            names: cycle.iter().map(|blocked| blocked.resource.to_string()).collect(),
            ..kind(118)
        },
        Refusal::CapacityMismatch { resource, slots } => {
            stored::Outcome { name: resource.to_string(), ..number(119, u64::from(*slots)) }
        }
        Refusal::Frozen { resource, token: t } => {
            stored::Outcome { name: resource.to_string(), ..token(120, *t) }
        }
    }
}

pub(super) fn outcome_in(outcome: &stored::Outcome) -> Result<Outcome, Unreadable> {
    let token = || Token::new(outcome.token);
    let resource = || ResourceName::new(&outcome.name);
    let at = Revision { index: outcome.index, ordinal: outcome.ordinal };
    Ok(match outcome.kind {
        1 => Ok(Done::Nothing),
        2 => Ok(Done::Opened {
            session: SessionId(outcome.number),
            ttl: Millis(outcome.second),
            created: outcome.index != 0,
        }),
        3 => Ok(Done::Closed),
        4 => Ok(Done::TtlSet { ttl: Millis(outcome.number) }),
        5 => Ok(Done::Granted { token: token()? }),
        6 => Ok(Done::Queued { ahead: outcome.number }),
        7 => Ok(Done::Released { at }),
        8 => Ok(Done::CancelledTarget),
        9 => Ok(Done::Confirmed { at }),
        10 => Ok(Done::ValueSet { at }),
        101 => Err(Refusal::SessionExpired),
        102 => Err(Refusal::SessionUnknown),
        103 => Err(Refusal::NotBootstrapped),
        104 => Err(Refusal::StaleRequest),
        105 => Err(Refusal::WindowFull),
        106 => Err(Refusal::RequestChanged),
        107 => Err(Refusal::Busy { holder: token().ok(), waiting: outcome.number }),
        108 => Err(Refusal::AlreadyHeld {
            resource: resource()?,
            token: token()?,
            mode: mode_in(u32::try_from(outcome.number).unwrap_or(0))?,
            phase: phase_in(outcome.second),
        }),
        109 => Err(Refusal::AlreadyWaiting {
            resource: resource()?,
            request: RequestId::new(outcome.number)?,
        }),
        110 => Err(Refusal::GrantEnded { token: token()? }),
        111 => Err(Refusal::Cancelled),
        112 => Err(Refusal::WaitTimeout),
        113 => Err(Refusal::NotHeld),
        114 => Err(Refusal::QueueFull { max: outcome.number }),
        115 => Err(Refusal::LimitReached { limit: limit_in(outcome.number)?, max: outcome.second }),
        116 => Err(Refusal::TtlOutOfBounds {
            min: Millis(outcome.number),
            max: Millis(outcome.second),
        }),
        117 => Err(Refusal::TooEntangled { max: outcome.number }),
        118 => Err(Refusal::Deadlock { cycle: cycle_in(outcome)? }),
        119 => Err(Refusal::CapacityMismatch {
            resource: resource()?,
            slots: u32::try_from(outcome.number).unwrap_or(u32::MAX),
        }),
        120 => Err(Refusal::Frozen { resource: resource()?, token: token()? }),
        _ => return Err(Unreadable::Unknown { what: "outcome" }),
    })
}

fn cycle_in(outcome: &stored::Outcome) -> Result<Vec<Blocked>, Invalid> {
    let steps = outcome.sessions.iter().zip(&outcome.names);
    let step = |(session, name): (&u64, &String)| {
        Ok(Blocked { session: SessionId(*session), resource: ResourceName::new(name)? })
    };
    steps.map(step).collect()
}

fn limit_in(limit: u64) -> Result<Limit, Unreadable> {
    Limit::from_code(limit).ok_or(Unreadable::Unknown { what: "limit" })
}
