//! Events as they are printed: one line for people, or one JSON object.

use serde::Serialize;

use super::output::shown;
use super::view::{self, Note, Revision, Value};
use super::words::{self, lasting};
use crate::wire::v1::{self, Cause, EventKind};

/// An event. The JSON field names are promised; what does not apply is `null`, 0 or
/// empty.
#[derive(Debug, Serialize)]
pub struct Event {
    pub at: Option<Revision>,
    pub kind: &'static str,
    pub resources: Vec<String>,
    pub session: u64,
    pub request: u64,
    pub token: u64,
    pub mode: Option<&'static str>,
    pub slots: u32,
    pub slot: Option<u32>,
    pub phase: Option<&'static str>,
    pub floor: u64,
    pub cause: Option<&'static str>,
    /// The token that shuts the holder out, if it was revoked or frozen.
    pub by: u64,
    pub note: Option<Note>,
    #[serde(flatten)]
    pub value: Value,
    pub within_ms: u64,
}

impl From<v1::Event> for Event {
    fn from(event: v1::Event) -> Self {
        Self {
            at: event.at.map(Revision::from),
            kind: kind(event.kind()),
            session: event.session,
            request: event.request,
            token: event.token,
            mode: (event.mode() != v1::Mode::Unspecified).then(|| view::mode(event.mode())),
            slots: event.slots,
            slot: event.slot,
            phase: (event.phase() != v1::Phase::Unspecified).then(|| view::phase(event.phase())),
            floor: event.floor,
            cause: cause(event.cause()),
            by: event.by,
            value: Value::of(&event.value),
            within_ms: event.within_ms,
            resources: event.resources,
            note: event.note.map(Note::from),
        }
    }
}

const fn kind(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Unspecified => "unknown",
        EventKind::SessionOpened => "session_opened",
        EventKind::SessionEnded => "session_ended",
        EventKind::Queued => "queued",
        EventKind::Granted => "granted",
        EventKind::Activated => "activated",
        EventKind::ValueChanged => "value_changed",
        EventKind::Asked => "asked",
        EventKind::Ended => "ended",
        EventKind::LeftQueue => "left_queue",
        EventKind::Reopened => "reopened",
        EventKind::Frozen => "frozen",
        EventKind::Thawed => "thawed",
        EventKind::Resized => "resized",
    }
}

const fn cause(cause: Cause) -> Option<&'static str> {
    match cause {
        Cause::Unspecified => None,
        Cause::Released => Some("released"),
        Cause::Closed => Some("closed"),
        Cause::Expired => Some("expired"),
        Cause::Revoked => Some("revoked"),
        Cause::Frozen => Some("frozen"),
        Cause::Unconfirmed => Some("unconfirmed"),
        Cause::Cancelled => Some("cancelled"),
        Cause::TimedOut => Some("timed_out"),
    }
}

/// Why something ended, in words.
fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::Unspecified => "for a reason that this version does not know",
        Cause::Released => "its holder gave it back",
        Cause::Closed => "its owner closed the session",
        Cause::Expired => "its session was not renewed in time",
        Cause::Revoked => "an administrator revoked it",
        Cause::Frozen => "an administrator froze it",
        Cause::Unconfirmed => "it was not confirmed in time",
        Cause::Cancelled => "it was cancelled",
        Cause::TimedOut => "its time was over",
    }
}

/// The event in one line, without a line end: revision, resources, what.
pub fn line(event: &v1::Event) -> String {
    let at = words::at(event.at.map(Revision::from));
    let names = words::names(&event.resources);
    let between = if names.is_empty() { "" } else { "  " };
    format!("{at}{between}{names}  {}", happened(event))
}

fn happened(event: &v1::Event) -> String {
    let (token, session) = (event.token, format!("s{}", event.session));
    let note = event.note.clone().map(Note::from);
    let (by, reason) = words::note(note.as_ref());
    match event.kind() {
        EventKind::Unspecified => "something that this version does not know".to_owned(),
        EventKind::SessionOpened => format!("session {session} opened"),
        EventKind::SessionEnded if event.cause() == Cause::Closed => {
            format!("session {session} closed by its owner")
        }
        EventKind::SessionEnded => format!("session {session} expired: not renewed in time"),
        EventKind::Queued => format!("{session} waits ({})", asked_mode(event)),
        EventKind::Granted => format!("granted to {session} with token {token} ({})", mode(event)),
        EventKind::Activated => format!("token {token} of {session} is confirmed and active"),
        EventKind::ValueChanged => {
            let value = Value::of(&event.value).told();
            let value = value.map_or_else(|| "nothing".to_owned(), |value| shown(&value));
            format!("token {token} of {session} shows {value}")
        }
        EventKind::Asked => {
            let within = lasting(event.within_ms);
            format!("{by} asks {session} to give token {token} back within {within}{reason}")
        }
        EventKind::Ended => ended(event, &by, &reason),
        EventKind::LeftQueue => format!("{session} left the queue: {}", why(event.cause())),
        EventKind::Reopened => {
            let slot = event.slot.map(|slot| format!("slot {slot} ")).unwrap_or_default();
            format!("{slot}open again: the lock delay after token {token} is over")
        }
        EventKind::Frozen => format!("frozen by {by} with token {token}{reason}"),
        EventKind::Thawed => {
            format!("thawed by {by}: the freeze with token {token} is over{reason}")
        }
        EventKind::Resized => {
            format!("resized to {} slots by {by} with token {token}{reason}", event.slots)
        }
    }
}

