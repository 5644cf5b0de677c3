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
mod fenced;
mod fences;
mod lease;
#[allow(dead_code, reason = "the fences' own tests use the rest")]
#[path = "../support/mariadb.rs"]
mod mariadb_server;
mod modes;
#[path = "../support/postgres.rs"]
mod postgres_server;
mod reads;
mod real;
#[allow(dead_code, reason = "the fences' own tests use the rest")]
#[path = "../support/redis.rs"]
mod redis_server;
mod run;
mod service;
mod signals;
mod texts;
mod watching;
