//! Fault injection for Ringfence.
fn main() {}
