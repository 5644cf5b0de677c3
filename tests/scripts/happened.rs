//! Events and facts in words.

use ringfence::locks::{
    Done, EndCause, Fact, GrantEndCause, Granted, Happened, LeaveCause, Millis, Note, Outcome,
    Phase, Timer,
};

use crate::names::Names;
use crate::words::{time, wait};

/// Whether the outcome has told this already.
pub fn is_told(outcome: &Outcome, what: &Happened) -> bool {
    match (outcome, what) {
        (Ok(Done::Opened { session: told, .. }), Happened::Opened { session }) => told == session,
        (Ok(Done::Granted { token: told }), Happened::Granted { grant, .. }) => {
            *told == grant.token
        }
        (Ok(Done::Queued { .. }), Happened::Queued { .. })
        | (Ok(Done::Closed), Happened::Ended { .. })
        | (Ok(Done::Confirmed { .. }), Happened::Activated { .. })
        | (Ok(Done::ValueSet { .. }), Happened::ValueChanged { .. }) => true,
        (Ok(Done::Released { at: _ }), Happened::GrantEnded { cause, .. }) => {
            *cause == GrantEndCause::Released
        }
        _ => false,
    }
}

pub fn happened(names: &Names, what: &Happened) -> String {
    match what {
        Happened::Opened { session } => format!("{} opened", names.of(*session)),
        Happened::Ended { session, cause } => format!("{} {}", names.of(*session), ended(*cause)),
        Happened::Queued { wait: id, .. } => format!("{} queued", wait(names, *id)),
        Happened::Granted { wait: id, grant, .. } => {
            format!("{} granted {}", wait(names, *id), granted(grant))
        }
        Happened::Activated { wait: id, token, .. } => {
            format!("{} activated token={token}", wait(names, *id))
        }
        Happened::ValueChanged { wait: id, token, value, .. } => {
            format!("{} value of token={token}: {value:?}", wait(names, *id))
        }
        Happened::Asked { wait: id, token, within, note: told, .. } => {
            let (who, within, told) = (wait(names, *id), time(*within), note(told));
            format!("{who} asked to give token={token} back within {within} {told}")
        }
        Happened::GrantEnded { wait: id, slot, token, cause, delay, .. } => {
            let slot = slot.map(|slot| format!(" slot={slot}")).unwrap_or_default();
            let (who, cause) = (wait(names, *id), grant_ended(cause));
            format!("{who} ended token={token}{slot}: {cause}{}", closed(*delay))
        }
        Happened::Reopened { slot, token, .. } => {
            let slot = slot.map(|slot| format!(" slot={slot}")).unwrap_or_default();
            format!("reopened after token={token}{slot}")
        }
        Happened::LeftQueue { wait: id, cause, .. } => {
            format!("{} left the queue: {}", wait(names, *id), left(cause))
        }
        Happened::Frozen { name, token, note: told } => {
            format!("{name} frozen#{token} {}", note(told))
        }
        Happened::Thawed { name, token, note: told } => {
            format!("{name} thawed#{token} {}", note(told))
        }
        Happened::Resized { name, slots, token, note: told } => {
            format!("{name} resized to {slots} slots#{token} {}", note(told))
        }
    }
}

pub fn fact(names: &Names, fact: &Fact) -> String {
    match fact {
        Fact::TermBegan { term, previous } => format!("term {term} began after {previous}"),
        Fact::Seen { session, ttl, term, index } => {
            format!("{} seen in term {term} at {index} ttl={}", names.of(*session), time(*ttl))
        }
        Fact::Ended { session } => format!("{} ended", names.of(*session)),
        Fact::TimerBegan { timer: Timer::Wait(id), after } => {
            format!("{} waits up to {}", wait(names, *id), time(*after))
        }
        Fact::TimerEnded { timer: Timer::Wait(id) } => {
            format!("{} waits no more", wait(names, *id))
        }
        Fact::TimerBegan { timer, after } => {
            format!("{} runs {}", self::timer(names, *timer), time(*after))
        }
        Fact::TimerEnded { timer } => format!("{} is over", self::timer(names, *timer)),
    }
}

fn timer(names: &Names, timer: Timer) -> String {
    match timer {
        Timer::Wait(id) => format!("wait of {}", wait(names, id)),
        Timer::Barrier(token) => format!("barrier of token={token}"),
        Timer::Closure(token) => format!("closure after token={token}"),
        Timer::Settle => "settle".into(),
    }
}

/// `token=7`, and what is not plain.
fn granted(grant: &Granted) -> String {
    let mut told = format!("token={}", grant.token);
    if let Some(slot) = grant.slot {
        told.push_str(&format!(" slot={slot}"));
    }
    if grant.floor != grant.token {
        told.push_str(&format!(" floor={}", grant.floor));
    }
    if let Phase::Barrier { deadline } = grant.phase {
        told.push_str(&format!(" barrier {}", time(deadline)));
    }
    told
}

fn grant_ended(cause: &GrantEndCause) -> String {
    match cause {
        GrantEndCause::Released => "released".into(),
        GrantEndCause::Session(cause) => ended(*cause).into(),
        GrantEndCause::Unconfirmed => "unconfirmed".into(),
        GrantEndCause::Revoked { by, note: told } => {
            format!("revoked by token={by} {}", note(told))
        }
        GrantEndCause::Frozen { by } => format!("frozen by token={by}"),
    }
}

fn left(cause: &LeaveCause) -> String {
    match cause {
        LeaveCause::Cancelled => "cancelled".into(),
        LeaveCause::TimedOut => "timed out".into(),
        LeaveCause::Session(cause) => ended(*cause).into(),
        LeaveCause::Frozen { resource, by } => format!("{resource} frozen#{by}"),
    }
}

const fn ended(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Closed => "closed",
        EndCause::Expired => "expired",
    }
}

fn closed(delay: Millis) -> String {
    if delay.0 == 0 { String::new() } else { format!(", closed for {}", time(delay)) }
}

fn note(note: &Note) -> String {
    format!("({}: {})", note.actor, note.reason)
}
