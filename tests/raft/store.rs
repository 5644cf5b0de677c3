//! A log, a vote and a state machine in memory that outlive their node's process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use openraft::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::storage::{EntryResponder, IOFlushed, LogState, RaftLogStorage, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftLogReader, RaftSnapshotBuilder};
use parking_lot::Mutex;
use ringfence::locks::{ClusterId, Done, Refusal};
use ringfence::raft::{Home, Identity, IncomingSnapshot, SnapshotTransfer};
use ringfence::raft_types::{Entry, LogId, StoredMembership, TypeConfig, Vote};

/// What a node keeps while its process is down.
#[derive(Clone)]
pub struct Disk {
    pub home: Arc<Folder>,
    log: Arc<Mutex<Log>>,
    pub machine: Arc<Mutex<Machine>>,
    /// Makes every later append fail.
    pub broken: Arc<AtomicBool>,
}

impl Disk {
    pub fn fresh(node: u64) -> Self {
        let identity = Identity { node, incarnation: rand::random() };
        Self {
            home: Arc::new(Folder { identity, cluster: Mutex::default() }),
            log: Arc::default(),
            machine: Arc::default(),
            broken: Arc::default(),
        }
    }
}

pub struct Folder {
    pub identity: Identity,
    pub cluster: Mutex<Option<ClusterId>>,
}

impl Home for Folder {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn cluster(&self) -> Option<ClusterId> {
        *self.cluster.lock()
    }

    fn adopt_cluster(&self, cluster: ClusterId) -> BoxFuture<'_, io::Result<()>> {
        let adopted = *self.cluster.lock().get_or_insert(cluster);
        let outcome = if adopted == cluster { Ok(()) } else { Err(io::Error::other("other")) };
        Box::pin(async move { outcome })
    }
}

#[derive(Default)]
struct Log {
    vote: Option<Vote>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, Entry>,
}

impl RaftLogReader<TypeConfig> for Disk {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<Entry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let bounds: (Bound<u64>, Bound<u64>) =
            (range.start_bound().cloned(), range.end_bound().cloned());
        Ok(self.log.lock().entries.range(bounds).map(|(_, e)| e.clone()).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.log.lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for Disk {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let log = self.log.lock();
        let last = log.entries.values().next_back().map(|e| e.log_id);
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: last.or(log.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.log.lock().vote = Some(*vote);
        Ok(())
    }

    async fn append<I>(&mut self, entries: I, done: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        if self.broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk is gone"));
        }
        self.log.lock().entries.extend(entries.into_iter().map(|e| (e.log_id.index, e)));
        done.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        self.log.lock().entries.split_off(&last.map_or(0, |id| id.index + 1));
        Ok(())
    }

    async fn purge(&mut self, upto: LogId) -> io::Result<()> {
        let mut log = self.log.lock();
        log.purged = Some(upto);
        log.entries = log.entries.split_off(&(upto.index + 1));
        Ok(())
    }
}

/// Remembers every command in order; the outcome of each is how many came before.
#[derive(Default)]
pub struct Machine {
    pub applied: Option<LogId>,
    membership: StoredMembership,
    pub commands: Vec<Bytes>,
    pub installed: usize,
}

impl RaftStateMachine<TypeConfig> for Disk {
    type SnapshotData = Vec<Bytes>;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let machine = self.machine.lock();
        Ok((machine.applied, machine.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut machine = self.machine.lock();
            machine.applied = Some(entry.log_id);
            let mut outcome: Result<Done, Refusal> = Ok(Done::Nothing);
            match entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(command) => {
                    outcome = Ok(Done::Queued { ahead: machine.commands.len() as u64 });
                    machine.commands.push(command.0);
                }
                EntryPayload::Membership(membership) => {
                    machine.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
            }
            drop(machine);
            if let Some(responder) = responder {
                responder.send(outcome);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<TypeConfig>,
        commands: Vec<Bytes>,
    ) -> io::Result<()> {
        let mut machine = self.machine.lock();
        machine.applied = meta.last_log_id;
        machine.membership = meta.last_membership.clone();
        machine.commands = commands;
        machine.installed += 1;
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<SnapshotOf<TypeConfig, Vec<Bytes>>>> {
        Ok(Some(self.build_snapshot().await?))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Disk {
    type SnapshotData = Vec<Bytes>;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, Vec<Bytes>>> {
        let machine = self.machine.lock();
        let meta = SnapshotMetaOf::<TypeConfig> {
            last_log_id: machine.applied,
            last_membership: machine.membership.clone(),
        };
        Ok(SnapshotOf::<TypeConfig, _> { meta, snapshot: machine.commands.clone() })
    }
}

/// Commands with their lengths before them.
pub struct Lengths;

impl SnapshotTransfer for Lengths {
    type Data = Vec<Bytes>;
    type Incoming = Arriving;

    fn pieces(&self, data: Vec<Bytes>) -> BoxStream<'static, io::Result<Bytes>> {
        let piece = |command: Bytes| {
            let mut piece = BytesMut::new();
            piece.put_u32(u32::try_from(command.len()).expect("short"));
            piece.put(command);
            Ok(piece.freeze())
        };
        stream::iter(data).map(piece).boxed()
    }

    fn receive(&self) -> io::Result<Arriving> {
        Ok(Arriving(BytesMut::new()))
    }
}

pub struct Arriving(BytesMut);

impl IncomingSnapshot for Arriving {
    type Data = Vec<Bytes>;

    async fn push(&mut self, piece: Bytes) -> io::Result<()> {
        self.0.put(piece);
        Ok(())
    }

    async fn finish(self) -> io::Result<Vec<Bytes>> {
        let mut bytes = self.0.freeze();
        let mut commands = Vec::new();
        while bytes.has_remaining() {
            let length = bytes.get_u32() as usize;
            commands.push(bytes.split_to(length));
        }
        Ok(commands)
    }
}
