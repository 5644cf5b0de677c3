//! The destination's side, on the real stores. [I8]

mod rule;
mod stories;
