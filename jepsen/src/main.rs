//! Fault injection for Ringfence.

#[allow(dead_code, unused_imports, reason = "the runner that writes histories is not there yet")]
mod history;

fn main() {}
