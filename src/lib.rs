//! Ringfence: a Raft-replicated lock authority with fencing tokens.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod clock;
pub mod locks;
#[cfg(feature = "server")]
pub mod raft_types;
#[cfg(feature = "client")]
pub mod wire;
