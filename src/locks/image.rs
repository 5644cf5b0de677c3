//! The table as rows and back: restart loads rows instead of replaying the log, and
//! a snapshot consists of them.

use std::fmt;

use super::hash::RowHash;
use super::ids::ResourceName;
use super::rows::{GrantRow, OutcomeRow, Row, RowKey, SessionRow, WaitRow, WindowRow};
use super::session::{Finished, Place, Session};
use super::table::LockTable;

/// Rows that do not make a table: they were damaged, or are of another time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadImage(pub String);

impl fmt::Display for BadImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stored rows do not fit together: {}", self.0)
    }
}

impl std::error::Error for BadImage {}

impl LockTable {
    /// All rows, in the order of their keys.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let sessions = self.sessions.keys();
        let keys = std::iter::once(RowKey::Meta)
            .chain(sessions.clone().map(|id| RowKey::Session(*id)))
            .chain(sessions.map(|id| RowKey::Window(*id)))
            .chain(self.sessions.iter().flat_map(|(id, session)| {
                session.window.outcomes.keys().map(|request| RowKey::Outcome(*id, *request))
            }))
            .chain(self.grants.keys().map(|token| RowKey::Grant(*token)))
            .chain(self.waits.keys().map(|wait| RowKey::Wait(*wait)));
        keys.filter_map(|key| self.row(key))
    }

    /// A table from rows in the order of their keys.
    ///
    /// # Errors
    /// [`BadImage`] if a row names a session that has none, two rows stand in each
    /// other's place, or a session's window is missing.
    pub fn from_rows(rows: impl IntoIterator<Item = Row>) -> Result<Self, BadImage> {
        let mut table = Self::without_rows();
        let mut meta_seen = false;
        let mut windows = 0;
        for row in rows {
            table.hash.add(RowHash::of(&row));
            match row {
                Row::Meta(row) => {
                    meta_seen = true;
                    table.meta = row;
                }
                Row::Session(row) => table.load_session(row)?,
                Row::Window(row) => {
                    windows += 1;
                    table.load_window(row)?;
                }
                Row::Outcome(row) => table.load_outcome(row)?,
                Row::Grant(row) => table.load_grant(row)?,
                Row::Wait(row) => table.load_wait(row)?,
            }
        }
        if !meta_seen {
            return Err(BadImage("the meta row is missing".into()));
        }
        if windows != table.sessions.len() {
            return Err(BadImage("a session without the window of its requests".into()));
        }
        Ok(table)
    }

    fn load_session(&mut self, row: SessionRow) -> Result<(), BadImage> {
        let (session, owner) = (row.session, row.owner);
        if self.owners.insert(owner, session).is_some() {
            return Err(BadImage(format!("two sessions of the owner of {session}")));
        }
        self.sessions.insert(session, Session::new(row));
        Ok(())
    }

    fn load_window(&mut self, row: WindowRow) -> Result<(), BadImage> {
        let window = &mut self.loaded(row.session)?.window;
        window.floor = row.floor;
        window.finished = row.finished.into_iter().collect();
        window.changed_at = row.changed_at;
        Ok(())
    }

    fn load_outcome(&mut self, row: OutcomeRow) -> Result<(), BadImage> {
        let finished = Finished { fingerprint: row.fingerprint, outcome: row.outcome };
        self.loaded(row.session)?.window.outcomes.insert(row.request, finished);
        Ok(())
    }

    fn load_grant(&mut self, row: GrantRow) -> Result<(), BadImage> {
        let token = row.token;
        if token.get() > self.meta.token {
            return Err(BadImage(format!("token {token} is above the counter")));
        }
        let session = self.loaded(row.wait.session)?;
        session.grants.insert(token);
        for name in &row.names {
            take_place(session, name, Place::Held(token))?;
        }
        for name in &row.names {
            self.change_resource(name, |r| {
                r.holders.insert(token);
            });
        }
        self.grants.insert(token, row);
        Ok(())
    }

    fn load_wait(&mut self, row: WaitRow) -> Result<(), BadImage> {
        let wait = row.wait;
        let session = self.loaded(wait.session)?;
        session.waits.insert(wait.request);
        for name in &row.names {
            take_place(session, name, Place::Waiting(wait.request))?;
        }
        for name in &row.names {
            self.change_resource(name, |r| {
                r.queue.insert(row.queued_at.index, wait);
            });
        }
        self.waits.insert(wait, row);
        Ok(())
    }

    fn loaded(&mut self, session: super::SessionId) -> Result<&mut Session, BadImage> {
        let missing = || BadImage(format!("rows of session {session}, which has none"));
        self.sessions.get_mut(&session).ok_or_else(missing)
    }
}

fn take_place(session: &mut Session, name: &ResourceName, place: Place) -> Result<(), BadImage> {
    match session.places.insert(name.clone(), place) {
        Some(other) if other != place => {
            Err(BadImage(format!("two places of one session on {name}")))
        }
        _ => Ok(()),
    }
}
