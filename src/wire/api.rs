//! The public API's messages: checked once, here, on the way in.

use super::v1;
use crate::locks::{
    ANSWERED_MAX, Claim, GrantRow, Header, Invalid, LABELS_MAX, Labels, LockTable, Millis, Mode,
    OwnerId, RequestId, ResourceName, ResourceView, Revision, SessionId, Token, WAIT_MAX, Wait,
};

/// How many waiters a [`v1::ResourceView`] lists.
pub const WAITERS_LISTED_MAX: usize = 100;
/// How many it lists where it is one of [`LIST_MAX`]: nothing is applied meanwhile.
pub const WAITERS_IN_LISTS_MAX: usize = 10;
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
/// `resource`, `mode` or `wait_ms`.
pub fn claim_in(request: &v1::AcquireRequest) -> Result<(Claim, Wait), Invalid> {
    let mode = match v1::Mode::try_from(request.mode) {
        Ok(v1::Mode::Unspecified | v1::Mode::Exclusive) => Mode::Exclusive,
        Err(_) => return Err(Invalid { field: "mode", bound: "one that this version knows" }),
    };
    if request.wait_ms > WAIT_MAX.0 {
        return Err(Invalid { field: "wait_ms", bound: "0 to 86400000" });
    }
    let wait = if request.wait_ms == 0 { Wait::Try } else { Wait::UpTo(Millis(request.wait_ms)) };
    Ok((Claim { names: vec![ResourceName::new(&request.resource)?], mode }, wait))
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

/// A revision.
pub const fn revision_out(at: Revision) -> v1::Revision {
    v1::Revision { index: at.index, ordinal: at.ordinal }
}

const fn mode_out(mode: Mode) -> i32 {
    match mode {
        Mode::Exclusive => v1::Mode::Exclusive as i32,
    }
}

/// A grant on one of its resources, with the labels of its holder.
pub fn grant_out(table: &LockTable, grant: &GrantRow, resource: &ResourceName) -> v1::Grant {
    v1::Grant {
        resource: resource.to_string(),
        token: grant.token.get(),
        floor: grant.floor.get(),
        mode: mode_out(grant.mode),
        phase: v1::Phase::Active as i32,
        session: grant.wait.session.0,
        request: grant.wait.request.get(),
        granted_at: Some(revision_out(grant.granted_at)),
        labels: table.labels(grant.wait.session).cloned().unwrap_or_default(),
    }
}

/// A resource with its holders and first waiters, as many as `listed`.
pub fn resource_out(table: &LockTable, view: &ResourceView<'_>, listed: usize) -> v1::ResourceView {
    let waiter = |wait: &crate::locks::WaitRow| v1::Waiter {
        session: wait.wait.session.0,
        request: wait.wait.request.get(),
        mode: mode_out(wait.mode),
        queued_at: Some(revision_out(wait.queued_at)),
        labels: table.labels(wait.wait.session).cloned().unwrap_or_default(),
    };
    v1::ResourceView {
        resource: view.name.to_string(),
        holders: view.holders().map(|grant| grant_out(table, grant, view.name)).collect(),
        waiters: view.waiters().take(listed).map(waiter).collect(),
        waiting: view.waiting() as u64,
    }
}

/// Checks a token.
///
/// # Errors
/// `token` outside 1..=2^53 - 1.
pub fn token_in(token: u64) -> Result<Token, Invalid> {
    Token::new(token)
}
