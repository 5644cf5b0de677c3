//! Times and limits of the consensus, and what openraft is told of them.

use std::time::Duration;

use openraft::{Config, SnapshotPolicy};

/// How long things may take. The defaults suit one data centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// How often the leader says that it lives. A heartbeat is answered once the
    /// follower has on disk what it had accepted, so this must exceed a round trip
    /// and a slow fsync.
    pub heartbeat: Duration,
    /// A follower that hears nothing for [`Timing::election_max`] and then a random
    /// time from here to `election_max` stands for election.
    pub election_min: Duration,
    /// See [`Timing::election_min`]; also how long a voter refuses others after it
    /// has heard the leader.
    pub election_max: Duration,
    /// How long a connection may take to be made, and a stream to be opened.
    pub connect: Duration,
    /// How often an idle connection is probed.
    pub keepalive: Duration,
    /// How long a probe may stay unanswered before the connection is cut.
    pub keepalive_timeout: Duration,
    /// How long appended entries may stay unacknowledged before their stream is
    /// given up and begun anew.
    pub unacknowledged: Duration,
    /// How long [`super::Replica::confirm_leadership`] waits at most.
    pub confirm: Duration,
    /// How long a snapshot transfer may make no progress.
    pub snapshot_stall: Duration,
    /// How long a received snapshot may take to be installed.
    pub snapshot_install: Duration,
    /// Whether a follower that sees the leader's process die stands for election
    /// at once.
    pub fast_failover: bool,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(400),
            election_max: Duration::from_millis(800),
            connect: Duration::from_secs(1),
            keepalive: Duration::from_secs(1),
            keepalive_timeout: Duration::from_secs(2),
            unacknowledged: Duration::from_secs(5),
            confirm: Duration::from_secs(2),
            snapshot_stall: Duration::from_secs(10),
            snapshot_install: Duration::from_secs(60),
            fast_failover: true,
        }
    }
}

/// How much of the log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// A snapshot is taken once this many entries came since the last.
    pub snapshot_every: u64,
    /// So many entries before a snapshot stay, for followers that were away a
    /// short time.
    pub keep_before_snapshot: u64,
    /// Purged in steps of this many.
    pub purge_batch: u64,
    /// Entries in one message to a follower; the log reader also caps its bytes.
    pub entries_per_message: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            snapshot_every: 500_000,
            keep_before_snapshot: 200_000,
            purge_batch: 10_000,
            entries_per_message: 4_096,
        }
    }
}

/// Times or limits that do not fit together.
#[derive(Debug, thiserror::Error)]
#[error("raft timing: {0}")]
pub struct BadTiming(#[from] openraft::ConfigError);

/// What openraft is told. Restarted leaders start a new term, so that what a
/// leader keeps in memory never outlives its term unnoticed; a node must win a
/// pre-vote before it raises the term; a leader without a quorum falls silent
/// at times, so that those who hear each other can elect another.
pub(crate) fn openraft(timing: &Timing, limits: &LogLimits) -> Result<Config, BadTiming> {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let config = Config {
        cluster_name: "ringfence".into(),
        heartbeat_interval: ms(timing.heartbeat),
        election_timeout_min: ms(timing.election_min),
        election_timeout_max: ms(timing.election_max),
        install_snapshot_timeout: ms(timing.snapshot_install),
        max_payload_entries: limits.entries_per_message,
        replication_lag_threshold: limits.keep_before_snapshot,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(limits.snapshot_every),
        max_in_snapshot_log_to_keep: limits.keep_before_snapshot,
        purge_batch_size: limits.purge_batch,
        quorum_loss_probe_interval: Some(ms(timing.election_max).saturating_mul(2)),
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        allow_log_reversion: Some(false),
        backoff: "50ms 100ms 200ms ...500ms".into(),
        ..Config::default()
    };
    Ok(config.validate()?)
}
