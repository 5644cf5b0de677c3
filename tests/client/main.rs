//! The client against a scripted authority: what it does when replies are lost,
//! links go dark, nodes change their minds and the application lets go.
#![cfg(feature = "client")]

mod admin;
mod answers;
mod authority;
mod chaos;
mod elections;
mod handoff;
mod holders;
mod lease;
mod modes;
mod node;
mod requests;
mod routes;
mod service;

mod strict;
mod table;
mod validation;
mod waits;
mod watches;
mod watching;
