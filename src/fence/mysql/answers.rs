//! What the server says, as a [`FenceError`].

use mysql_async::{Error, ServerError};

use super::SCHEMA_VERSION;
use crate::fence::error::FenceError;
use crate::fence::rule::Refusal;
use crate::locks::{ClusterId, Fence, Token};

/// Reads the answers of `mysql.sql`. Only in answer to our own call do they, and what is
/// said of missing tables and procedures, speak of our schema.
pub(super) fn from_call(fence: Option<&Fence>, error: Error) -> FenceError {
    let Error::Server(server) = &error else { return error.into() };
    let word = |name: &str| {
        let mut words = server.message.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(found, _)| *found == name).map(|(_, value)| value)
    };
    let refusal = match (server.state.as_str(), server.code) {
        ("RF001", _) => word("mark").and_then(|mark| {
            let mark = Token::new(mark.parse().ok()?).ok()?;
            Some(Refusal::Stale { mark, slot: word("slot").and_then(|slot| slot.parse().ok()) })
        }),
        ("RF002", _) => Some(Refusal::FloorAboveToken),
        ("RF003", _) => word("known").and_then(|known| {
            Some(Refusal::ForeignCluster { known: ClusterId::from_hex(known).ok()? })
        }),
        ("RF005", _) => return version(word("found")),
        ("RF006", _) => return FenceError::NoTransaction,
        ("RF007", _) => return FenceError::NotDurable { setting: server.message.clone() },
        // No such procedure, no such table; a statement that its time has ended.
        (_, 1305 | 1146) => return FenceError::SchemaMissing,
        (_, 1317 | 1969 | 3024) => return FenceError::Busy(Box::new(error)),
        _ => None,
    };
    match fence.zip(refusal) {
        Some((fence, refusal)) => FenceError::refused(fence, refusal),
        None => error.into(),
    }
}

fn version(found: Option<&str>) -> FenceError {
    match found.and_then(|found| found.parse().ok()) {
        Some(found) if found > SCHEMA_VERSION => {
            FenceError::SchemaNewer { found, known: SCHEMA_VERSION }
        }
        Some(_) | None => FenceError::SchemaMissing,
    }
}

impl From<Error> for FenceError {
    fn from(error: Error) -> Self {
        match &error {
            // A deadlock; MariaDB: a row that has changed since the snapshot.
            Error::Server(ServerError { code: 1213 | 1020, .. }) => Self::Conflict(Box::new(error)),
            // Lock wait timeout, also with NOWAIT.
            Error::Server(ServerError { code: 1205 | 3572, .. }) => Self::Busy(Box::new(error)),
            Error::Server(_)
            | Error::Driver(_)
            | Error::Io(_)
            | Error::Other(_)
            | Error::Url(_) => Self::Store(Box::new(error)),
        }
    }
}
