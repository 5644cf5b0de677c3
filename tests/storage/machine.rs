//! The smallest state machine over [`Rows`]: a command's bytes are the row of its
//! index. For openraft's suite, which needs one beside the log.

use std::io;

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use openraft::OptionalSend;
use openraft::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use ringfence::raft_types::{EntryPayload, LogId, StoredMembership, TypeConfig};
use ringfence::storage::{AppliedState, RowChange, Rows, StoredRow};

pub struct Machine {
    rows: Rows,
    applied: AppliedState,
}

impl Machine {
    pub fn new(rows: Rows) -> Self {
        let (applied, _) = rows.load().expect("readable rows");
        Self { rows, applied }
    }
}

pub struct Builder(Rows);

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Vec<StoredRow>;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, Vec<StoredRow>>> {
        let mut view = self.0.view().await?;
        let meta = SnapshotMetaOf::<TypeConfig> {
            last_log_id: view.applied().last_applied,
            last_membership: view.applied().membership.clone(),
        };
        let mut snapshot = Vec::new();
        while let Some(rows) = view.next_chunk(64).await? {
            snapshot.extend(rows);
        }
        Ok(SnapshotOf::<TypeConfig, _> { meta, snapshot })
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Vec<StoredRow>;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.applied.last_applied, self.applied.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut changes = Vec::new();
        while let Some((entry, responder)) = entries.try_next().await? {
            assert!(responder.is_none(), "the suite has no clients");
            self.applied.last_applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(command) => changes.push(RowChange {
                    key: Bytes::copy_from_slice(&entry.log_id.index.to_be_bytes()),
                    value: Some(command.0),
                }),
                EntryPayload::Membership(membership) => {
                    self.applied.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
        }
        self.rows.write_behind(changes, self.applied.clone());
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder(self.rows.clone())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<TypeConfig>,
        snapshot: Vec<StoredRow>,
    ) -> io::Result<()> {
        self.applied = AppliedState {
            last_applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
        };
        self.rows.replace(snapshot, self.applied.clone()).await
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<SnapshotOf<TypeConfig, Vec<StoredRow>>>> {
        if self.applied.last_applied.is_none() {
            return Ok(None);
        }
        Builder(self.rows.clone()).build_snapshot().await.map(Some)
    }
}
