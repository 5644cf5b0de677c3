//! The fault-injection suite of Ringfence.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use ringfence_jepsen::means::{probe, subject};

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
    /// Answer standard input: the program that the means are tried on.
    #[command(hide = true)]
    Subject {
        /// Where it writes.
        folder: PathBuf,
    },
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
        Command::Subject { folder } => subject::serve(&folder).map(|()| ExitCode::SUCCESS),
    }
}
