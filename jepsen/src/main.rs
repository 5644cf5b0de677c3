//! Fault injection for Ringfence.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[allow(dead_code, unused_imports, reason = "the runner that fills these in is not there yet")]
mod check;
#[allow(dead_code, unused_imports, reason = "the runner that writes histories is not there yet")]
mod history;
mod rehearsal;

/// Fault injection for Ringfence.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Checks what a run left in a folder. Exits 0 if it is valid, 1 if not, 2 if unknown.
    Check {
        /// The folder with history.jsonl.
        folder: PathBuf,
    },
    /// Lets a toy authority make a history, and checks it.
    Rehearse {
        /// Operations, about.
        #[arg(long, default_value_t = 20_000)]
        ops: u64,
        /// What is drawn at random is drawn from it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Clients.
        #[arg(long, default_value_t = 12)]
        clients: usize,
        /// A seeded bug.
        #[arg(long)]
        mutant: Option<rehearsal::Mutant>,
        /// A new folder for what the run leaves; without one it is removed.
        #[arg(long)]
        store: Option<PathBuf>,
    },
}

fn main() -> Result<ExitCode> {
    match Cli::parse().command {
        Command::Check { folder } => judge(&folder),
        Command::Rehearse { ops, seed, clients, mutant, store } => {
            let scratch = tempfile::tempdir()?;
            let folder = store.unwrap_or_else(|| scratch.path().join("run"));
            std::fs::create_dir_all(&folder)?;
            rehearsal::run(&folder, mutant, seed, ops, clients)?;
            judge(&folder)
        }
    }
}

/// Checks a run, writes the results beside it and prints what was found.
fn judge(folder: &Path) -> Result<ExitCode> {
    let begun = Instant::now();
    let run = check::Run::load(folder)?;
    let loaded = begun.elapsed();
    let verdicts = check::check(&run);
    let (took, events) = (begun.elapsed(), run.evidence.events);
    check::write_results(folder, &verdicts)?;
    for verdict in &verdicts {
        print!("{verdict}");
    }
    println!(
        "{events} events read in {loaded:.1?}, checked in {:.1?}",
        took.saturating_sub(loaded)
    );
    Ok(ExitCode::from(match check::over_all(&verdicts) {
        check::Valid::True => 0,
        check::Valid::False => 1,
        check::Valid::Unknown => 2,
    }))
}
