//! The table as rows and back: restart loads rows instead of replaying the log, and
//! a snapshot consists of them.

use std::fmt;

use super::claim::SLOTS_MAX;
use super::hash::RowHash;
use super::ids::{ResourceName, Token};
use super::rows::{
    ClosureRow, FrozenRow, GrantRow, OutcomeRow, ResizedRow, Row, RowKey, SessionRow, WaitRow,
    WindowRow,
};
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
            .chain(self.waits.keys().map(|wait| RowKey::Wait(*wait)))
            .chain(self.closures.keys().map(|token| RowKey::Closure(*token)))
            .chain(self.frozen.keys().map(|token| RowKey::Frozen(*token)))
            .chain(self.resized.keys().map(|token| RowKey::Resized(*token)));
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
                Row::Closure(row) => table.load_closure(row)?,
                Row::Frozen(row) => table.load_frozen(row)?,
                Row::Resized(row) => table.load_resized(row)?,
            }
        }
        if !meta_seen {
            return Err(BadImage("the meta row is missing".into()));
        }
        if windows != table.sessions.len() {
            return Err(BadImage("a session without the window of its requests".into()));
        }
        table.unsettled = table.grantable();
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
        let token = self.issued(row.token)?;
        let slot = slot_in_bounds(row.slot)?;
        let session = self.loaded(row.wait.session)?;
        session.grants.insert(token);
        for name in &row.names {
            take_place(session, name, Place::Held(token))?;
        }
        for name in &row.names {
            self.change_resource(name, |r| {
                r.holders.insert(token);
                r.use_slots(row.mode);
                if let Some(slot) = slot {
                    r.slots.take(slot);
                }
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
                r.use_slots(row.mode);
            });
        }
        self.waits.insert(wait, row);
        Ok(())
    }

    fn load_closure(&mut self, row: ClosureRow) -> Result<(), BadImage> {
        let token = self.issued(row.token)?;
        let slot = slot_in_bounds(row.slot)?;
        for name in &row.names {
            self.change_resource(name, |r| {
                r.closures.insert(token);
                if let Some(slot) = slot {
                    r.slots.take(slot);
                }
            });
        }
        self.closures.insert(token, row);
        Ok(())
    }

    fn load_frozen(&mut self, row: FrozenRow) -> Result<(), BadImage> {
        let token = self.issued(row.token)?;
        let mut twice = false;
        self.change_resource(&row.name, |r| twice = r.frozen.replace(token).is_some());
        if twice {
            return Err(BadImage(format!("two freezes of {}", row.name)));
        }
        self.frozen.insert(token, row);
        Ok(())
    }

    fn load_resized(&mut self, row: ResizedRow) -> Result<(), BadImage> {
        let token = self.issued(row.token)?;
        let mut in_use = false;
        self.change_resource(&row.name, |r| {
            if let Some(capacity) = &mut r.capacity {
                capacity.slots = row.slots;
                in_use = r.resized.replace(token).is_none();
            }
        });
        if !in_use {
            return Err(BadImage(format!("a number of slots of {}, which has none", row.name)));
        }
        self.resized.insert(token, row);
        Ok(())
    }

    fn issued(&self, token: Token) -> Result<Token, BadImage> {
        if token.get() > self.meta.token {
            return Err(BadImage(format!("token {token} is above the counter")));
        }
        Ok(token)
    }

    fn loaded(&mut self, session: super::SessionId) -> Result<&mut Session, BadImage> {
        let missing = || BadImage(format!("rows of session {session}, which has none"));
        self.sessions.get_mut(&session).ok_or_else(missing)
    }
}

fn slot_in_bounds(slot: Option<u32>) -> Result<Option<u32>, BadImage> {
    match slot {
        Some(slot) if slot >= SLOTS_MAX => Err(BadImage(format!("slot {slot}"))),
        fits => Ok(fits),
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
