//! A seeded simulation of the whole authority: the real `locks` and `leases` on 1, 3
//! and 5 nodes over an idealised log, with drifting clocks, pauses, partitions,
//! restarts, snapshots, lost, late and repeated messages, clients and a fenced
//! destination. Each invariant of the contract has a file in `properties`.
//!
//! `SIM_SEEDS=n` runs so many seeds, `SIM_SEED=k` one of them with its whole trace.

#![allow(
    clippy::cast_possible_truncation,
    reason = "indices of runs that last ten seconds fit everything"
)]
#![allow(missing_docs, reason = "nothing here is public")]
#![allow(
    clippy::unused_self,
    clippy::too_many_arguments,
    clippy::trivially_copy_pass_by_ref,
    reason = "all properties are asked in the same way, whatever one needs of it"
)]

mod administrator;
mod campaign;
mod client;
mod counterexamples;
mod counts;
mod destination;
mod faults;
mod log;
mod network;
mod node;
mod orders;
mod properties;
mod recovery;
mod replication;
mod rng;
mod shell;
mod simulation;
mod time;
mod trace;
mod waiting;
mod world;

use std::env;
use std::time::Instant;

use campaign::{campaign, report};
use counts::Count;
use faults::{Setup, Weather};
use ringfence::locks::{Rule, Switches};
use simulation::run;

/// How many seeds `make test` runs.
const SEEDS: u64 = 20_000;
/// From how many seeds on the counts say something.
const SEEDS_COUNTED: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// `SIM_WEATHER` of that one seed.
fn weather() -> Weather {
    let text = env::var("SIM_WEATHER").unwrap_or_default();
    let named = Weather::ALL.into_iter().find(|weather| text == format!("{weather:?}"));
    named.unwrap_or_default()
}

#[test]
fn the_contract_as_written_holds_on_every_seed() {
    let setup = Setup { weather: weather(), ..Setup::default() };
    if let Some(seed) = number("SIM_SEED") {
        let report = run(seed, setup, true);
        println!("{}\n\n{}", report.lines.join("\n"), report.counts.table());
        assert_eq!(report.violation, None);
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let began = Instant::now();
    let done = campaign(seeds, setup);
    if let Some(failure) = &done.failure {
        panic!("{}", report(failure, setup));
    }
    println!("{}{seeds} seeds in {:.1?}", done.counts.table(), began.elapsed());
    if seeds >= SEEDS_COUNTED {
        let few = done.counts.too_few(seeds);
        assert!(few.is_empty(), "not exercised enough:\n{}", few.join("\n"));
    }
}

#[test]
fn the_contract_as_written_holds_in_bad_weather() {
    for weather in [Weather::Slow, Weather::Catching, Weather::Queueing] {
        let setup = Setup { weather, ..Setup::default() };
        let done = campaign(number("SIM_SEEDS").unwrap_or(SEEDS) / 20, setup);
        if let Some(failure) = &done.failure {
            panic!("{}", report(failure, setup));
        }
    }
}

#[test]
fn the_contract_as_written_holds_when_grants_are_left_for_later_entries() {
    let rules = Switches::without(Rule::EntriesAreLarge);
    let setup = Setup { rules, small_entries: true, ..Setup::default() };
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS) / 10;
    let done = campaign(seeds, setup);
    if let Some(failure) = &done.failure {
        panic!("{}", report(failure, setup));
    }
    let settles = done.counts.of(Count::Settles);
    assert!(settles * 1000 >= 10 * seeds, "only {settles} entries were made for what was left");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let mut told = 0;
    for seed in 0..40 {
        let (one, two) = (run(seed, Setup::default(), true), run(seed, Setup::default(), true));
        assert_eq!(one.lines, two.lines, "seed {seed}");
        assert_eq!(one.trace_hash, two.trace_hash, "seed {seed}");
        let untold = run(seed, Setup::default(), false);
        assert_eq!(one.trace_hash, untold.trace_hash, "seed {seed} when nobody reads it");
        let other = run(seed + 1, Setup::default(), false);
        assert_ne!(one.trace_hash, other.trace_hash, "seeds {seed} and the next");
        told += one.lines.len();
    }
    assert!(told > 40 * 500, "traces tell little: {told} lines");
}
