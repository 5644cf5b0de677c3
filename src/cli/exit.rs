//! How a command ends. The codes are promised: `ringfence --help` lists them.

use std::process::{ExitCode, ExitStatus};

use nix::sys::signal::Signal;

use crate::client::ClientError;
use crate::locks::Invalid;
use crate::wire::Reason;

/// An exit code. Those above 63 are of the sysexits range, which commands seldom
/// use for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// The answer is no.
    No,
    /// An option or a value is wrong.
    Usage,
    /// No answer from the authority in time.
    Unreachable,
    /// An answer, or this machine, makes no sense.
    Broken,
    /// Busy, or not granted in time.
    NotAcquired,
    /// The lease ended, or could not be kept, while the command ran.
    Lost,
    /// Refused for another reason.
    Refused,
    /// The command cannot be run.
    CannotRun,
    /// There is no such command.
    NotFound,
    /// Passed on from the command.
    Command(u8),
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Usage => 64,
            Self::Unreachable => 69,
            Self::Broken => 70,
            Self::NotAcquired => 75,
            Self::Lost => 76,
            Self::Refused => 77,
            Self::CannotRun => 126,
            Self::NotFound => 127,
            Self::Command(code) => code,
        }
    }

    /// As a shell has it when signal `number` ended a command.
    pub fn signalled(number: i32) -> Self {
        Self::Command(u8::try_from(number).map_or(u8::MAX, |number| 128_u8.saturating_add(number)))
    }

    /// Of a command that goes on until it is interrupted: Ctrl-C is its usual end.
    pub fn interrupted(signal: Signal) -> Self {
        if signal == Signal::SIGINT { Self::Done } else { Self::signalled(signal as i32) }
    }

    /// As the command ended.
    pub fn of(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Command(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Self::signalled(signal),
            (None, None) => Self::Broken,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

impl From<()> for Exit {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// Why a command did not do what it was asked for: one line for people, and the
/// code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// The line.
    pub message: String,
}

impl Failure {
    /// With this code and line.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }

    /// The same, with what it is about in front.
    #[must_use]
    pub fn about(self, what: impl std::fmt::Display) -> Self {
        Self { exit: self.exit, message: format!("{what}: {}", self.message) }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        // Scripts look for the stable word where the sentence does not begin with it.
        let (exit, word) = match &error {
            ClientError::Busy { .. }
            | ClientError::Timeout { .. }
            | ClientError::GrantEnded { .. } => (Exit::NotAcquired, None),
            ClientError::SessionExpired
            | ClientError::SessionClosed
            | ClientError::Lost { .. }
            | ClientError::OtherProcess => (Exit::Lost, None),
            ClientError::Unreachable { .. } => (Exit::Unreachable, None),
            ClientError::OutcomeUnknown { .. } => (Exit::Unreachable, Some(Reason::OutcomeUnknown)),
            ClientError::Deadlock { .. } => (Exit::Refused, Some(Reason::Deadlock)),
            ClientError::CapacityMismatch { .. } => (Exit::Refused, Some(Reason::CapacityMismatch)),
            ClientError::Frozen { .. } => (Exit::Refused, Some(Reason::Frozen)),
            ClientError::Compacted => (Exit::Refused, Some(Reason::Compacted)),
            ClientError::Refused { .. }
            | ClientError::AlreadyHeld { .. }
            | ClientError::AlreadyWaiting { .. }
            | ClientError::NotFound { .. } => (Exit::Refused, None),
            ClientError::Invalid { .. } => (Exit::Usage, None),
            ClientError::Malformed { .. } => (Exit::Broken, None),
        };
        match word {
            Some(word) => Self::new(exit, format!("{}: {error}", word.as_str())),
            None => Self::new(exit, error.to_string()),
        }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::new(Exit::Usage, invalid.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Broken, error.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::No, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_help() {
        let own = [Exit::Usage, Exit::Unreachable, Exit::Broken, Exit::NotAcquired, Exit::Lost];
        assert_eq!(own.map(Exit::code), [64, 69, 70, 75, 76]);
        assert_eq!(
            [Exit::Refused, Exit::CannotRun, Exit::NotFound].map(Exit::code),
            [77, 126, 127]
        );
        assert_eq!(Exit::signalled(15), Exit::Command(143));
    }
}
