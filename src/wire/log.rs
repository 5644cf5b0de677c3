//! Commands as the log stores them, and back. Numbers and fields are frozen: see
//! `proto/ringfence/storage/v1`.

use bytes::Bytes;
use prost::Message;
use thiserror::Error;

use super::fields::{
    header_in, header_out, limits_in, limits_out, mode_in, names_in, names_out, note_in, note_out,
    owner_out, terms_in, terms_out, tokens_in, tokens_out, wait_id_in, wait_in, wait_out,
};
use super::storage as stored;
use crate::locks::{
    Bootstrap, Claim, ClusterId, Command, Header, Invalid, Millis, Overdue, OwnerId, RequestId,
    ResourceName, SessionId, Token, Value, Wait, WaitId,
};

/// Stored bytes that this version cannot read.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// Not a message of the expected kind.
    #[error("not a {what} of this format: {source}")]
    Malformed {
        /// What was expected.
        what: &'static str,
        /// Why it is not.
        source: prost::DecodeError,
    },
    /// A kind that this version does not know: it was written by a newer one.
    #[error("a {what} of a kind that this version does not know; run the version that wrote it")]
    Unknown {
        /// What was expected.
        what: &'static str,
    },
    /// A field is out of its bounds.
    #[error("stored {0}")]
    Invalid(#[from] Invalid),
}

/// A command in its stored form.
pub fn encode_command(command: &Command) -> Bytes {
    use stored::command::Command as Kind;
    let kind = match command {
        Command::Bootstrap(b) => Kind::Bootstrap(stored::Bootstrap {
            cluster_id: Bytes::copy_from_slice(b.cluster.as_bytes()),
            token_floor: b.token_floor,
            limits: Some(limits_out(&b.limits)),
        }),
        Command::OpenSession { owner, ttl, labels } => Kind::OpenSession(stored::OpenSession {
            owner_id: owner_out(*owner),
            ttl_ms: ttl.0,
            labels: labels.clone(),
        }),
        Command::CloseSession { owner, session } => Kind::CloseSession(stored::CloseSession {
            owner_id: owner_out(*owner),
            session: session.0,
        }),
        Command::SetTtl { header, ttl } => {
            Kind::SetTtl(stored::SetTtl { header: Some(header_out(header)), ttl_ms: ttl.0 })
        }
        Command::MarkSeen { sessions } => {
            Kind::MarkSeen(stored::MarkSeen { sessions: sessions.iter().map(|s| s.0).collect() })
        }
        Command::Acquire { header, claim, wait } => {
            Kind::Acquire(acquire_out(header, claim, *wait))
        }
        Command::Cancel { header, target } => {
            Kind::Cancel(stored::Cancel { header: Some(header_out(header)), target: target.get() })
        }
        Command::ExpireSessions { sessions } => {
            let overdue = |o: &Overdue| stored::Overdue { session: o.session.0, seen: o.seen };
            let sessions = sessions.iter().map(overdue).collect();
            Kind::ExpireSessions(stored::ExpireSessions { sessions })
        }
        Command::ExpireWaits { waits } => {
            let id = |w: &WaitId| stored::WaitId { session: w.session.0, request: w.request.get() };
            Kind::ExpireWaits(stored::ExpireWaits { waits: waits.iter().map(id).collect() })
        }
        Command::ExpireBarriers { tokens } => Kind::ExpireBarriers(tokens_out(tokens)),
        Command::EndClosures { tokens } => Kind::EndClosures(tokens_out(tokens)),
        Command::Settle => Kind::Settle(stored::Settle {}),
        Command::Confirm { .. } | Command::SetValue { .. } | Command::Release { .. } => {
            encode_of_holder(command)
        }
        Command::Revoke { .. }
        | Command::Freeze { .. }
        | Command::Thaw { .. }
        | Command::Resize { .. }
        | Command::AskRelease { .. } => encode_of_administrator(command),
    };
    stored::Command { command: Some(kind) }.encode_to_vec().into()
}

/// What a holder does with its grant.
fn encode_of_holder(command: &Command) -> stored::command::Command {
    use stored::command::Command as Kind;
    match command {
        Command::Confirm { header, resource, token } => Kind::Confirm(stored::Confirm {
            header: Some(header_out(header)),
            resource: resource.to_string(),
            token: token.get(),
        }),
        Command::SetValue { header, resource, token, value } => Kind::SetValue(stored::SetValue {
            header: Some(header_out(header)),
            resource: resource.to_string(),
            token: token.get(),
            value: Bytes::copy_from_slice(value.as_bytes()),
        }),
        Command::Release { header, resource, token } => Kind::Release(stored::Release {
            header: Some(header_out(header)),
            resource: resource.to_string(),
            token: token.get(),
        }),
        other => unreachable!("not what a holder does: {other:?}"),
    }
}

fn encode_of_administrator(command: &Command) -> stored::command::Command {
    use stored::command::Command as Kind;
    match command {
        Command::Revoke { resource, token, note } => Kind::Revoke(stored::Revoke {
            resource: resource.to_string(),
            token: token.get(),
            note: Some(note_out(note)),
        }),
        Command::Freeze { resource, note } => Kind::Freeze(stored::Freeze {
            resource: resource.to_string(),
            note: Some(note_out(note)),
        }),
        Command::Thaw { resource, token, note } => Kind::Thaw(stored::Thaw {
            resource: resource.to_string(),
            token: token.get(),
            note: Some(note_out(note)),
        }),
        Command::Resize { resource, slots, note } => Kind::Resize(stored::Resize {
            resource: resource.to_string(),
            slots: *slots,
            note: Some(note_out(note)),
        }),
        Command::AskRelease { resource, token, within, note } => {
            Kind::AskRelease(stored::AskRelease {
                resource: resource.to_string(),
                token: token.get(),
                within_ms: within.0,
                note: Some(note_out(note)),
            })
        }
        other => unreachable!("not what an administrator does: {other:?}"),
    }
}

