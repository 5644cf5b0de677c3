//! Rows as they are stored, and back. Keys sort as [`RowKey`] does: a kind, then
//! big-endian numbers.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::log::{Unreadable, limits_in, limits_out, mode_in, mode_out, names_in, names_out};
use super::storage::{self as stored, row::Row as Kind};
use crate::locks::{
    ClusterId, Done, GrantRow, Invalid, Limit, MetaRow, Millis, Outcome, OutcomeRow, OwnerId,
    Position, Refusal, RequestId, ResourceName, Revision, Row, RowKey, SessionId, SessionRow, Term,
    Token, WaitId, WaitRow, WindowRow,
};

/// A row's key as stored.
pub fn encode_key(key: RowKey) -> Bytes {
    let mut bytes = BytesMut::with_capacity(17);
    let (kind, first, second) = match key {
        RowKey::Meta => (1, None, None),
        RowKey::Session(id) => (2, Some(id.0), None),
        RowKey::Window(id) => (3, Some(id.0), None),
        RowKey::Outcome(id, request) => (4, Some(id.0), Some(request.get())),
        RowKey::Grant(token) => (5, Some(token.get()), None),
        RowKey::Wait(wait) => (6, Some(wait.session.0), Some(wait.request.get())),
    };
    bytes.put_u8(kind);
    for number in first.into_iter().chain(second) {
        bytes.put_u64(number);
    }
    bytes.freeze()
}

/// A row's content as stored.
pub fn encode_row(row: &Row) -> Bytes {
    let kind = match row {
        Row::Meta(row) => Kind::Meta(meta_out(row)),
        Row::Session(row) => Kind::Session(stored::SessionRow {
            session: row.session.0,
            owner_id: Bytes::copy_from_slice(row.owner.as_bytes()),
            ttl_ms: row.ttl.0,
            seen_term: row.seen.term.0,
            seen_index: row.seen.index,
            labels: row.labels.clone(),
        }),
        Row::Window(row) => Kind::Window(stored::WindowRow {
            session: row.session.0,
            floor: row.floor.get(),
            finished: row.finished.iter().flat_map(|(f, l)| [f.get(), l.get()]).collect(),
            changed_index: row.changed_at.index,
            changed_ordinal: row.changed_at.ordinal,
        }),
        Row::Outcome(row) => Kind::Outcome(stored::OutcomeRow {
            session: row.session.0,
            request: row.request.get(),
            fingerprint: row.fingerprint.unwrap_or(0),
            outcome: Some(outcome_out(&row.outcome)),
        }),
        Row::Grant(row) => Kind::Grant(stored::GrantRow {
            token: row.token.get(),
            floor: row.floor.get(),
            session: row.wait.session.0,
            request: row.wait.request.get(),
            names: names_out(&row.names),
            mode: mode_out(row.mode),
            index: row.granted_at.index,
            ordinal: row.granted_at.ordinal,
        }),
        Row::Wait(row) => Kind::Wait(stored::WaitRow {
            session: row.wait.session.0,
            request: row.wait.request.get(),
            fingerprint: row.fingerprint,
            names: names_out(&row.names),
            mode: mode_out(row.mode),
            wait_ms: row.deadline.0,
            index: row.queued_at.index,
            ordinal: row.queued_at.ordinal,
        }),
    };
    stored::Row { row: Some(kind) }.encode_to_vec().into()
}

/// A row from its stored content.
///
/// # Errors
/// [`Unreadable`]: the row is damaged or was written by a newer version.
pub fn decode_row(bytes: Bytes) -> Result<Row, Unreadable> {
    let what = "row";
    let message =
        stored::Row::decode(bytes).map_err(|source| Unreadable::Malformed { what, source })?;
    Ok(match message.row.ok_or(Unreadable::Unknown { what })? {
        Kind::Meta(row) => Row::Meta(meta_in(&row)?),
        Kind::Session(row) => Row::Session(SessionRow {
            session: SessionId(row.session),
            owner: OwnerId::from_slice(&row.owner_id)?,
            ttl: Millis(row.ttl_ms),
            seen: Position { term: Term(row.seen_term), index: row.seen_index },
            labels: row.labels,
        }),
        Kind::Window(row) => Row::Window(window_in(&row)?),
        Kind::Outcome(row) => Row::Outcome(OutcomeRow {
            session: SessionId(row.session),
            request: RequestId::new(row.request)?,
            fingerprint: (row.fingerprint != 0).then_some(row.fingerprint),
            outcome: outcome_in(&row.outcome.unwrap_or_default())?,
        }),
        Kind::Grant(row) => Row::Grant(GrantRow {
            token: Token::new(row.token)?,
            floor: Token::new(row.floor)?,
            wait: wait_id(row.session, row.request)?,
            names: names_in(&row.names)?,
            mode: mode_in(row.mode)?,
            granted_at: Revision { index: row.index, ordinal: row.ordinal },
        }),
        Kind::Wait(row) => Row::Wait(WaitRow {
            wait: wait_id(row.session, row.request)?,
            fingerprint: row.fingerprint,
            names: names_in(&row.names)?,
            mode: mode_in(row.mode)?,
            deadline: Millis(row.wait_ms),
            queued_at: Revision { index: row.index, ordinal: row.ordinal },
        }),
    })
}

