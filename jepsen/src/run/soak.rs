//! Run after run with random overlapping faults, until the time is over or a rule is broken.

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::options::time;
use super::{Choice, Options, once, verdict};
use crate::check::Valid;

/// Below this no further run is begun.
const SHORTEST: Duration = Duration::from_secs(20);

/// Options of `soak`.
#[derive(Debug, Clone, clap::Args)]
pub struct Soak {
    /// For how long, in hours.
    #[arg(long, default_value_t = 1.0)]
    pub hours: f64,
    /// How long each run takes before it heals.
    #[arg(long, value_parser = time, default_value = "10m")]
    pub each: Duration,
    #[command(flatten)]
    one: Options,
}

/// Runs until the time is over. Folders of valid runs keep their results and lose the rest.
///
/// # Errors
/// The harness failed.
pub fn soak(options: &Soak) -> Result<ExitCode> {
    let end = Instant::now() + Duration::from_secs_f64(options.hours.max(0.0) * 3_600.0);
    let mut one = options.one.clone();
    let mut runs = 0;
    let mut worst = Valid::True;
    // A shorter run says too little.
    while runs == 0 || end.saturating_duration_since(Instant::now()) > SHORTEST {
        one.time = options.each.min(end.saturating_duration_since(Instant::now()));
        let (valid, folder) = once(&one, Choice::Random)?;
        runs += 1;
        worst = worst.max(valid);
        if valid == Valid::False {
            println!("run {runs} broke a rule: seed {}, kept in {}", one.seed, folder.display());
            return Ok(verdict::code(valid));
        }
        if valid == Valid::True {
            for large in ["independent", "nodes"] {
                drop(fs::remove_dir_all(folder.join(large)));
            }
            for large in ["history.edn", "history.txt", "history.jsonl", "audit.jsonl"] {
                drop(fs::remove_file(folder.join(large)));
            }
        }
        println!("soak: {runs} runs without a violation");
        one.seed += 1;
    }
    Ok(verdict::code(worst))
}
