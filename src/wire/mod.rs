//! Generated message types, and the only conversions between them and the rules.

mod fence;
pub mod reason;

pub use reason::{Reason, Told};

/// The public API, `proto/ringfence/v1`.
pub mod v1 {
    tonic::include_proto!("ringfence.v1");
}

/// What is written to disk, `proto/ringfence/storage/v1`.
pub mod storage {
    tonic::include_proto!("ringfence.storage.v1");
}

/// What nodes say to each other, `proto/ringfence/peer/v1`.
#[cfg(feature = "server")]
pub mod peer {
    tonic::include_proto!("ringfence.peer.v1");
}
