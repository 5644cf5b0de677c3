//! `ringfence bench`: what a cluster does under a closed loop, as any client sees it.

mod cycles;
mod failover;
mod handoffs;
mod load;
mod memory;
mod names;
mod progress;
mod raw;
mod renewals;
mod report;
mod target;
mod times;

use std::path::PathBuf;
use std::time::Duration;

use super::connect::{Connection, any_time, some_time};
use super::exit::{Exit, Failure};
use super::output::{self, Format};
use super::signals::Signals;
use load::Span;
use report::Report;
use target::Target;

/// Measure a cluster: its own, or the one at --endpoints
///
/// Every client asks again as soon as it has its answer, and counts what was
/// acknowledged. Clients and nodes share this machine, and with it processor and disk:
/// compare figures of one run with each other, or of two versions run in turn; they say
/// nothing of another machine. A build without optimisation (`cargo build`) is several
/// times slower: `make bench` builds one that is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
MEASUREMENTS
  cycles     each client takes and releases a resource of its own, at each number of
             --clients: two entries in the log, each synced by a majority
  handoffs   --waiters take turns at one resource: how often, and how long from a
             release to the next grant
  renewals   --sessions renew over --streams as fast as they are answered
  failover   the leader is killed --kills times under light load: the longest time
             between two acknowledged acquires (own cluster only)
  names      --names are taken and released once each: what the leader takes after each
             tenth of them (own cluster only)
  memory     --locks are held in --lock-sessions; what a node takes for it, and how long
             it takes to be back after a SIGKILL (own cluster only)

EXAMPLES
  ringfence bench                                  all of it, in a temporary folder
  ringfence bench cycles --clients 64 --seconds 10
  ringfence bench failover --kills 20 -o json
  ringfence --endpoints a:7411,b:7411,c:7411 bench cycles renewals --external

In JSON, times are microseconds and sizes bytes.")]
pub struct Args {
    /// What to measure [default: all that the cluster allows]
    #[arg(value_enum, value_name = "MEASUREMENT")]
    what: Vec<What>,
    /// Load the cluster at --endpoints, instead of starting one
    #[arg(long)]
    external: bool,
    /// Nodes of the own cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// Port of the first node; the others take the next ones [default: free ones]
    #[arg(long)]
    port: Option<u16>,
    /// Folder on the disk to be measured [default: the system's temporary folder]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// How long each load is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How long each load runs before it is measured
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = any_time)]
    warm_up: Duration,
    /// Numbers of clients of the cycles
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,8,64,256")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    clients: Vec<u16>,
    /// How many clients share one connection at most
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    share: u16,
    /// Clients that take turns at one resource
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..))]
    waiters: u16,
    /// Sessions that are renewed
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    sessions: u32,
    /// Streams that they are renewed over
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    streams: u32,
    /// How often the leader is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    kills: u32,
    /// Names that are used once
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(10..))]
    names: u64,
    /// Locks that are held
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    locks: u32,
    /// Sessions that hold them
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    lock_sessions: u32,
    /// The clients' lease
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = some_time)]
    ttl: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Cycles,
    Handoffs,
    Renewals,
    Failover,
    Names,
    Memory,
}

impl What {
    const ALL: [Self; 6] =
        [Self::Cycles, Self::Handoffs, Self::Renewals, Self::Failover, Self::Names, Self::Memory];

    /// Whether it kills nodes, or looks into their processes.
    const fn needs_own_cluster(self) -> bool {
        match self {
            Self::Cycles | Self::Handoffs | Self::Renewals => false,
            Self::Failover | Self::Names | Self::Memory => true,
        }
    }
}

/// Measures and prints.
///
/// # Errors
/// What kept it from measuring.
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let what = args.what()?;
    let mut signals = Signals::listen()?;
    let report = tokio::select! {
        report = Box::pin(measure(to, &args, &what)) => report?,
        // What was started is stopped by now: all of it was the other future's.
        signal = signals.end() => return Ok(Exit::signalled(signal as i32)),
    };
    match format {
        Format::Json => output::json(&report)?,
        Format::Table => output::text(&report.table())?,
    }
    Ok(Exit::Done)
}

impl Args {
    fn what(&self) -> Result<Vec<What>, Failure> {
        let usage = |what: &str| Failure::new(Exit::Usage, what);
        if self.external && self.what.iter().any(|what| what.needs_own_cluster()) {
            return Err(usage(
                "failover, names and memory need a cluster of their own: no --external",
            ));
        }
        if self.nodes < 3 && self.what.contains(&What::Failover) {
            return Err(usage("failover needs three --nodes or more: a majority goes on"));
        }
        let possible = What::ALL.into_iter().filter(|what| {
            let others = self.external && what.needs_own_cluster();
            let too_few = self.nodes < 3 && *what == What::Failover;
            !others && !too_few
        });
        let chosen = |what: &What| self.what.is_empty() || self.what.contains(what);
        Ok(possible.filter(chosen).collect())
    }

    const fn span(&self) -> Span {
        Span { warm_up: self.warm_up, seconds: self.seconds }
    }
}

async fn measure(to: &Connection, args: &Args, what: &[What]) -> anyhow::Result<Report> {
    let mut report = Report::new(args.external, args.nodes);
    let span = args.span();
    // What is held stays held: it has a cluster of its own, the last one.
    if what.iter().any(|what| *what != What::Memory) {
        let mut target = Target::of(to, args).await?;
        for what in what {
            match what {
                What::Cycles => {
                    for clients in &args.clients {
                        let asked = cycles::Asked { clients: *clients, share: args.share };
                        report.cycles.push(cycles::run(&mut target, asked, args.ttl, span).await?);
                    }
                }
                What::Handoffs => {
                    let waiters = args.waiters;
                    report.handoffs =
                        Some(handoffs::run(&mut target, waiters, args.ttl, span).await?);
                }
                What::Renewals => {
                    let asked = renewals::Asked { sessions: args.sessions, streams: args.streams };
                    report.renewals = Some(renewals::run(&mut target, asked, span).await?);
                }
                What::Failover => {
                    let nodes = target.own()?;
                    report.failover = Some(failover::run(nodes, args.kills, args.ttl).await?);
                }
                What::Names => {
                    report.names = Some(names::run(&mut target, args.names).await?);
                }
                What::Memory => {}
            }
        }
    }
    if what.contains(&What::Memory) {
        let mut target = Target::of(to, args).await?;
        let asked = memory::Asked { locks: args.locks, sessions: args.lock_sessions };
        report.memory = Some(memory::run(&mut target, asked).await?);
    }
    Ok(report)
}