fn meta_out(row: &MetaRow) -> stored::MetaRow {
    let cluster = row.cluster.as_ref();
    stored::MetaRow {
        cluster_id: cluster.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(id.as_bytes())),
        index: row.position.index,
        term: row.position.term.0,
        token: row.token,
        limits: Some(limits_out(&row.limits)),
    }
}

fn meta_in(row: &stored::MetaRow) -> Result<MetaRow, Unreadable> {
    let empty = row.cluster_id.is_empty();
    Ok(MetaRow {
        cluster: if empty { None } else { Some(ClusterId::from_slice(&row.cluster_id)?) },
        position: Position { term: Term(row.term), index: row.index },
        token: row.token,
        limits: limits_in(row.limits.unwrap_or_default()),
    })
}

fn window_in(row: &stored::WindowRow) -> Result<WindowRow, Unreadable> {
    let (pairs, rest) = row.finished.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Unreadable::Unknown { what: "list of ranges" });
    }
    let range = |[first, last]: &[u64; 2]| Ok((RequestId::new(*first)?, RequestId::new(*last)?));
    Ok(WindowRow {
        session: SessionId(row.session),
        floor: RequestId::new(row.floor)?,
        finished: pairs.iter().map(range).collect::<Result<_, Invalid>>()?,
        changed_at: Revision { index: row.changed_index, ordinal: row.changed_ordinal },
    })
}

fn wait_id(session: u64, request: u64) -> Result<WaitId, Invalid> {
    Ok(WaitId { session: SessionId(session), request: RequestId::new(request)? })
}

/// The kinds are those of the state hash (`locks::hash`): 1 to 99 done, 101 up
/// refused.
fn outcome_out(outcome: &Outcome) -> stored::Outcome {
    let kind = |kind| stored::Outcome { kind, ..stored::Outcome::default() };
    let token = |n, token: Token| stored::Outcome { token: token.get(), ..kind(n) };
    let number = |n, number| stored::Outcome { number, ..kind(n) };
    let pair = |n, number, second| stored::Outcome { number, second, ..kind(n) };
    match outcome {
        Ok(Done::Nothing) => kind(1),
        Ok(Done::Opened { session, ttl, created }) => {
            let index = u64::from(*created);
            stored::Outcome { index, ..pair(2, session.0, ttl.0) }
        }
        Ok(Done::Closed) => kind(3),
        Ok(Done::TtlSet { ttl }) => number(4, ttl.0),
        Ok(Done::Granted { token: t }) => token(5, *t),
        Ok(Done::Queued { ahead }) => number(6, *ahead),
        Ok(Done::Released { at }) => {
            stored::Outcome { index: at.index, ordinal: at.ordinal, ..kind(7) }
        }
        Ok(Done::CancelledTarget) => kind(8),
        Err(Refusal::SessionExpired) => kind(101),
        Err(Refusal::SessionUnknown) => kind(102),
        Err(Refusal::NotBootstrapped) => kind(103),
        Err(Refusal::StaleRequest) => kind(104),
        Err(Refusal::WindowFull) => kind(105),
        Err(Refusal::RequestChanged) => kind(106),
        Err(Refusal::Busy { holder, waiting }) => {
            let token = holder.map_or(0, Token::get);
            stored::Outcome { token, ..number(107, *waiting) }
        }
        Err(Refusal::AlreadyHeld { resource, token: t, mode }) => stored::Outcome {
            name: resource.to_string(),
            number: u64::from(mode_out(*mode)),
            ..token(108, *t)
        },
        Err(Refusal::AlreadyWaiting { resource, request }) => {
            stored::Outcome { name: resource.to_string(), ..number(109, request.get()) }
        }
        Err(Refusal::GrantEnded { token: t }) => token(110, *t),
        Err(Refusal::Cancelled) => kind(111),
        Err(Refusal::WaitTimeout) => kind(112),
        Err(Refusal::NotHeld) => kind(113),
        Err(Refusal::QueueFull { max }) => number(114, *max),
        Err(Refusal::LimitReached { limit, max }) => pair(115, limit_out(*limit), *max),
        Err(Refusal::TtlOutOfBounds { min, max }) => pair(116, min.0, max.0),
    }
}

fn outcome_in(outcome: &stored::Outcome) -> Result<Outcome, Unreadable> {
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
        _ => return Err(Unreadable::Unknown { what: "outcome" }),
    })
}

const fn limit_out(limit: Limit) -> u64 {
    match limit {
        Limit::Sessions => 1,
        Limit::PlacesPerSession => 2,
        Limit::Tokens => 3,
    }
}

const fn limit_in(limit: u64) -> Result<Limit, Unreadable> {
    match limit {
        1 => Ok(Limit::Sessions),
        2 => Ok(Limit::PlacesPerSession),
        3 => Ok(Limit::Tokens),
        _ => Err(Unreadable::Unknown { what: "limit" }),
    }
}
