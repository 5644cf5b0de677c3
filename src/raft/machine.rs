//! The state machine: openraft applies entries here, the rules decide, the rows are
//! written behind, the callers are answered.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use parking_lot::MutexGuard;

use super::status::position;
use super::transfer::SnapshotRows;
use crate::authority::Authority;
use crate::leases::Moment;
use crate::locks::{BadImage, Change, LockTable, Outcome, Row, RowKey};
use crate::raft_types::{Entry, EntryPayload, LogId, SnapshotMeta, StoredMembership, TypeConfig};
use crate::storage::{AppliedState, RowChange, Rows, StorageError, StoredRow};
use crate::wire::log::{Unreadable, decode_command};
use crate::wire::rows::{decode_row, encode_key, encode_row};

/// A snapshot of ours.
type Snapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotRows>;

/// How many entries are applied under one lock and written behind in one batch.
const ENTRIES_PER_BATCH: usize = 512;

/// How long the lock is kept while others wait for it, but for the last entry begun.
const HELD_MAX: Duration = Duration::from_millis(2);

/// Stored rows could not become a table.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The folder could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A row is damaged, or of a newer version.
    #[error("cannot read the lock table: {0}")]
    Unreadable(#[from] Unreadable),
    /// The rows do not fit together.
    #[error("cannot read the lock table: {0}")]
    BadImage(#[from] BadImage),
}

/// Applies the log to the [`Authority`], of which it is the only writer.
pub struct StateMachine {
    authority: Arc<Authority>,
    rows: Rows,
    applied: AppliedState,
}

impl StateMachine {
    /// Loads the rows: a restart does not replay the log from its beginning. Every
    /// deadline begins anew, in full.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(rows: Rows, now: Moment) -> Result<(Self, Arc<Authority>), LoadError> {
        let (applied, stored) = rows.load()?;
        let table = table_of(stored)?;
        let authority = Arc::new(Authority::new(table, now));
        Ok((Self { authority: Arc::clone(&authority), rows, applied }, authority))
    }

    /// Applies a batch under one lock, unless it takes long; the answers are sent after it.
    fn apply_batch(&mut self, batch: Vec<EntryResponder<TypeConfig>>) -> io::Result<()> {
        let now = Moment::now();
        let mut changes: BTreeMap<RowKey, Option<Row>> = BTreeMap::new();
        let mut answers = Vec::with_capacity(batch.len());
        let mut state = self.authority.lock();
        let mut held_from = now;
        for (entry, responder) in batch {
            let outcome = {
                let (outcome, changed) = apply_entry(&mut state, &entry, now)?;
                for change in changed {
                    match change {
                        Change::Put(row) => changes.insert(row.key(), Some(row)),
                        Change::Delete(key) => changes.insert(key, None),
                    };
                }
                outcome
            };
            let id: LogId = entry.log_id();
            if let EntryPayload::Membership(membership) = entry.payload {
                self.applied.membership = StoredMembership::new(Some(id), membership);
            }
            self.applied.last_applied = Some(id);
            answers.extend(responder.map(|responder| (responder, outcome)));
            // Between two entries the table is what the log says: whoever waits may look.
            if Moment::now().since(held_from) > HELD_MAX {
                MutexGuard::bump(&mut state);
                held_from = Moment::now();
            }
        }
        drop(state);
        self.authority.watchers().applied();
        for (responder, outcome) in answers {
            responder.send(outcome);
        }
        let changes = changes.into_iter().map(|(key, row)| RowChange {
            key: encode_key(key),
            value: row.as_ref().map(encode_row),
        });
        self.rows.write_behind(changes.collect(), self.applied.clone());
        Ok(())
    }
}

fn apply_entry(
    state: &mut crate::authority::State,
    entry: &Entry,
    now: Moment,
) -> io::Result<(Outcome, Vec<Change>)> {
    let at = position(&entry.log_id());
    Ok(match &entry.payload {
        EntryPayload::Normal(command) => {
            let command = decode_command(command.0.clone()).map_err(io::Error::other)?;
            state.apply(at, Some(&command), now)
        }
        // The membership of the bootstrap stands at index 0, where every table begins.
        EntryPayload::Blank | EntryPayload::Membership(_) if at.index == 0 => {
            (Ok(crate::locks::Done::Nothing), Vec::new())
        }
        EntryPayload::Blank | EntryPayload::Membership(_) => state.apply(at, None, now),
    })
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotRows;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.applied.last_applied, self.applied.membership.clone()))
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + Send,
    {
        let mut batches = entries.ready_chunks(ENTRIES_PER_BATCH);
        while let Some(batch) = batches.next().await {
            self.apply_batch(batch.into_iter().collect::<io::Result<_>>()?)?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { rows: self.rows.clone() }
    }

    /// On disk, and atomically across a crash, before it is taken up in memory.
    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotRows,
    ) -> io::Result<()> {
        let rows = snapshot.into_rows().await?;
        let table = table_of(rows.clone()).map_err(io::Error::other)?;
        let last_applied = meta.last_log_id;
        let applied = AppliedState { last_applied, membership: meta.last_membership.clone() };
        self.rows.replace(rows, applied.clone()).await?;
        self.applied = applied;
        self.authority.lock().install(table, Moment::now());
        self.authority.watchers().applied();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let snapshot = Builder { rows: self.rows.clone() }.build_snapshot().await?;
        Ok(snapshot.meta.last_log_id.is_some().then_some(snapshot))
    }
}

/// Makes a snapshot: the rows as they are on disk now, seen as of one moment. They
/// are written through all the time, so that there is nothing to build.
pub struct Builder {
    rows: Rows,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = SnapshotRows;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        // The log below it may be purged next: it must be on disk itself.
        self.rows.sync().await?;
        let view = self.rows.view().await?;
        let applied = view.applied();
        let last_log_id = applied.last_applied;
        let meta = SnapshotMeta { last_log_id, last_membership: applied.membership.clone() };
        Ok(Snapshot { meta, snapshot: SnapshotRows::View(view) })
    }
}

/// A table from stored rows; none at all are the empty table.
fn table_of(rows: Vec<StoredRow>) -> Result<LockTable, LoadError> {
    if rows.is_empty() {
        return Ok(LockTable::new());
    }
    let rows = rows.into_iter().map(|(_, value)| decode_row(value));
    Ok(LockTable::from_rows(rows.collect::<Result<Vec<_>, _>>()?)?)
}
