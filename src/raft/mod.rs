//! The replicated log: openraft behind [`Replica`], and the protocol between
//! nodes.
//!
//! - [`Replica`] is all that the rest of the server sees: propose, confirm
//!   leadership, who leads, status, hand over.
//! - `network` calls the other nodes, [`PeerService`] answers them, both under one
//!   envelope that names cluster, sender and receiver.
//! - [`Bootstrap`] makes N fresh nodes one cluster.
//! - `failover` replaces a leader whose process died without waiting for the
//!   election timeout.
//!
//! The log and the state machine come from outside ([`Parts`]): this module does
//! not know what a lock is. Reads are confirmed by a quorum, never by a clock.

pub mod bootstrap;
pub mod config;
pub mod confirm;
mod contact;
mod failover;
pub mod identity;
pub mod machine;
pub mod network;
pub mod peer_service;
pub mod propose;
pub mod replica;
pub mod snapshot;
pub mod status;
pub mod transfer;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use openraft::Raft;
use openraft::storage::{RaftLogStorage, RaftStateMachine};

pub use self::bootstrap::{Bootstrap, BootstrapError};
pub use self::config::{BadTiming, LogLimits, Timing};
pub use self::confirm::{ConfirmError, Confirmed};
use self::contact::Contact;
pub use self::identity::{Home, Identity};
use self::network::Network;
use self::network::link::Links;
pub use self::peer_service::PeerService;
pub use self::propose::ProposeError;
pub use self::replica::{Ended, Replica, TransferError};
pub use self::snapshot::{IncomingSnapshot, SnapshotTransfer};
pub use self::status::{Leadership, MemberStatus, Role, Status};
use crate::raft_types::TypeConfig;

/// What a replica is made of.
pub struct Parts<LS, SM, S> {
    /// The data folder's identity.
    pub home: Arc<dyn Home>,
    /// Times.
    pub timing: Timing,
    /// Limits.
    pub limits: LogLimits,
    /// The members of a static bootstrap, id to address; empty without one.
    pub members: BTreeMap<u64, String>,
    /// The local address from which this node calls the others; any by default.
    pub bind: Option<IpAddr>,
    /// The log and the vote.
    pub log: LS,
    /// What the log is applied to.
    pub machine: SM,
    /// How its snapshots travel.
    pub snapshots: S,
}

/// Why a replica did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The times do not fit together.
    #[error(transparent)]
    Timing(#[from] BadTiming),
    /// What is on disk could not be recovered.
    #[error("cannot recover the log: {0}")]
    Recovery(String),
}

/// Recovers the replica and starts it. Its tasks run on the current runtime, which
/// should not be the one that serves clients. The peer service must be reachable
/// at this node's address before it can hear of the others.
///
/// # Errors
/// See [`StartError`].
pub async fn start<LS, SM, S>(
    parts: Parts<LS, SM, S>,
) -> Result<(Replica, PeerService<SM, S>), StartError>
where
    LS: RaftLogStorage<TypeConfig>,
    SM: RaftStateMachine<TypeConfig, SnapshotData = S::Data>,
    S: SnapshotTransfer,
{
    let Parts { home, timing, limits, members, bind, log, machine, snapshots } = parts;
    let config = Arc::new(config::openraft(&timing, &limits)?);
    let contact = Contact::begin(&timing);
    let links = Links::new(home.clone(), timing.clone(), bind, contact.clone());
    let snapshots = Arc::new(snapshots);
    let network = Network::new(links.clone(), snapshots.clone());
    let node = home.identity().node;
    let raft = Raft::build(node, config, network, log, machine).await;
    let raft: Raft<TypeConfig, SM> = raft.map_err(|e| StartError::Recovery(e.to_string()))?;
    let here = peer_service::Here { home, members, contact: contact.clone() };
    let service = PeerService::new(raft.clone(), here, snapshots, timing.clone());
    raft.run();
    let replica = Replica::new(&raft, node, &timing, contact);
    if timing.fast_failover {
        tokio::spawn(failover::run(raft, links, replica.leadership(), replica.presence()));
    }
    Ok((replica, service))
}
