//! Rows as they are stored, and back. Keys sort as [`RowKey`] does: a kind, then
//! big-endian numbers.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;

use super::fields::{
    limits_in, limits_out, mode_in, names_in, names_out, note_in, note_out, terms_in, terms_out,
};
use super::log::Unreadable;
use super::outcome::{outcome_in, outcome_out};
use super::storage::{self as stored, row::Row as Kind};
use crate::locks::{
    Asked, ClosureRow, ClusterId, FrozenRow, GrantRow, Invalid, MetaRow, Millis, OutcomeRow,
    OwnerId, Phase, Position, RequestId, ResizedRow, ResourceName, Revision, Row, RowKey,
    SessionId, SessionRow, Term, Token, Value, WaitId, WaitRow, WindowRow,
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
        RowKey::Closure(token) => (7, Some(token.get()), None),
        RowKey::Frozen(token) => (8, Some(token.get()), None),
        RowKey::Resized(token) => (9, Some(token.get()), None),
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
        Row::Grant(row) => Kind::Grant(grant_out(row)),
        Row::Wait(row) => Kind::Wait(wait_out(row)),
        Row::Closure(row) => Kind::Closure(stored::ClosureRow {
            token: row.token.get(),
            names: names_out(&row.names),
            mode: row.mode.code(),
            slot: row.slot,
            delay_ms: row.delay.0,
            index: row.since.index,
            ordinal: row.since.ordinal,
        }),
        Row::Frozen(row) => Kind::Frozen(stored::FrozenRow {
            token: row.token.get(),
            name: row.name.to_string(),
            note: Some(note_out(&row.note)),
            index: row.since.index,
            ordinal: row.since.ordinal,
        }),
        Row::Resized(row) => Kind::Resized(stored::ResizedRow {
            token: row.token.get(),
            name: row.name.to_string(),
            slots: row.slots,
            note: Some(note_out(&row.note)),
            index: row.since.index,
            ordinal: row.since.ordinal,
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
        Kind::Grant(row) => Row::Grant(grant_in(row)?),
        Kind::Wait(row) => Row::Wait(wait_in(&row)?),
        Kind::Closure(row) => Row::Closure(ClosureRow {
            token: Token::new(row.token)?,
            names: names_in(&row.names)?,
            mode: mode_in(row.mode)?,
            slot: row.slot,
            delay: Millis(row.delay_ms),
            since: Revision { index: row.index, ordinal: row.ordinal },
        }),
        Kind::Frozen(row) => Row::Frozen(FrozenRow {
            token: Token::new(row.token)?,
            name: ResourceName::new(&row.name)?,
            note: note_in(row.note),
            since: Revision { index: row.index, ordinal: row.ordinal },
        }),
        Kind::Resized(row) => Row::Resized(ResizedRow {
            token: Token::new(row.token)?,
            name: ResourceName::new(&row.name)?,
            slots: row.slots,
            note: note_in(row.note),
            since: Revision { index: row.index, ordinal: row.ordinal },
        }),
    })
}

fn grant_out(row: &GrantRow) -> stored::GrantRow {
    let asked = row.asked.as_ref().map(|asked| stored::Asked {
        index: asked.at.index,
        ordinal: asked.at.ordinal,
        within_ms: asked.within.0,
        note: Some(note_out(&asked.note)),
    });
    stored::GrantRow {
        token: row.token.get(),
        floor: row.floor.get(),
        session: row.wait.session.0,
        request: row.wait.request.get(),
        names: names_out(&row.names),
        mode: row.mode.code(),
        index: row.granted_at.index,
        ordinal: row.granted_at.ordinal,
        slot: row.slot,
        barrier_ms: barrier_out(row.phase),
        lock_delay_ms: row.lock_delay.0,
        value: Bytes::copy_from_slice(row.value.as_bytes()),
        asked,
    }
}

fn grant_in(row: stored::GrantRow) -> Result<GrantRow, Unreadable> {
    let asked = row.asked.map(|asked| Asked {
        at: Revision { index: asked.index, ordinal: asked.ordinal },
        within: Millis(asked.within_ms),
        note: note_in(asked.note),
    });
    Ok(GrantRow {
        token: Token::new(row.token)?,
        floor: Token::new(row.floor)?,
        wait: wait_id(row.session, row.request)?,
        names: names_in(&row.names)?,
        mode: mode_in(row.mode)?,
        granted_at: Revision { index: row.index, ordinal: row.ordinal },
        slot: row.slot,
        phase: phase_in(row.barrier_ms),
        lock_delay: Millis(row.lock_delay_ms),
        value: Value::new(&row.value)?,
        asked,
    })
}

fn wait_out(row: &WaitRow) -> stored::WaitRow {
    let (lock_delay_ms, barrier_ms, value) = terms_out(&row.terms);
    stored::WaitRow {
        session: row.wait.session.0,
        request: row.wait.request.get(),
        fingerprint: row.fingerprint,
        names: names_out(&row.names),
        mode: row.mode.code(),
        wait_ms: row.deadline.0,
        index: row.queued_at.index,
        ordinal: row.queued_at.ordinal,
        lock_delay_ms,
        barrier_ms,
        value,
    }
}

fn wait_in(row: &stored::WaitRow) -> Result<WaitRow, Unreadable> {
    Ok(WaitRow {
        wait: wait_id(row.session, row.request)?,
        fingerprint: row.fingerprint,
        names: names_in(&row.names)?,
        mode: mode_in(row.mode)?,
        deadline: Millis(row.wait_ms),
        queued_at: Revision { index: row.index, ordinal: row.ordinal },
        terms: terms_in(row.lock_delay_ms, row.barrier_ms, &row.value)?,
    })
}

/// 0 stands for an active grant.
pub(super) const fn barrier_out(phase: Phase) -> u64 {
    match phase {
        Phase::Active => 0,
        Phase::Barrier { deadline } => deadline.0,
    }
}

pub(super) const fn phase_in(barrier_ms: u64) -> Phase {
    match barrier_ms {
        0 => Phase::Active,
        deadline => Phase::Barrier { deadline: Millis(deadline) },
    }
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
