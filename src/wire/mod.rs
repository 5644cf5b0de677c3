//! Generated message types, and the only conversions between them and the rules.

pub mod api;
pub mod events;
mod fence;
#[cfg(feature = "server")]
mod fields;
#[cfg(feature = "server")]
pub mod log;
#[cfg(feature = "server")]
mod outcome;
pub mod reason;
#[cfg(feature = "server")]
pub mod rows;
pub mod views;

pub use reason::{Reason, Told};

/// The largest answer that a client or a forwarding node reads: all that one session
/// holds, under long names. Bytes.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The public API, `proto/ringfence/v1`.
#[allow(warnings, reason = "generated text keeps no habits")]
pub mod v1 {
    tonic::include_proto!("ringfence.v1");
}

/// The public API as its own description, for gRPC reflection.
#[cfg(feature = "server")]
pub const PUBLIC_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/public.bin"));

/// What is written to disk, `proto/ringfence/storage/v1`.
#[cfg(feature = "server")]
#[allow(warnings, reason = "generated text keeps no habits")]
pub mod storage {
    tonic::include_proto!("ringfence.storage.v1");
}

/// What nodes say to each other, `proto/ringfence/peer/v1`.
#[cfg(feature = "server")]
#[allow(warnings, reason = "generated text keeps no habits")]
pub mod peer {
    tonic::include_proto!("ringfence.peer.v1");
}
