//! Fields that several stored messages share.

use bytes::Bytes;

use super::log::Unreadable;
use super::storage as stored;
use crate::locks::{
    Handoff, Header, Invalid, Limits, Millis, Mode, Note, OwnerId, RequestId, ResourceName,
    SessionId, Terms, Token, Value, Wait, WaitId,
};

/// Lock delay, barrier (0: no strict handoff) and value.
pub(super) fn terms_out(terms: &Terms) -> (u64, u64, Bytes) {
    let barrier = match terms.handoff {
        Handoff::Plain => 0,
        Handoff::Strict { barrier } => barrier.0,
    };
    (terms.lock_delay.0, barrier, Bytes::copy_from_slice(terms.value.as_bytes()))
}

pub(super) fn terms_in(lock_delay: u64, barrier: u64, value: &[u8]) -> Result<Terms, Invalid> {
    let handoff = match barrier {
        0 => Handoff::Plain,
        barrier => Handoff::Strict { barrier: Millis(barrier) },
    };
    Ok(Terms { lock_delay: Millis(lock_delay), handoff, value: Value::new(value)? })
}

pub(super) fn note_out(note: &Note) -> stored::Note {
    stored::Note { actor: note.actor.clone(), reason: note.reason.clone() }
}

pub(super) fn note_in(note: Option<stored::Note>) -> Note {
    let note = note.unwrap_or_default();
    Note { actor: note.actor, reason: note.reason }
}

pub(super) fn tokens_out(tokens: &[Token]) -> stored::Tokens {
    stored::Tokens { tokens: tokens.iter().map(|token| token.get()).collect() }
}

pub(super) fn tokens_in(tokens: &stored::Tokens) -> Result<Vec<Token>, Invalid> {
    tokens.tokens.iter().map(|token| Token::new(*token)).collect()
}

pub(super) fn owner_out(owner: OwnerId) -> Bytes {
    Bytes::copy_from_slice(owner.as_bytes())
}

pub(super) fn header_out(header: &Header) -> stored::Header {
    stored::Header {
        owner_id: owner_out(header.owner),
        session: header.session.0,
        request_id: header.id.get(),
        oldest_outstanding: header.oldest_outstanding.get(),
        answered: header.answered.iter().map(|id| id.get()).collect(),
    }
}

pub(super) fn header_in(header: Option<stored::Header>) -> Result<Header, Unreadable> {
    let header = header.ok_or(Unreadable::Unknown { what: "request header" })?;
    Ok(Header {
        owner: OwnerId::from_slice(&header.owner_id)?,
        session: SessionId(header.session),
        id: RequestId::new(header.request_id)?,
        oldest_outstanding: RequestId::new(header.oldest_outstanding)?,
        answered: header.answered.into_iter().map(RequestId::new).collect::<Result<_, _>>()?,
    })
}

pub(super) fn wait_id_in(wait: &stored::WaitId) -> Result<WaitId, Invalid> {
    Ok(WaitId { session: SessionId(wait.session), request: RequestId::new(wait.request)? })
}

/// 0 stands for a try.
pub(super) fn wait_out(wait: Wait) -> u64 {
    match wait {
        Wait::Try => 0,
        Wait::UpTo(deadline) => deadline.0,
    }
}

pub(super) fn wait_in(wait_ms: u64) -> Wait {
    if wait_ms == 0 { Wait::Try } else { Wait::UpTo(Millis(wait_ms)) }
}

pub(super) fn names_out(names: &[ResourceName]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

pub(super) fn names_in(names: &[String]) -> Result<Vec<ResourceName>, Invalid> {
    names.iter().map(|name| ResourceName::new(name)).collect()
}

pub(super) fn mode_in(mode: u32) -> Result<Mode, Unreadable> {
    Mode::from_code(mode).ok_or(Unreadable::Unknown { what: "mode" })
}

pub(super) fn limits_out(limits: &Limits) -> stored::Limits {
    stored::Limits {
        ttl_min_ms: limits.ttl_min.0,
        ttl_max_ms: limits.ttl_max.0,
        sessions_max: limits.sessions_max,
        places_per_session_max: limits.places_per_session_max,
        waiters_per_resource_max: limits.waiters_per_resource_max,
    }
}

pub(super) fn limits_in(limits: stored::Limits) -> Limits {
    Limits {
        ttl_min: Millis(limits.ttl_min_ms),
        ttl_max: Millis(limits.ttl_max_ms),
        sessions_max: limits.sessions_max,
        places_per_session_max: limits.places_per_session_max,
        waiters_per_resource_max: limits.waiters_per_resource_max,
    }
}
