//! The command line against a scripted authority: exit codes, what a command under
//! `lock` is given and when it is ended, and the shape of what is printed.
#![cfg(feature = "server")]
#![allow(clippy::unwrap_used, reason = "in a test a failed unwrap is the report")]

mod authority;
mod by_hand;
mod calls;
#[path = "../support/cluster.rs"]
mod cluster;
mod codes;
mod ends;
mod lease;
mod modes;
mod reads;
mod real;
mod run;
mod service;
mod signals;
mod texts;
mod watching;
