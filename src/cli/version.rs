//! `ringfence version`.

use serde::Serialize;

use super::exit::{Exit, Failure};
use super::output::{self, Format};

/// Print the version
#[derive(Debug, clap::Args)]
pub struct Args {}

#[derive(Debug, Serialize)]
struct Answer {
    version: &'static str,
}

/// Prints.
///
/// # Errors
/// What stdout says.
pub fn run(format: Format, _args: &Args) -> Result<Exit, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    match format {
        Format::Json => output::json(&Answer { version })?,
        Format::Table => output::text(&format!("ringfence {version}\n"))?,
    }
    Ok(Exit::Done)
}
