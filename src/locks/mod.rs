//! The rules: commands in, effects out.
//!
//! No clock, no IO, no async, no random, no iteration order of hash maps: a pure
//! function of the log. (I10) A command enters at [`LockTable::apply`], goes
//! through one exhaustive match (`entry`) to the file of its subject (`sessions`,
//! `requests`, `claims`, `queue`), and comes out as [`Effects`]: the outcome, what
//! happened, facts for the leases, and the rows to write through.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new command stops the build where it is due")]

mod administration;
mod check;
pub mod claim;
mod claims;
pub mod command;
mod deadlock;
pub mod effect;
mod entry;
mod grants;
mod hash;
pub mod ids;
mod image;
mod queue;
mod requests;
pub mod rows;
mod session;
mod sessions;
mod slots;
mod switches;
mod table;
mod view;

pub use claim::*;
pub use command::*;
pub use effect::*;
pub use hash::StateHash;
pub use ids::*;
pub use image::BadImage;
pub use rows::*;
pub use switches::{Rule, Switches};
pub use table::LockTable;
pub use view::{ResourceView, SessionView};
