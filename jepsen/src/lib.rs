//! Fault injection for Ringfence: real processes under real faults on one machine.

pub mod check;
pub mod history;
pub mod means;
