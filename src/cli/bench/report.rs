//! What was measured, for people and for programs.

use serde::Serialize;

use super::cycles::Cycles;
use super::failover::Failover;
use super::handoffs::Handoffs;
use super::memory::Memory;
use super::names::{Names, Taken};
use super::renewals::Renewals;
use super::times::{Percentiles, shown};
use crate::cli::output::{self, NONE};

/// All measurements of one run; what was not measured is absent.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// At each number of clients.
    pub cycles: Vec<Cycles>,
    /// If measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handoffs: Option<Handoffs>,
    /// If measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewals: Option<Renewals>,
    /// If measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// If measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Names>,
    /// If measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// What shares its processors among clients and, unless they are elsewhere, nodes.
#[derive(Debug, Serialize)]
pub struct Machine {
    version: &'static str,
    /// False: figures are of an unoptimised build.
    optimised: bool,
    processors: usize,
    /// Nodes on this machine; 0 if they are elsewhere, or somebody else's.
    nodes: u16,
}

impl Report {
    /// Nothing yet.
    pub fn new(external: bool, nodes: u16) -> Self {
        let machine = Machine {
            version: env!("CARGO_PKG_VERSION"),
            optimised: is_optimised(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            nodes: if external { 0 } else { nodes },
        };
        let cycles = Vec::new();
        Self {
            machine,
            cycles,
            handoffs: None,
            renewals: None,
            failover: None,
            names: None,
            memory: None,
        }
    }

    /// A line for each measurement.
    pub fn table(&self) -> String {
        let mut rows: Vec<Vec<String>> = self.cycles.iter().map(cycles).collect();
        rows.extend(self.handoffs.iter().map(handoffs));
        rows.extend(self.renewals.iter().map(renewals));
        rows.extend(self.failover.iter().map(failover));
        let header = ["MEASURED", "PER SECOND", "P50", "P99", "MAX", "AND"];
        let mut text = output::table(&header, rows);
        if let Some(names) = &self.names {
            text += &format!("\n{}", used_once(names));
        }
        if let Some(memory) = &self.memory {
            text += &format!("\n{}", held(memory));
        }
        let Machine { version, optimised, processors, nodes } = &self.machine;
        let build = if *optimised { "" } else { ", NOT OPTIMISED: see make bench" };
        text + &format!(
            "\n{version}{build}; {processors} processors for {nodes} nodes and all clients\n"
        )
    }
}

/// Whether this crate was built for speed; `debug_assertions` may be on all the same.
fn is_optimised() -> bool {
    matches!(env!("RINGFENCE_OPT_LEVEL"), "2" | "3")
}

fn row(what: String, per_second: f64, times: &Percentiles, and: String) -> Vec<String> {
    let Percentiles { p50_us, p99_us, max_us } = *times;
    vec![what, format!("{per_second:.0}"), shown(p50_us), shown(p99_us), shown(max_us), and]
}

fn cycles(cycles: &Cycles) -> Vec<String> {
    // Nodes of somebody else's do not tell.
    let processor = match cycles.processor_us_per_cycle {
        0.0 => String::new(),
        micros => format!(", {micros:.0} µs of processor"),
    };
    let and = format!(
        "acquire p50 {}, p99 {}; a cycle costs {:.2} syncs at the leader, {:.2} in all{processor}",
        shown(cycles.acquire.p50_us),
        shown(cycles.acquire.p99_us),
        cycles.leader_syncs_per_cycle,
        cycles.syncs_per_cycle
    );
    let what = format!("lock cycles, {} clients", cycles.clients);
    row(what, cycles.per_second, &cycles.cycle, and)
}

fn handoffs(handoffs: &Handoffs) -> Vec<String> {
    let what = format!("handoffs, {} waiters", handoffs.waiters);
    let and = format!("release to next grant; waited p50 {}", shown(handoffs.wait.p50_us));
    row(what, handoffs.per_second, &handoffs.handoff, and)
}

fn renewals(renewals: &Renewals) -> Vec<String> {
    let what = format!("renewals, {} sessions", renewals.sessions);
    let and = format!("{} streams, {:.0} in a round", renewals.streams, renewals.per_round);
    row(what, renewals.per_second, &renewals.renewal, and)
}

fn failover(failover: &Failover) -> Vec<String> {
    let and = format!(
        "elected after {}, worst {}; the slowest client: {}, worst {}",
        shown(failover.elected_median_us),
        shown(failover.elected_worst_us),
        shown(failover.client_gap_median_us),
        shown(failover.client_gap_worst_us)
    );
    let what = format!("failover gap, {} kills", failover.kills);
    let (median, worst) = (shown(failover.gap_median_us), shown(failover.gap_worst_us));
    vec![what, NONE.to_owned(), median, NONE.to_owned(), worst, and]
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

/// What the leader took before them, and after each tenth.
fn used_once(names: &Names) -> String {
    let list = |of: fn(&Taken) -> u64| {
        names.leader.iter().map(|taken| mib(of(taken))).collect::<Vec<_>>().join(", ")
    };
    format!(
        "{} names used once each, {:.0}/s; the leader before, and after each tenth\n  \
         resident: {}\n  data: {}\n",
        names.names,
        names.per_second,
        list(|taken| taken.resident_bytes),
        list(|taken| taken.data_bytes)
    )
}

fn held(memory: &Memory) -> String {
    let Memory { locks, sessions, per_second, .. } = memory;
    format!(
        "{locks} locks held in {sessions} sessions, taken at {per_second:.0}/s\n  \
         resident: leader {} (empty {}), follower {}, restarted {}\n  \
         data: {}; restart after a SIGKILL: {}\n",
        mib(memory.leader_bytes),
        mib(memory.leader_empty_bytes),
        mib(memory.follower_bytes),
        mib(memory.restarted_bytes),
        mib(memory.data_bytes),
        shown(memory.restart_us)
    )
}
