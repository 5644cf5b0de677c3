//! What makes faults. Everything here acts on this machine for real, needs root, and belongs to
//! a [`Run`]: it carries the run's id, is written down before it is made, and is taken away when
//! the run ends or, if the run was killed, when the next one starts.
//!
//! - [`net`]: network namespaces on one switch of our own, with rules per directed link.
//! - [`disk`]: data folders on ext4 images, with power cuts, and damage to files.
//! - [`shim`]: clocks and disk errors of one process, through the preload library.
//! - [`process`]: starting, pausing and killing processes; [`starve`] takes the CPU from them.
//! - [`probe`]: tries each of these and says what does not work here.

mod command;
pub mod disk;
mod made;
pub mod net;
pub mod probe;
pub mod proc;
pub mod process;
pub mod run;
pub mod shim;
pub mod starve;
pub mod subject;

pub use run::Run;
