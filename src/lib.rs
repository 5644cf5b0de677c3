//! Ringfence: a Raft-replicated lock authority with fencing tokens.

#[cfg(feature = "server")]
pub mod api;
#[cfg(feature = "server")]
pub mod authority;
#[cfg(feature = "server")]
pub mod cli;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "client")]
pub mod clock;
pub mod fence;
#[cfg(feature = "server")]
pub mod leader;
pub mod leases;
pub mod locks;
#[cfg(feature = "server")]
pub mod raft;
#[cfg(feature = "server")]
pub mod raft_types;
#[cfg(feature = "server")]
pub mod storage;
#[cfg(feature = "client")]
pub mod wire;
