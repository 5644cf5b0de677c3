//! Elections: a thin layer over locks with the names people know.

use std::ops::Deref;
use std::time::Duration;

use super::ClientError;
use super::acquire::Acquire;
use super::guard::Guard;
use super::modes::{Form, Hold, guard};
use super::session::Session;
use crate::locks::Mode;

/// An election among those who campaign under one name. The name is a resource, the
/// leader its exclusive holder, and its proclamation the value of the grant.
///
/// ```no_run
/// # async fn run(session: ringfence::client::Session) -> Result<(), ringfence::client::ClientError> {
/// let leadership = session.election("db/primary").campaign("10.0.0.7:5432").await?;
/// while leadership.is_held() {
///     // Act as the leader, with leadership.fence() in every write.
/// #   break;
/// }
/// leadership.resign().await
/// # }
/// ```
///
/// A leader that is paused does not know that it leads no longer. The fence stops it
/// at the destination, nothing else does.
#[derive(Debug, Clone)]
pub struct Election {
    session: Session,
    name: String,
}

guard! {
    /// The leader's authority. Dropped, it is resigned in the background.
    Leadership
}

impl Election {
    pub(super) fn new(session: Session, name: String) -> Self {
        Self { session, name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Stands for election, to be seen with this value (where the leader is reached, by
    /// custom) once elected. Waits until elected, in the order in which candidates
    /// came; see [`Acquire`] for bounds, and [`Acquire::strict`] for a leader that
    /// raises its fence everywhere before it leads.
    pub fn campaign(&self, value: impl Into<Vec<u8>>) -> Acquire<Leadership> {
        self.session.ask([self.name.as_str()], Mode::Exclusive).value(value)
    }
}

impl Leadership {
    /// Changes what observers see, up to 4,096 bytes.
    ///
    /// # Errors
    /// See [`Guard::set_value_within`].
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), ClientError> {
        self.set_value(value.as_ref()).await
    }

    /// Gives the leadership up; the next candidate is elected.
    ///
    /// # Errors
    /// See [`Guard::release_within`].
    pub async fn resign(self) -> Result<(), ClientError> {
        self.release().await
    }
}
