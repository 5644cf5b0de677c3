//! The destination's side, on the real stores. [I8]

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres_server;
mod rule;
#[cfg(feature = "sqlite")]
mod sqlite;
// Each rung uses what its stores need of it.
#[cfg_attr(not(all(feature = "sqlite", feature = "postgres")), allow(dead_code))]
mod stories;
