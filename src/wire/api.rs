//! The public API's messages: checked once, here, on the way in.

use super::v1;
use crate::locks::{
    ANSWERED_MAX, Claim, Handoff, Header, Invalid, LABELS_MAX, Labels, Millis, Mode,
    NAMES_PER_CLAIM_MAX, Note, OwnerId, RequestId, ResourceName, SLOTS_MAX, SessionId, Terms,
    Token, Value, WAIT_MAX, Wait,
};

/// Longest list that one call answers.
pub const LIST_MAX: usize = 1_000;
const LIST_DEFAULT: usize = 100;

/// Checks a request header.
///
/// # Errors
/// [`Invalid`] names the field and its bound.
pub fn header_in(header: Option<v1::RequestHeader>) -> Result<Header, Invalid> {
    let header = header.ok_or(Invalid { field: "header", bound: "set" })?;
    let id = RequestId::new(header.request_id)?;
    let bound = "1 to request_id";
    let oldest = Invalid { field: "oldest_outstanding", bound };
    let oldest_outstanding = RequestId::new(header.oldest_outstanding)
        .ok()
        .filter(|oldest| *oldest <= id)
        .ok_or(oldest)?;
    let bound = "at most 64 ids above oldest_outstanding";
    let too_many = Invalid { field: "answered", bound };
    if header.answered.len() > ANSWERED_MAX {
        return Err(too_many);
    }
    let above = |id: &u64| {
        RequestId::new(*id)
            .ok()
            .filter(|id| *id > oldest_outstanding)
            .ok_or_else(|| too_many.clone())
    };
    Ok(Header {
        owner: OwnerId::from_slice(&header.owner_id)?,
        session: session_in(header.session)?,
        id,
        oldest_outstanding,
        answered: header.answered.iter().map(above).collect::<Result<_, _>>()?,
    })
}

/// Checks a session id.
///
/// # Errors
/// `session` of 0.
pub const fn session_in(session: u64) -> Result<SessionId, Invalid> {
    if session == 0 {
        return Err(Invalid { field: "session", bound: "1 or more" });
    }
    Ok(SessionId(session))
}

/// Checks labels: number, key and value lengths.
///
/// # Errors
/// `labels`, with the bound that is not kept.
pub fn labels_in(labels: Labels) -> Result<Labels, Invalid> {
    let field = "labels";
    if labels.len() > LABELS_MAX {
        return Err(Invalid { field, bound: "at most 16" });
    }
    if labels.keys().any(|key| key.is_empty() || key.len() > 64) {
        return Err(Invalid { field, bound: "keys of 1 to 64 bytes" });
    }
    if labels.values().any(|value| value.len() > 256) {
        return Err(Invalid { field, bound: "values of at most 256 bytes" });
    }
    Ok(labels)
}

/// Checks what an acquire asks for.
///
/// # Errors
/// `resource`, `more`, `mode`, `slots`, `wait_ms`, `lock_delay_ms`, `barrier_ms` or
/// `value`.
pub fn claim_in(request: &v1::AcquireRequest) -> Result<(Claim, Wait), Invalid> {
    let mode = match v1::Mode::try_from(request.mode) {
        Ok(v1::Mode::Unspecified | v1::Mode::Exclusive) => Mode::Exclusive,
        Ok(v1::Mode::Shared) => Mode::Shared,
        Ok(v1::Mode::Slots) => Mode::Slots { of: request.slots },
        Err(_) => return Err(Invalid { field: "mode", bound: "one that this version knows" }),
    };
    if request.slots != 0 && mode.slots().is_none() {
        return Err(Invalid { field: "slots", bound: "0 unless mode is MODE_SLOTS" });
    }
    if request.wait_ms > WAIT_MAX.0 {
        return Err(Invalid { field: "wait_ms", bound: "0 to 86400000" });
    }
    let wait = if request.wait_ms == 0 { Wait::Try } else { Wait::UpTo(Millis(request.wait_ms)) };
    let handoff = match request.barrier_ms {
        0 => Handoff::Plain,
        barrier => Handoff::Strict { barrier: Millis(barrier) },
    };
    let lock_delay = Millis(request.lock_delay_ms);
    let terms = Terms { lock_delay, handoff, value: Value::new(&request.value)? };
    if request.more.len() >= NAMES_PER_CLAIM_MAX {
        return Err(Invalid { field: "more", bound: "at most 63 names" });
    }
    let names = std::iter::once(&request.resource).chain(&request.more);
    let names = names.map(|name| ResourceName::new(name)).collect::<Result<_, _>>()?;
    Ok((Claim::new(names, mode, terms)?, wait))
}

/// Checks who does something by hand and why.
///
/// # Errors
/// `actor` or `reason`.
pub fn note_in(note: Option<v1::Note>) -> Result<Note, Invalid> {
    let note = note.unwrap_or_default();
    Note::new(&note.actor, &note.reason)
}

/// Checks a number of slots.
///
/// # Errors
/// `slots` outside 1 to 65,536.
pub const fn slots_in(slots: u32) -> Result<u32, Invalid> {
    match slots {
        1..=SLOTS_MAX => Ok(slots),
        _ => Err(Invalid { field: "slots", bound: "1 to 65536" }),
    }
}

/// Checks within which time a grant should be given back.
///
/// # Errors
/// `within_ms` outside 1 ms to a day.
pub const fn within_in(within_ms: u64) -> Result<Millis, Invalid> {
    match within_ms {
        1..=86_400_000 => Ok(Millis(within_ms)),
        _ => Err(Invalid { field: "within_ms", bound: "1 to 86400000" }),
    }
}

/// The length of a list: 0 means 100.
///
/// # Errors
/// `limit` above 1,000.
pub fn limit_in(limit: u32) -> Result<usize, Invalid> {
    match limit as usize {
        0 => Ok(LIST_DEFAULT),
        limit if limit <= LIST_MAX => Ok(limit),
        _ => Err(Invalid { field: "limit", bound: "0 to 1000" }),
    }
}

/// Checks a token.
///
/// # Errors
/// `token` outside 1..=2^53 - 1.
pub fn token_in(token: u64) -> Result<Token, Invalid> {
    Token::new(token)
}
