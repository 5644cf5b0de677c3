//! The destination's side: the check that refuses a stale owner's write.
//!
//! A lock alone cannot stop a process that was paused past its lease and wakes
//! up in the middle of a write. So every protected write carries the [`Fence`]
//! of its grant, and the destination keeps a durable high-water mark for each
//! resource. In the same atomic step as the write ([`rule`]):
//!
//! ```text
//! accept  iff  token >= mark(resource)  and, for a slot,  token >= mark(resource, slot)
//! then    mark(resource) = max(mark(resource), floor)
//!         and, for a slot,  mark(resource, slot) = max(mark(resource, slot), token)
//! ```
//!
//! (I8) A mark never falls, it survives a crash of the destination, and no write
//! with a token below it is applied. What makes this hold is that the writing
//! transaction keeps the mark locked from its check to its commit: a raise waits
//! for the writes that are already past the check. Reading the mark without
//! locking it is not enough at any isolation level, `SERIALIZABLE` included.
//!
//! | destination | module | the mark is as durable as |
//! | --- | --- | --- |
//! | memory of one process | [`memory`] | the process: for tests, and for destinations that die with it |
//! | SQLite | `sqlite` (feature `sqlite`) | the file: lower `synchronous` settings are refused |
//! | PostgreSQL | `postgres` (feature `postgres`) | the cluster: `synchronous_commit` is switched on |
//! | MySQL, MariaDB | `mysql` (feature `mysql`) | the server: settings that could lose it are refused |
//! | Redis, Valkey | `redis` (feature `redis`) | the server's `appendonly` and replication settings, no more |
//! | RocksDB | `rocksdb` (feature `rocksdb`) | the database: every guarded write is synced |
//! | files and directories | `file` (feature `file`) | the local file system: all is synced in its order |
//! | object stores | `object` (feature `object-store`) | the object: stores that keep no condition are refused |
//! | a service behind HTTP | `http` (feature `http`) | the store behind it, which the handler checks in, or which `hold` holds meanwhile |
//! | a service behind gRPC | `grpc` (feature `grpc`) | as over HTTP |
//! | one that can keep nothing | `validation` (feature `client`) | no mark: it asks the authority, which narrows the window and is no fence |
//!
//! What this does not do: it protects only what passes the check. It does not
//! make several writes atomic, does not deduplicate the retries of one holder
//! (equal tokens are accepted), cannot undo a write made before the newer token
//! reached the destination, and cannot protect an API that checks nothing.
//!
//! A new adapter is a module beside these: it stores what [`Marks`] holds, comes
//! to the same verdicts as [`decide`], and answers with [`FenceError`].

pub mod error;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "client")]
pub mod hold;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "file", feature = "object-store"))]
mod kept;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "object-store")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod rule;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod target;
#[cfg(feature = "client")]
pub mod validation;

pub use error::FenceError;
pub use memory::MemoryMarks;
pub use rule::{Marks, Refusal, Verdict, decide};
pub use target::{FenceTarget, Raising, target};

pub use crate::locks::Fence;

/// The examples of the user's page compile and run.
#[cfg(all(doctest, feature = "adapters"))]
#[doc = include_str!("../../docs/fences.md")]
struct UsersPage;