/// A command from its stored form.
///
/// # Errors
/// [`Unreadable`]: the entry is damaged or was written by a newer version.
pub fn decode_command(bytes: Bytes) -> Result<Command, Unreadable> {
    use stored::command::Command as Kind;
    let what = "command";
    let message =
        stored::Command::decode(bytes).map_err(|source| Unreadable::Malformed { what, source })?;
    Ok(match message.command.ok_or(Unreadable::Unknown { what })? {
        Kind::Bootstrap(b) => Command::Bootstrap(Bootstrap {
            cluster: ClusterId::from_slice(&b.cluster_id)?,
            token_floor: b.token_floor,
            limits: limits_in(b.limits.unwrap_or_default()),
        }),
        Kind::OpenSession(o) => Command::OpenSession {
            owner: OwnerId::from_slice(&o.owner_id)?,
            ttl: Millis(o.ttl_ms),
            labels: o.labels,
        },
        Kind::CloseSession(c) => Command::CloseSession {
            owner: OwnerId::from_slice(&c.owner_id)?,
            session: SessionId(c.session),
        },
        Kind::SetTtl(s) => Command::SetTtl { header: header_in(s.header)?, ttl: Millis(s.ttl_ms) },
        Kind::MarkSeen(m) => {
            Command::MarkSeen { sessions: m.sessions.into_iter().map(SessionId).collect() }
        }
        Kind::Acquire(a) => acquire_in(a)?,
        Kind::Cancel(c) => {
            Command::Cancel { header: header_in(c.header)?, target: RequestId::new(c.target)? }
        }
        Kind::ExpireSessions(e) => {
            let overdue =
                |o: &stored::Overdue| Overdue { session: SessionId(o.session), seen: o.seen };
            Command::ExpireSessions { sessions: e.sessions.iter().map(overdue).collect() }
        }
        Kind::ExpireWaits(e) => Command::ExpireWaits {
            waits: e.waits.iter().map(wait_id_in).collect::<Result<_, _>>()?,
        },
        Kind::ExpireBarriers(e) => Command::ExpireBarriers { tokens: tokens_in(&e)? },
        Kind::EndClosures(e) => Command::EndClosures { tokens: tokens_in(&e)? },
        Kind::Settle(_) => Command::Settle,
        kind @ (Kind::Confirm(_) | Kind::SetValue(_) | Kind::Release(_)) => decode_of_holder(kind)?,
        kind @ (Kind::Revoke(_)
        | Kind::Freeze(_)
        | Kind::Thaw(_)
        | Kind::Resize(_)
        | Kind::AskRelease(_)) => decode_of_administrator(kind)?,
    })
}

fn decode_of_holder(kind: stored::command::Command) -> Result<Command, Unreadable> {
    use stored::command::Command as Kind;
    Ok(match kind {
        Kind::Confirm(c) => Command::Confirm {
            header: header_in(c.header)?,
            resource: ResourceName::new(&c.resource)?,
            token: Token::new(c.token)?,
        },
        Kind::SetValue(v) => Command::SetValue {
            header: header_in(v.header)?,
            resource: ResourceName::new(&v.resource)?,
            token: Token::new(v.token)?,
            value: Value::new(&v.value)?,
        },
        Kind::Release(r) => Command::Release {
            header: header_in(r.header)?,
            resource: ResourceName::new(&r.resource)?,
            token: Token::new(r.token)?,
        },
        other => unreachable!("not what a holder does: {other:?}"),
    })
}

fn decode_of_administrator(kind: stored::command::Command) -> Result<Command, Unreadable> {
    use stored::command::Command as Kind;
    Ok(match kind {
        Kind::Revoke(r) => Command::Revoke {
            resource: ResourceName::new(&r.resource)?,
            token: Token::new(r.token)?,
            note: note_in(r.note),
        },
        Kind::Freeze(f) => {
            Command::Freeze { resource: ResourceName::new(&f.resource)?, note: note_in(f.note) }
        }
        Kind::Thaw(t) => Command::Thaw {
            resource: ResourceName::new(&t.resource)?,
            token: Token::new(t.token)?,
            note: note_in(t.note),
        },
        Kind::Resize(r) => Command::Resize {
            resource: ResourceName::new(&r.resource)?,
            slots: r.slots,
            note: note_in(r.note),
        },
        Kind::AskRelease(a) => Command::AskRelease {
            resource: ResourceName::new(&a.resource)?,
            token: Token::new(a.token)?,
            within: Millis(a.within_ms),
            note: note_in(a.note),
        },
        other => unreachable!("not what an administrator does: {other:?}"),
    })
}

fn acquire_out(header: &Header, claim: &Claim, wait: Wait) -> stored::Acquire {
    let (lock_delay_ms, barrier_ms, value) = terms_out(&claim.terms);
    stored::Acquire {
        header: Some(header_out(header)),
        names: names_out(&claim.names),
        mode: claim.mode.code(),
        wait_ms: wait_out(wait),
        lock_delay_ms,
        barrier_ms,
        value,
    }
}

fn acquire_in(a: stored::Acquire) -> Result<Command, Unreadable> {
    let claim = Claim {
        names: names_in(&a.names)?,
        mode: mode_in(a.mode)?,
        terms: terms_in(a.lock_delay_ms, a.barrier_ms, &a.value)?,
    };
    Ok(Command::Acquire { header: header_in(a.header)?, claim, wait: wait_in(a.wait_ms) })
}
