//! The leader's own entries: marks, expiries, ends of waits. At most one of each
//! kind is under way; what comes meanwhile goes into the next.

use std::future::Future;
use std::pin::Pin;

use crate::locks::{Command, Overdue, SessionId, Term, WaitId};
use crate::raft::{ProposeError, Replica};
use crate::raft_types::EncodedCommand;
use crate::wire::log::encode_command;

/// An entry of the leader whose outcome is awaited.
#[derive(Debug)]
pub(super) enum Proposed {
    /// `MarkSeen` for these sessions.
    Marks(Vec<SessionId>),
    /// `ExpireSessions` for these.
    Expiries(Vec<Overdue>),
    /// `ExpireWaits` for these.
    Waits(Vec<WaitId>),
}

impl Proposed {
    fn command(&self) -> Command {
        match self {
            Self::Marks(sessions) => Command::MarkSeen { sessions: sessions.clone() },
            Self::Expiries(sessions) => Command::ExpireSessions { sessions: sessions.clone() },
            Self::Waits(waits) => Command::ExpireWaits { waits: waits.clone() },
        }
    }

    /// Proposes it in this term only: a queued entry never slips into a later one.
    pub async fn propose(self, replica: Replica, term: Term) -> (Self, Result<(), ProposeError>) {
        let command = EncodedCommand(encode_command(&self.command()));
        let told = replica.propose_in(term, command).await;
        (self, told.map(|_| ()))
    }
}

/// Proposals under way.
pub(super) type Underway =
    Pin<Box<dyn Future<Output = (Proposed, Result<(), ProposeError>)> + Send>>;
