//! What a crash leaves of the storage: killed processes, torn and damaged files, full
//! disks.
#![cfg(feature = "server")]

#[path = "../storage/kit.rs"]
mod kit;

mod damage;
mod full;
mod killed;
mod story;
