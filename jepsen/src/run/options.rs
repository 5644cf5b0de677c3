//! What a run is asked for, and what it writes down of that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::Choice;
use crate::check::settings::Settings;
use crate::nemesis::Fault;
use crate::workload;

/// Options of `run`.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// What is drawn at random is drawn from it.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long clients and faults act, as 105s or 2m; healing and the end come after.
    #[arg(long, value_parser = time, default_value = "105s")]
    pub time: Duration,
    /// Where folders of runs are made.
    #[arg(long, default_value = "store")]
    pub store: PathBuf,
    /// Only these workloads, as w1,w2.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only these faults, by how their names begin, as kill,pause; `none` for none.
    #[arg(long, value_delimiter = ',')]
    pub nemesis: Vec<String>,
    /// The destination accepts whatever comes: the control that must be convicted.
    #[arg(long)]
    pub unchecked_destination: bool,
    /// The product's program.
    #[arg(long, env = "RINGFENCE_BINARY", default_value = "target/debug/ringfence")]
    pub binary: PathBuf,
    /// How many nodes.
    #[arg(long, default_value_t = 5)]
    pub nodes: usize,
    /// A seeded bug for the nodes of a build that has them.
    #[arg(long)]
    pub mutant: Option<String>,
}

/// A time as 90, 90s, 2m or 1h.
///
/// # Errors
/// It is written otherwise.
pub fn time(text: &str) -> Result<Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().context("a time is a number with s, m or h")?;
    let each = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        other => anyhow::bail!("a time is given in s, m or h, not {other}"),
    };
    Ok(Duration::from_secs(number * each))
}

impl Options {
    /// A new folder for a run, and the link `latest` to it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn folder(&self) -> Result<PathBuf> {
        ensure!(self.binary.is_file(), "there is no program {}", self.binary.display());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let name = format!("{}-{}", stamp(now), self.seed);
        fs::create_dir_all(&self.store)?;
        let store = self.store.canonicalize()?;
        let folder = store.join(&name);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for link in ["latest", "current"] {
            let link = store.join(link);
            drop(fs::remove_file(&link));
            std::os::unix::fs::symlink(&name, &link).context("cannot make a link")?;
        }
        Ok(folder)
    }

    /// What checkers may expect of the run.
    fn settings(&self, kinds: &[workload::Kind], faults: &[Fault], choice: Choice) -> Settings {
        let whole = self.time >= Duration::from_secs(60);
        let least = |f: &str, count: u64| (f.to_owned(), count);
        let ok = if kinds.len() == workload::ALL.len() && whole {
            ["confirm", "get", "check_token", "write", "cancel", "revoke", "close"]
                .map(|f| least(f, 5))
                .into()
        } else {
            [least("open", 1)].into()
        };
        let leader_faults = ["partition-leader", "kill-leader", "pause-leader"];
        let leader_change = whole && faults.iter().any(|fault| leader_faults.contains(&fault.name));
        Settings {
            fencing: !self.unchecked_destination,
            // At random, which faults there are is luck; the coverage tells.
            faults: match choice {
                Choice::Script => faults.iter().map(|fault| fault.name.to_owned()).collect(),
                Choice::Random => Vec::new(),
            },
            ok,
            ok_after: [least("acquire", 1), least("release", 1)].into(),
            leader_change,
            expiry: whole && kinds.len() == workload::ALL.len(),
            agreement: true,
            // When all nodes lose power, nobody keeps the last events.
            gaps_max: match choice {
                Choice::Script => {
                    faults.iter().filter(|f| f.name == "power-cut-all").count() as u64
                }
                Choice::Random => self.time.as_secs(),
            },
            search_unknown_max: 4,
            ..Settings::default()
        }
    }

    /// Writes `test.json`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_test(
        &self,
        folder: &Path,
        kinds: &[workload::Kind],
        faults: &[Fault],
        choice: Choice,
    ) -> Result<()> {
        let said = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let absent: Vec<_> =
            workload::ABSENT.iter().map(|(name, why)| json!({"name": name, "why": why})).collect();
        let beside: Vec<_> = workload::BESIDE
            .iter()
            .map(|(name, about)| json!({"name": name, "about": about}))
            .collect();
        let test = json!({
            "name": "ringfence", "seed": self.seed, "time_s": self.time.as_secs(),
            "nodes": self.nodes, "choice": format!("{choice:?}").to_ascii_lowercase(),
            "unchecked_destination": self.unchecked_destination, "mutant": self.mutant,
            "binary": self.binary, "version": said(&self.binary.display().to_string(), &["version"]),
            "commit": said("git", &["rev-parse", "HEAD"]), "kernel": said("uname", &["-r"]),
            "workloads": kinds.iter().map(|kind| {
                json!({"name": kind.name, "about": kind.about, "clients": kind.agents})
            }).collect::<Vec<_>>(),
            "beside": beside, "absent": absent,
            "faults": faults.iter().map(|fault| fault.name).collect::<Vec<_>>(),
            "check": self.settings(kinds, faults, choice),
        });
        let text = serde_json::to_string_pretty(&test)?;
        fs::write(folder.join("test.json"), text).context("cannot write test.json")
    }
}

/// Seconds since 1970 as 20261130T201500Z.
fn stamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // The civil calendar from days, by Howard Hinnant's formulas.
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_the_date_in_utc() {
        assert_eq!(stamp(0), "19700101T000000Z");
        assert_eq!(stamp(951_782_400), "20000229T000000Z");
        assert_eq!(stamp(1_796_069_035), "20261130T200355Z");
    }

    #[test]
    fn a_time_is_a_number_with_a_unit() {
        assert_eq!(time("105s").expect("seconds"), Duration::from_secs(105));
        assert_eq!(time("2m").expect("minutes"), Duration::from_secs(120));
        assert!(time("2d").is_err());
        assert!(time("s").is_err());
    }
}
