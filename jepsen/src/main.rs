//! The fault-injection suite of Ringfence.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use ringfence_jepsen::means::{probe, subject};
use ringfence_jepsen::{dest, rehearsal, run, worker};

/// Real processes under real faults, and histories that are checked.
#[derive(Parser)]
#[command(name = "jepsen")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Try every means of making faults on this machine, and say which do not work.
    Probe,
    /// Drive a cluster through faults, check what happened, and say whether it was lawful. Exits
    /// 0 if it was, 1 if not, 2 if that is unknown.
    Run(run::Options),
    /// Random overlapping faults, a new seed for each run; stops at the first violation and
    /// keeps it.
    Soak(run::soak::Soak),
    /// Check what a run left in a folder. Exits 0 if it is valid, 1 if not, 2 if unknown.
    Check {
        /// The folder with history.jsonl.
        folder: PathBuf,
    },
    /// Let a toy authority make a history, and check it.
    Rehearse(Rehearsal),
    /// Do on standard output what standard input orders: a client.
    #[command(hide = true)]
    Worker,
    /// A protected destination.
    #[command(hide = true)]
    Dest(dest::Options),
    /// Answer standard input: the program that the means are tried on.
    #[command(hide = true)]
    Subject {
        /// Where it writes.
        folder: PathBuf,
    },
}

#[derive(clap::Args)]
struct Rehearsal {
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
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("jepsen: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Probe => probe::print(&std::env::current_exe()?),
        Command::Run(options) => run::run(&options),
        Command::Soak(options) => run::soak::soak(&options),
        Command::Check { folder } => run::verdict::judge(&folder),
        Command::Rehearse(options) => rehearse(options),
        Command::Worker => worker::serve().map(|()| ExitCode::SUCCESS),
        Command::Dest(options) => dest::serve(&options).map(|()| ExitCode::SUCCESS),
        Command::Subject { folder } => subject::serve(&folder).map(|()| ExitCode::SUCCESS),
    }
}

fn rehearse(options: Rehearsal) -> Result<ExitCode> {
    let Rehearsal { ops, seed, clients, mutant, store } = options;
    let scratch = tempfile::tempdir()?;
    let folder: &Path = &store.unwrap_or_else(|| scratch.path().join("run"));
    std::fs::create_dir_all(folder)?;
    rehearsal::run(folder, mutant, seed, ops, clients)?;
    run::verdict::judge(folder)
}
