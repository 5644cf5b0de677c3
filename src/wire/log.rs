//! Commands as the log stores them, and back. Numbers and fields are frozen: see
//! `proto/ringfence/storage/v1`.

use bytes::Bytes;
use prost::Message;
use thiserror::Error;

use super::storage as stored;
use crate::locks::{
    Bootstrap, Claim, ClusterId, Command, Header, Invalid, Limits, Millis, Mode, Overdue, OwnerId,
    RequestId, ResourceName, SessionId, Token, Wait, WaitId,
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
        Command::Acquire { header, claim, wait } => Kind::Acquire(stored::Acquire {
            header: Some(header_out(header)),
            names: names_out(&claim.names),
            mode: mode_out(claim.mode),
            wait_ms: wait_out(*wait),
        }),
        Command::Cancel { header, target } => {
            Kind::Cancel(stored::Cancel { header: Some(header_out(header)), target: target.get() })
        }
        Command::Release { header, resource, token } => Kind::Release(stored::Release {
            header: Some(header_out(header)),
            resource: resource.to_string(),
            token: token.get(),
        }),
        Command::ExpireSessions { sessions } => {
            let overdue = |o: &Overdue| stored::Overdue { session: o.session.0, seen: o.seen };
            let sessions = sessions.iter().map(overdue).collect();
            Kind::ExpireSessions(stored::ExpireSessions { sessions })
        }
        Command::ExpireWaits { waits } => {
            let id = |w: &WaitId| stored::WaitId { session: w.session.0, request: w.request.get() };
            Kind::ExpireWaits(stored::ExpireWaits { waits: waits.iter().map(id).collect() })
        }
    };
    stored::Command { command: Some(kind) }.encode_to_vec().into()
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
        Kind::Acquire(a) => Command::Acquire {
            header: header_in(a.header)?,
            claim: Claim { names: names_in(&a.names)?, mode: mode_in(a.mode)? },
            wait: wait_in(a.wait_ms),
        },
        Kind::Cancel(c) => {
            Command::Cancel { header: header_in(c.header)?, target: RequestId::new(c.target)? }
        }
        Kind::Release(r) => Command::Release {
            header: header_in(r.header)?,
            resource: ResourceName::new(&r.resource)?,
            token: Token::new(r.token)?,
        },
        Kind::ExpireSessions(e) => {
            let overdue =
                |o: &stored::Overdue| Overdue { session: SessionId(o.session), seen: o.seen };
            Command::ExpireSessions { sessions: e.sessions.iter().map(overdue).collect() }
        }
        Kind::ExpireWaits(e) => Command::ExpireWaits {
            waits: e.waits.iter().map(wait_id_in).collect::<Result<_, _>>()?,
        },
    })
}

fn owner_out(owner: OwnerId) -> Bytes {
    Bytes::copy_from_slice(owner.as_bytes())
}

fn header_out(header: &Header) -> stored::Header {
    stored::Header {
        owner_id: owner_out(header.owner),
        session: header.session.0,
        request_id: header.id.get(),
        oldest_outstanding: header.oldest_outstanding.get(),
        answered: header.answered.iter().map(|id| id.get()).collect(),
    }
}

fn header_in(header: Option<stored::Header>) -> Result<Header, Unreadable> {
    let header = header.ok_or(Unreadable::Unknown { what: "request header" })?;
    Ok(Header {
        owner: OwnerId::from_slice(&header.owner_id)?,
        session: SessionId(header.session),
        id: RequestId::new(header.request_id)?,
        oldest_outstanding: RequestId::new(header.oldest_outstanding)?,
        answered: header.answered.into_iter().map(RequestId::new).collect::<Result<_, _>>()?,
    })
}

fn wait_id_in(wait: &stored::WaitId) -> Result<WaitId, Invalid> {
    Ok(WaitId { session: SessionId(wait.session), request: RequestId::new(wait.request)? })
}

/// 0 stands for a try.
fn wait_out(wait: Wait) -> u64 {
    match wait {
        Wait::Try => 0,
        Wait::UpTo(deadline) => deadline.0,
    }
}

fn wait_in(wait_ms: u64) -> Wait {
    if wait_ms == 0 { Wait::Try } else { Wait::UpTo(Millis(wait_ms)) }
}

pub(super) fn names_out(names: &[ResourceName]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

pub(super) fn names_in(names: &[String]) -> Result<Vec<ResourceName>, Invalid> {
    names.iter().map(|name| ResourceName::new(name)).collect()
}

pub(super) const fn mode_out(mode: Mode) -> u32 {
    match mode {
        Mode::Exclusive => 1,
    }
}

pub(super) const fn mode_in(mode: u32) -> Result<Mode, Unreadable> {
    match mode {
        1 => Ok(Mode::Exclusive),
        _ => Err(Unreadable::Unknown { what: "mode" }),
    }
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
