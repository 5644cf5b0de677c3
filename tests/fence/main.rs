//! The destination's side, on the real stores. [I8]

mod rule;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stories;
