//! What a session or a grant is to its owner.

use super::ClientError;

/// What a session or a grant is to its owner. Section 3 of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The owner may act.
    Held,
    /// The owner's own deadline has passed without an acknowledgement: it must not
    /// act. A later renewal may bring it back, with the same token.
    Suspended,
    /// It is over for good.
    Lost(Loss),
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The authority ended the session.
    SessionExpired,
    /// The application closed the session, or ended the runtime that it was opened in.
    SessionClosed,
    /// The authority ended the grant, not the session.
    GrantEnded,
    /// This process is a fork of the one that opened the session.
    OtherProcess,
}

impl Loss {
    /// As a call is told that comes too late.
    pub(super) const fn error(self) -> ClientError {
        match self {
            Self::SessionExpired => ClientError::SessionExpired,
            Self::SessionClosed => ClientError::SessionClosed,
            Self::GrantEnded => ClientError::Lost { token: None },
            Self::OtherProcess => ClientError::OtherProcess,
        }
    }
}
