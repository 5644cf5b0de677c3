//! Ringfence: a Raft-replicated lock authority with fencing tokens.

pub mod locks;
#[cfg(feature = "server")]
pub mod raft;
#[cfg(feature = "server")]
pub mod raft_types;
#[cfg(feature = "client")]
pub mod wire;
