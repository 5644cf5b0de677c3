//! The storage on a real disk: what openraft demands of it, groups and their order,
//! rows, and what is refused at the start.
#![cfg(feature = "server")]

mod group;
mod kit;
mod machine;
mod open;
mod rows;
mod suite;
