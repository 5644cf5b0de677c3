//! Renewals on their way to the leader task, and their answers.

use tokio::sync::{mpsc, oneshot};

use crate::leases::Moment;
use crate::locks::{Millis, OwnerId, Revision, SessionId};

/// A renewal that has arrived.
#[derive(Debug)]
pub struct Renew {
    /// Whose session.
    pub owner: OwnerId,
    /// The session.
    pub session: SessionId,
    /// When it arrived, on this node's clock: what the new deadline counts from.
    pub arrived: Moment,
    reply: oneshot::Sender<RenewalAnswer>,
}

impl Renew {
    /// Answers. A caller that has gone will ask again.
    pub(super) fn answer(self, answer: RenewalAnswer) {
        let _gone = self.reply.send(answer);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// What a renewal is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalAnswer {
    /// Renewed. The client reads its grants if `changed_at` is new to it.
    Renewed {
        /// The ttl in force.
        ttl: Millis,
        /// The last change to the session's grants and waits.
        changed_at: Revision,
    },
    /// The session has ended.
    Expired,
    /// There never was such a session.
    Unknown,
    /// This node does not lead (any more).
    NotLeading,
    /// No majority confirmed this leader in time.
    NoQuorum,
    /// Too many renewals wait.
    Overloaded,
    /// The session's expiry was proposed and the term ended before its outcome.
    OutcomeUnknown,
}

/// The way to the leader task of this node.
#[derive(Debug, Clone)]
pub struct Renewals {
    send: mpsc::Sender<Renew>,
}

impl Renewals {
    pub(super) const fn new(send: mpsc::Sender<Renew>) -> Self {
        Self { send }
    }

    /// Renews a session that asked at `arrived`. Answered in the order of rounds, not
    /// of calls.
    pub async fn renew(
        &self,
        owner: OwnerId,
        session: SessionId,
        arrived: Moment,
    ) -> RenewalAnswer {
        let (reply, told) = oneshot::channel();
        match self.send.try_send(Renew { owner, session, arrived, reply }) {
            Ok(()) => told.await.unwrap_or(RenewalAnswer::NotLeading),
            Err(mpsc::error::TrySendError::Full(_)) => RenewalAnswer::Overloaded,
            Err(mpsc::error::TrySendError::Closed(_)) => RenewalAnswer::NotLeading,
        }
    }
}
