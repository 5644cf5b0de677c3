//! What entries brought about, for the counts.

use ringfence::locks::{
    Administered, Command, Done, Effects, EndCause, GrantEndCause, Granted, Happened, LeaveCause,
    Mode, Phase, Refusal,
};

use crate::counts::{Count, Counts};

/// Counts what an entry brought about.
pub fn count_effects(counts: &mut Counts, command: Option<&Command>, effects: &Effects) {
    for event in &effects.events {
        if let Happened::Granted { names, grant, .. } = &event.what {
            let at_once = matches!(command, Some(Command::Acquire { .. }));
            counts.add(if at_once { Count::Granted } else { Count::GrantedWaiting });
            count_grant(counts, names.len(), grant);
        } else if let Some(count) = count_of(&event.what) {
            counts.add(count);
        }
    }
    count_outcome(counts, command, effects);
}

fn count_grant(counts: &mut Counts, names: usize, grant: &Granted) {
    match grant.mode {
        Mode::Exclusive if names > 1 => counts.add(Count::GrantedSets),
        Mode::Exclusive => {}
        Mode::Shared => counts.add(Count::GrantedShared),
        Mode::Slots { .. } => counts.add(Count::GrantedSlots),
    }
    if grant.floor < grant.token {
        counts.add(Count::GrantedBeside);
    }
    match grant.phase {
        Phase::Active => {}
        Phase::Barrier { .. } => counts.add(Count::GrantedStrict),
    }
}

fn count_of(what: &Happened) -> Option<Count> {
    let count = match what {
        Happened::Ended { cause: EndCause::Expired, .. } => Count::Expired,
        Happened::GrantEnded { cause, .. } => match cause {
            GrantEndCause::Released => Count::Released,
            GrantEndCause::Unconfirmed => Count::Unconfirmed,
            GrantEndCause::Revoked { .. } => Count::Revoked,
            GrantEndCause::Frozen { .. } => Count::EndedByFreeze,
            GrantEndCause::Session(_) => return None,
        },
        Happened::LeftQueue { cause, .. } => match cause {
            LeaveCause::Cancelled => Count::Cancelled,
            LeaveCause::TimedOut => Count::WaitsExpired,
            LeaveCause::Session(_) => Count::WaitersEnded,
            LeaveCause::Frozen { .. } => Count::SetsFrozen,
        },
        Happened::Activated { .. } => Count::Confirmed,
        Happened::ValueChanged { .. } => Count::ValuesSet,
        Happened::Asked { .. } => Count::Asked,
        Happened::Reopened { .. } => Count::Reopenings,
        Happened::Frozen { .. } => Count::Frozen,
        Happened::Thawed { .. } => Count::Thawed,
        Happened::Resized { .. } => Count::Resized,
        Happened::Ended { cause: EndCause::Closed, .. }
        | Happened::Granted { .. }
        | Happened::Opened { .. }
        | Happened::Queued { .. } => return None,
    };
    Some(count)
}

fn count_outcome(counts: &mut Counts, command: Option<&Command>, effects: &Effects) {
    match (command, &effects.outcome) {
        (Some(Command::MarkSeen { .. }), _) => counts.add(Count::MarkSeen),
        (Some(Command::ExpireSessions { sessions }), _) => {
            let ended = effects.events.iter();
            let ended = ended.filter(|e| matches!(e.what, Happened::Ended { .. })).count();
            counts.many(Count::Spared, (sessions.len() - ended) as u64);
        }
        (Some(Command::Revoke { .. } | Command::Thaw { .. }), Err(Refusal::NotHeld)) => {
            counts.add(Count::StaleRevokes);
        }
        (Some(Command::Settle), _) => counts.add(Count::Settles),
        (_, Ok(Done::Opened { created: false, .. })) => counts.add(Count::Reopened),
        (_, Ok(Done::TtlSet { .. })) if !effects.facts.is_empty() => counts.add(Count::TtlChanged),
        (_, Ok(Done::Administered(Administered::Revoked { token, floor, .. })))
            if floor < token =>
        {
            counts.add(Count::RevokedOfMany);
        }
        (_, Err(Refusal::StaleRequest)) => counts.add(Count::Stale),
        (_, Err(Refusal::SessionExpired)) => counts.add(Count::LateOfEnded),
        (_, Err(Refusal::NotHeld)) => counts.add(Count::StaleReleases),
        (_, Err(Refusal::Deadlock { .. })) => counts.add(Count::Deadlocks),
        (_, Err(Refusal::CapacityMismatch { .. })) => counts.add(Count::Mismatches),
        (_, Err(Refusal::Frozen { .. })) => counts.add(Count::FrozenRefused),
        (_, Err(Refusal::Cancelled)) if effects.events.is_empty() => {
            counts.add(Count::CancelOvertook);
        }
        _ => {}
    }
}
