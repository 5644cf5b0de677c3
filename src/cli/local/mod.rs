//! Processes of our own on this machine: what `demo` and `bench` start, and stop again.

mod folder;
mod nodes;
mod process;

use std::time::Duration;

pub use folder::Folder;
pub use nodes::{Leader, Nodes};
pub use process::{Process, itself};

/// How long one of them may take to do what is waited for.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is asked whether it has.
pub const POLL: Duration = Duration::from_millis(5);
