//! Fault injection for Ringfence: real processes under real faults on one machine.

#[allow(missing_docs, reason = "fields are what the table of the module calls them")]
pub mod check;
pub mod cluster;
pub mod dest;
pub mod history;
pub mod means;
pub mod nemesis;
pub mod rehearsal;
pub mod run;
pub mod worker;
pub mod workload;
