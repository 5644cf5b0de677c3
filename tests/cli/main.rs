//! The command line against a scripted authority: exit codes, what a command under
//! `lock` is given and when it is ended, and the shape of what is printed.
#![cfg(feature = "server")]

mod authority;
mod codes;
mod ends;
mod lease;
mod reads;
mod run;
mod service;
mod signals;
mod texts;
