//! The envelope of every call: who speaks to whom, checked before anything else.

use bytes::Bytes;
use prost::Message;
use tonic::Status;
use tonic::metadata::{BinaryMetadataValue, MetadataMap};

use crate::locks::ClusterId;
use crate::raft::identity::{Folder, Identity};
use crate::wire::peer;

/// The metadata entry that carries it.
const ENTRY: &str = "ringfence-envelope-bin";

/// Names cluster, sender and receiver of a call, each node with its incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The cluster that the call is for.
    pub cluster: ClusterId,
    /// Who calls.
    pub from: Identity,
    /// Who is called.
    pub to: Identity,
}

/// Why a call was turned away at the door.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The call does not say who speaks to whom.
    #[error("a peer call without a readable envelope: is the caller another version or program?")]
    NoEnvelope,
    /// This node's folder is fresh.
    #[error("node {here} belongs to no cluster yet, and the call is for cluster {theirs}")]
    NoCluster {
        /// This node.
        here: u64,
        /// The caller's cluster.
        theirs: ClusterId,
    },
    /// The caller belongs elsewhere.
    #[error(
        "node {here} belongs to cluster {ours}, and the call is for cluster {theirs}: check the \
         caller's member list and data folder"
    )]
    OtherCluster {
        /// This node.
        here: u64,
        /// Its cluster.
        ours: ClusterId,
        /// The caller's cluster.
        theirs: ClusterId,
    },
    /// The address leads to another node than the caller meant.
    #[error("the call is for node {meant}, but node {here} lives at this address")]
    OtherNode {
        /// Whom the caller meant.
        meant: u64,
        /// Who lives here.
        here: u64,
    },
    /// The caller knows this node with another data folder.
    #[error(
        "node {here} was recorded with {recorded} and now runs on {present}: a wiped node must be \
         removed and added anew",
        recorded = Folder(recorded), present = Folder(present)
    )]
    ReceiverReplaced {
        /// This node.
        here: u64,
        /// As the caller has it.
        recorded: [u8; 16],
        /// As it is.
        present: [u8; 16],
    },
    /// This node knows the caller with another data folder.
    #[error(
        "node {from} is recorded with {recorded} and calls from {present}: a wiped node must be \
         removed and added anew",
        recorded = Folder(recorded), present = Folder(present)
    )]
    SenderReplaced {
        /// The caller.
        from: u64,
        /// As the membership has it.
        recorded: [u8; 16],
        /// As it says.
        present: [u8; 16],
    },
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        Self::failed_precondition(refused.to_string())
    }
}

impl Envelope {
    /// Its form as a metadata value.
    pub(crate) fn to_value(self) -> BinaryMetadataValue {
        let wire = peer::Envelope {
            cluster_id: Bytes::copy_from_slice(self.cluster.as_bytes()),
            from_node: self.from.node,
            from_incarnation: Bytes::copy_from_slice(&self.from.incarnation),
            to_node: self.to.node,
            to_incarnation: Bytes::copy_from_slice(&self.to.incarnation),
        };
        BinaryMetadataValue::from_bytes(&wire.encode_to_vec())
    }

    /// Puts it on a call.
    pub(crate) fn write(value: BinaryMetadataValue, metadata: &mut MetadataMap) {
        metadata.insert_bin(ENTRY, value);
    }

    /// Reads it from a call.
    ///
    /// # Errors
    /// `NoEnvelope` when it is absent or malformed.
    pub fn read(metadata: &MetadataMap) -> Result<Self, Refused> {
        let value = metadata.get_bin(ENTRY).and_then(|v| v.to_bytes().ok());
        let wire = value.and_then(|bytes| peer::Envelope::decode(bytes).ok());
        wire.and_then(|wire| Self::from_wire(&wire)).ok_or(Refused::NoEnvelope)
    }

    fn from_wire(wire: &peer::Envelope) -> Option<Self> {
        Some(Self {
            cluster: ClusterId::from_slice(&wire.cluster_id).ok()?,
            from: identity(wire.from_node, &wire.from_incarnation)?,
            to: identity(wire.to_node, &wire.to_incarnation)?,
        })
    }

    /// Checks that the call is meant for the node `here` of `cluster`, and that
    /// its sender is the one that the membership `recorded` under that number, as
    /// far as it is known here.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn check(
        &self,
        here: Identity,
        cluster: Option<ClusterId>,
        recorded: Option<[u8; 16]>,
    ) -> Result<(), Refused> {
        let node = here.node;
        let theirs = self.cluster;
        let Some(ours) = cluster else {
            return Err(Refused::NoCluster { here: node, theirs });
        };
        if ours != theirs {
            return Err(Refused::OtherCluster { here: node, ours, theirs });
        }
        if self.to.node != node {
            return Err(Refused::OtherNode { meant: self.to.node, here: node });
        }
        if self.to.incarnation != here.incarnation {
            let (recorded, present) = (self.to.incarnation, here.incarnation);
            return Err(Refused::ReceiverReplaced { here: node, recorded, present });
        }
        match recorded {
            Some(recorded) if recorded != self.from.incarnation => {
                let (from, present) = (self.from.node, self.from.incarnation);
                Err(Refused::SenderReplaced { from, recorded, present })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// An identity from its parts on the wire.
pub(crate) fn identity(node: u64, incarnation: &[u8]) -> Option<Identity> {
    Some(Identity { node, incarnation: incarnation.try_into().ok()? })
}
