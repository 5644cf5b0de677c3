//! Named stories at the level of the rules: what users of such systems reported
//! (`scenario_…`), and the counterexamples of the contract (`counterexample_…`), each
//! of which is found when the rule that prevents it is switched off:
//! `cargo test --no-default-features --features switches --test stories`.

mod authority;
mod costs;
mod counterexamples;
mod deadlines;
mod fences;
mod first_release;
mod leaks;
mod modes;
mod scenarios;
