//! Ringfence: a Raft-replicated lock authority that grants time-bound leases over
//! named resources, stamps each grant with a fencing token, and ships the check at
//! the destination that refuses a stale owner's write.
//!
//! # What holds
//!
//! A lock cannot stop a paused process. What can is a number that grows with every
//! grant, and a destination that remembers the highest one it has seen:
//!
//! ```text
//! A takes job/7, token 41, and is paused past its lease
//! B takes job/7, token 42, and raises the mark at the destination
//! A wakes and writes with 41: refused
//! ```
//!
//! - Tokens grow in the order of the log, for any resource, through leader failover,
//!   restart and crash: one counter, in the replicated state, moved by the same entry
//!   that makes the grant ([`locks`]).
//! - A session is not expired before its client's own deadline has passed, whatever
//!   happens to leaders, as long as clock *rates* differ by less than the client's
//!   allowance ([`leases`], [`client`]).
//! - A request takes effect at most once under its request id, and an answer is done,
//!   refused or unknown, never a guess ([`raft::ProposeError`], [`wire::reason`]).
//! - At a destination a mark never falls, and no write below it is applied ([`fence`]).
//!
//! `docs/GUARANTEES.md` says each under its assumptions, and what is not promised.
//!
//! # Layers
//!
//! ```text
//! bare     locks     the rules: commands in, effects out
//!          leases    deadlines: time is an argument
//!          fence     the rule at the destination
//! client   wire      messages, and the only conversions
//!          clock     the only reader of clocks
//!          client    sessions, guards, retries
//!          fence     the adapters of destinations, each behind its feature
//! server   storage   RocksDB: one writer, log, rows
//!          raft      openraft behind Replica; peers
//!          feed      the last events, and who watches
//!          authority table, leases, feed and waiting calls behind one lock
//!          leader    renewals and expiry, a term at a time
//!          api       gRPC
//!          server    one node, put together
//! ```
//!
//! Each is unable to see what it must not know: features draw the rungs, and
//! `tests/tidy.rs` the edges between the folders.
//!
//! # One acquire
//!
//! 1. [`client::Session::acquire`] numbers the request and calls the leader.
//! 2. `api::locks::acquire` checks the message once and proposes
//!    [`locks::Command::Acquire`].
//! 3. [`raft::Replica::propose`] encodes nothing again: the command's bytes go to the
//!    log and to the peers as they are.
//! 4. [`storage`] makes the entry readable at once; its one writer puts everything
//!    queued into one synced write.
//! 5. Committed, the entry reaches `raft::machine`, and [`locks::LockTable::apply`]
//!    decides: granted with the next token, queued, or refused. [`leases`] observe;
//!    rows are written behind.
//! 6. The outcome goes back as it is. A queued call awaits its wait in [`authority`]; a
//!    later release or expiry grants and wakes exactly it.

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
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod feed;
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
pub mod server;
#[cfg(feature = "server")]
pub mod storage;
#[cfg(feature = "server")]
pub mod telemetry;
#[cfg(feature = "client")]
pub mod wire;

/// The examples of the README compile.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../README.md")]
struct Readme;
