//! What happened, as the public API tells it.

use super::v1::{self, Cause, EventKind};
use super::views::{mode_out, note_out, phase_out, revision_out};
use crate::locks::{
    EndCause, Event, GrantEndCause, Granted, Happened, LeaveCause, Millis, Note, ResourceName,
    Token, WaitId,
};

/// An event.
pub fn event_out(event: &Event) -> v1::Event {
    let blank = v1::Event { at: Some(revision_out(event.at)), ..v1::Event::default() };
    match &event.what {
        Happened::Opened { session } => {
            v1::Event { kind: EventKind::SessionOpened.into(), session: session.0, ..blank }
        }
        Happened::Ended { session, cause } => v1::Event {
            kind: EventKind::SessionEnded.into(),
            session: session.0,
            cause: of_session(*cause).into(),
            ..blank
        },
        Happened::Frozen { name, token, note } => {
            by_hand(blank, EventKind::Frozen, name, *token, note)
        }
        Happened::Thawed { name, token, note } => {
            by_hand(blank, EventKind::Thawed, name, *token, note)
        }
        Happened::Resized { name, slots, token, note } => {
            v1::Event { slots: *slots, ..by_hand(blank, EventKind::Resized, name, *token, note) }
        }
        Happened::Reopened { names, slot, token } => v1::Event {
            kind: EventKind::Reopened.into(),
            resources: names_out(names),
            slot: *slot,
            token: token.get(),
            ..blank
        },
        Happened::Queued { wait, names, mode } => v1::Event {
            mode: mode_out(*mode),
            slots: mode.slots().unwrap_or(0),
            ..of_wait(blank, EventKind::Queued, *wait, names)
        },
        Happened::LeftQueue { wait, names, cause } => left(blank, *wait, names, cause),
        Happened::Granted { wait, names, grant } => {
            granted(of_wait(blank, EventKind::Granted, *wait, names), grant)
        }
        Happened::Activated { wait, names, token } => v1::Event {
            phase: v1::Phase::Active.into(),
            token: token.get(),
            ..of_wait(blank, EventKind::Activated, *wait, names)
        },
        Happened::ValueChanged { wait, names, token, value } => v1::Event {
            token: token.get(),
            value: value.as_bytes().to_vec().into(),
            ..of_wait(blank, EventKind::ValueChanged, *wait, names)
        },
        Happened::Asked { wait, names, token, within, note } => v1::Event {
            token: token.get(),
            within_ms: within.0,
            note: Some(note_out(note)),
            ..of_wait(blank, EventKind::Asked, *wait, names)
        },
        Happened::GrantEnded { wait, names, slot, token, cause, delay } => {
            let event = of_wait(blank, EventKind::Ended, *wait, names);
            ended(v1::Event { slot: *slot, token: token.get(), ..event }, cause, *delay)
        }
    }
}

fn of_wait(blank: v1::Event, kind: EventKind, wait: WaitId, names: &[ResourceName]) -> v1::Event {
    v1::Event {
        kind: kind.into(),
        resources: names_out(names),
        session: wait.session.0,
        request: wait.request.get(),
        ..blank
    }
}

fn by_hand(
    blank: v1::Event,
    kind: EventKind,
    name: &ResourceName,
    token: Token,
    note: &Note,
) -> v1::Event {
    v1::Event {
        kind: kind.into(),
        resources: vec![name.to_string()],
        token: token.get(),
        note: Some(note_out(note)),
        ..blank
    }
}

fn granted(event: v1::Event, grant: &Granted) -> v1::Event {
    v1::Event {
        token: grant.token.get(),
        floor: grant.floor.get(),
        mode: mode_out(grant.mode),
        slots: grant.mode.slots().unwrap_or(0),
        slot: grant.slot,
        phase: phase_out(grant.phase),
        ..event
    }
}

fn ended(event: v1::Event, why: &GrantEndCause, delay: Millis) -> v1::Event {
    let event = v1::Event { within_ms: delay.0, ..event };
    match why {
        GrantEndCause::Released => v1::Event { cause: Cause::Released.into(), ..event },
        GrantEndCause::Session(cause) => v1::Event { cause: of_session(*cause).into(), ..event },
        GrantEndCause::Unconfirmed => v1::Event { cause: Cause::Unconfirmed.into(), ..event },
        GrantEndCause::Frozen { by } => {
            v1::Event { cause: Cause::Frozen.into(), by: by.get(), ..event }
        }
        GrantEndCause::Revoked { by, note } => {
            let note = Some(note_out(note));
            v1::Event { cause: Cause::Revoked.into(), by: by.get(), note, ..event }
        }
    }
}

fn left(blank: v1::Event, wait: WaitId, names: &[ResourceName], why: &LeaveCause) -> v1::Event {
    let event = of_wait(blank, EventKind::LeftQueue, wait, names);
    match why {
        LeaveCause::Cancelled => v1::Event { cause: Cause::Cancelled.into(), ..event },
        LeaveCause::TimedOut => v1::Event { cause: Cause::TimedOut.into(), ..event },
        LeaveCause::Session(cause) => v1::Event { cause: of_session(*cause).into(), ..event },
        LeaveCause::Frozen { by, .. } => {
            v1::Event { cause: Cause::Frozen.into(), by: by.get(), ..event }
        }
    }
}

const fn of_session(cause: EndCause) -> Cause {
    match cause {
        EndCause::Closed => Cause::Closed,
        EndCause::Expired => Cause::Expired,
    }
}

fn names_out(names: &[ResourceName]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
