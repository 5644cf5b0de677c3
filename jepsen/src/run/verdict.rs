//! From the files of a run to its verdict.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;

use crate::check::{self, Valid, Verdict};

/// Checks what `folder` holds, writes `results.json`, `results.edn` and `coverage.json` beside
/// it, and prints what was found. The code is 0, 1 or 2: valid, invalid, unknown.
///
/// # Errors
/// The files cannot be read, or results cannot be written.
pub fn judge(folder: &Path) -> Result<ExitCode> {
    let valid = verdict(folder)?;
    Ok(code(valid))
}

/// The exit code of a verdict.
#[must_use]
pub fn code(valid: Valid) -> ExitCode {
    ExitCode::from(match valid {
        Valid::True => 0,
        Valid::False => 1,
        Valid::Unknown => 2,
    })
}

/// As [`judge`], and the verdict itself.
///
/// # Errors
/// As [`judge`].
pub fn verdict(folder: &Path) -> Result<Valid> {
    let begun = Instant::now();
    let run = check::Run::load(folder)?;
    let loaded = begun.elapsed();
    let verdicts = check::check(&run);
    let took = begun.elapsed().saturating_sub(loaded);
    check::write_results(folder, &verdicts)?;
    coverage(folder, &verdicts)?;
    for verdict in &verdicts {
        print!("{verdict}");
    }
    let of = |valid| verdicts.iter().filter(|verdict| verdict.valid == valid).count();
    let events = run.evidence.events;
    println!("{events} events read in {loaded:.1?}, checked in {took:.1?}");
    println!(
        "{} passed, {} failed, {} unknown: {}",
        of(Valid::True),
        of(Valid::False),
        of(Valid::Unknown),
        folder.display(),
    );
    Ok(check::over_all(&verdicts))
}

/// What was looked at: faults, operations, and what each checker counted.
fn coverage(folder: &Path, verdicts: &[Verdict]) -> Result<()> {
    let counts = verdicts.iter().map(|verdict| (verdict.checker.clone(), json!(verdict.counts)));
    let value = json!({"checkers": counts.collect::<serde_json::Map<_, _>>()});
    let text = serde_json::to_string_pretty(&value)?;
    fs::write(folder.join("coverage.json"), text).context("cannot write the coverage")
}
