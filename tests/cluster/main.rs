//! Clusters of real processes: nodes are killed, frozen and cut off, replies are lost
//! and clients die, and what the contract promises holds.
#![cfg(feature = "server")]

#[path = "../support/cluster.rs"]
mod cluster;
mod proxy;
mod watching;
mod wire;

mod administration;
mod api;
mod bounds;
mod client;
mod clocks;
mod explain;
mod failover;
mod folders;
mod mixed;
mod refusals;
mod retries;
mod sessions;
mod slots;
mod waiting;
mod watch;
mod watch_ends;
