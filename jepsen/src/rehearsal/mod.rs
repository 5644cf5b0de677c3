//! A rehearsal of the checkers: a toy authority with seeded bugs, whose histories are checked
//! like any other. The correct toy must be acquitted, each broken one convicted.

mod act;
#[allow(missing_docs, reason = "the toy's fields are what their names say")]
mod authority;
mod client;
mod destination;
mod mutant;
mod world;

pub use mutant::Mutant;
pub use world::run;

#[cfg(test)]
mod tests;
