//! Fault injection for Ringfence.

#[allow(dead_code, unused_imports, reason = "the runner that fills these in is not there yet")]
mod check;
#[allow(dead_code, unused_imports, reason = "the runner that writes histories is not there yet")]
mod history;

fn main() {}
