//! Replicas over real loopback sockets: election, proposals, confirmed
//! leadership, the door, snapshots, failover. Log and state machine are small
//! stand-ins in memory; the sockets, the protocol and openraft are real.
#![cfg(feature = "server")]

mod bootstrap;
mod cluster;
mod door;
mod elections;
mod failover;
mod net;
mod proposals;
mod snapshots;
mod store;