fn ended(event: &v1::Event, by: &str, reason: &str) -> String {
    let (token, session) = (event.token, event.session);
    let why = match event.cause() {
        Cause::Revoked => format!("revoked by {by} with token {}{reason}", event.by),
        Cause::Frozen => format!("frozen with token {}", event.by),
        other @ (Cause::Unspecified
        | Cause::Released
        | Cause::Closed
        | Cause::Expired
        | Cause::Unconfirmed
        | Cause::Cancelled
        | Cause::TimedOut) => why(other).to_owned(),
    };
    let slot = event.slot.map(|slot| format!(" (slot {slot})")).unwrap_or_default();
    let delay = match event.within_ms {
        0 => String::new(),
        delay => format!("; closed for {}", lasting(delay)),
    };
    format!("token {token} of s{session}{slot} ended: {why}{delay}")
}

/// How a waiter wants to share.
fn asked_mode(event: &v1::Event) -> String {
    if event.slots > 0 {
        return format!("a slot of {}", event.slots);
    }
    view::mode(event.mode()).to_owned()
}

/// How a grant shares.
fn mode(event: &v1::Event) -> String {
    let mode = match event.slot {
        Some(slot) => format!("slot {slot} of {}", event.slots),
        None => view::mode(event.mode()).to_owned(),
    };
    match event.phase() {
        v1::Phase::Unspecified | v1::Phase::Active => mode,
        v1::Phase::Barrier => format!("{mode}, barrier"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: EventKind) -> v1::Event {
        v1::Event {
            at: Some(v1::Revision { index: 77, ordinal: 1 }),
            kind: kind.into(),
            resources: vec!["job/7".to_owned()],
            session: 12,
            token: 41,
            ..v1::Event::default()
        }
    }

    fn note() -> Option<v1::Note> {
        Some(v1::Note { actor: "alice".to_owned(), reason: "it\u{1b} hangs".to_owned() })
    }

    #[test]
    fn a_grant_and_its_end_are_told_with_token_mode_and_cause() {
        let slot = v1::Event {
            mode: v1::Mode::Slots.into(),
            slots: 3,
            slot: Some(1),
            phase: v1::Phase::Barrier.into(),
            ..event(EventKind::Granted)
        };
        assert_eq!(line(&slot), "77.1  job/7  granted to s12 with token 41 (slot 1 of 3, barrier)");
        let revoked = v1::Event {
            cause: Cause::Revoked.into(),
            by: 42,
            note: note(),
            within_ms: 5_000,
            ..event(EventKind::Ended)
        };
        assert_eq!(
            line(&revoked),
            "77.1  job/7  token 41 of s12 ended: revoked by alice with token 42: it\\u{1b} hangs; \
             closed for 5 s"
        );
        let expired = v1::Event { cause: Cause::Expired.into(), ..event(EventKind::Ended) };
        let told = "77.1  job/7  token 41 of s12 ended: its session was not renewed in time";
        assert_eq!(line(&expired), told);
    }

    #[test]
    fn every_kind_has_a_word_of_its_own_and_a_line_without_a_line_end() {
        let kinds: Vec<EventKind> =
            (0..14).map(|kind| EventKind::try_from(kind).expect("one of the proto")).collect();
        assert!(EventKind::try_from(14).is_err(), "a new kind needs its words");
        let mut words: Vec<_> = kinds.iter().map(|&of| kind(of)).collect();
        words.dedup();
        assert_eq!(words.len(), 14);
        for of in kinds {
            let told = line(&v1::Event { note: note(), ..event(of) });
            assert!(
                told.starts_with("77.1  job/7  ") && !told.contains(['\n', '\u{1b}']),
                "{told}"
            );
        }
    }

    #[test]
    fn a_session_event_has_no_resource_and_the_json_says_null() {
        let opened = v1::Event { resources: vec![], token: 0, ..event(EventKind::SessionOpened) };
        assert_eq!(line(&opened), "77.1  session s12 opened");
        let json = serde_json::to_value(Event::from(opened)).expect("it has no odd keys");
        assert_eq!(json["kind"], "session_opened");
        assert_eq!((&json["cause"], &json["mode"]), (&serde_json::Value::Null, &json["note"]));
    }
}
