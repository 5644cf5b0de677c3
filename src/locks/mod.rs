//! The rules: commands in, effects out. No clock, no IO, no async, no random, no
//! iteration order of hash maps: a pure function of the log. [I10]

#![warn(clippy::wildcard_enum_match_arm, reason = "a new command stops the build where it is due")]

pub mod command;
pub mod effect;
pub mod ids;
pub mod rows;

pub use command::*;
pub use effect::*;
pub use ids::*;
pub use rows::*;
