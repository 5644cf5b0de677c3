//! The leader's own entries: marks, expiries, ends of timers. At most one of each
//! kind is under way; what comes meanwhile goes into the next.

use std::future::Future;
use std::pin::Pin;

use crate::locks::{Command, Overdue, SessionId, Term, Timer};
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
    /// What ends timers that have run out.
    Timers(Command),
}

impl Proposed {
    /// The entries that end these timers: one of each kind.
    pub fn ends_of(timers: &[Timer]) -> impl Iterator<Item = Self> + use<> {
        let (mut waits, mut barriers, mut closures, mut settle) =
            (Vec::new(), Vec::new(), Vec::new(), None);
        for timer in timers {
            match *timer {
                Timer::Wait(wait) => waits.push(wait),
                Timer::Barrier(token) => barriers.push(token),
                Timer::Closure(token) => closures.push(token),
                Timer::Settle => settle = Some(Command::Settle),
            }
        }
        let waits = (!waits.is_empty()).then_some(Command::ExpireWaits { waits });
        let barriers =
            (!barriers.is_empty()).then_some(Command::ExpireBarriers { tokens: barriers });
        let closures = (!closures.is_empty()).then_some(Command::EndClosures { tokens: closures });
        [waits, barriers, closures, settle].into_iter().flatten().map(Self::Timers)
    }

    fn command(&self) -> Command {
        match self {
            Self::Marks(sessions) => Command::MarkSeen { sessions: sessions.clone() },
            Self::Expiries(sessions) => Command::ExpireSessions { sessions: sessions.clone() },
            Self::Timers(command) => command.clone(),
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
