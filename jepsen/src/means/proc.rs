//! What `/proc` says of processes.

use std::fs;
use std::path::{Path, PathBuf};

/// The state of a process or of one thread of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The kernel's letter: `R`, `S`, `D`, `T` (stopped), `Z` (dead, not reaped), ...
    pub state: char,
    /// Clock ticks between boot and its start: with its pid it names a process for good.
    pub started: u64,
    /// CPU time it has used, in clock ticks.
    pub used: u64,
}

/// The state of a process, if there is one with this pid.
#[must_use]
pub fn stat(pid: u32) -> Option<Stat> {
    read(Path::new(&format!("/proc/{pid}/stat")))
}

/// The state of each thread of a process.
#[must_use]
pub fn threads(pid: u32) -> Vec<Stat> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| read(&entry.path().join("stat"))).collect()
}

/// Whether this very process still runs; one that only waits to be reaped does not.
#[must_use]
pub fn runs(pid: u32, started: u64) -> bool {
    stat(pid).is_some_and(|stat| stat.started == started && stat.state != 'Z')
}

/// In the environment of every process that was started for a run: the run's id.
pub const RUN_VARIABLE: &str = "RINGFENCE_JEPSEN_RUN";

/// The processes that were started for a run, whoever started them; those that only wait to be
/// reaped are not among them.
#[must_use]
pub fn started_for(run: &str) -> Vec<i32> {
    let marker = format!("{RUN_VARIABLE}={run}").into_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let marked = entries.filter(|entry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == marker)
    });
    marked.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok()).collect()
}

/// Who holds files open under a folder, as `pid (program): path`.
#[must_use]
pub fn holders(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let held = links(&entry.path()).into_iter().find(|path| path.starts_with(folder));
        found.extend(held.map(|path| format!("{pid} ({}): {}", name.trim(), path.display())));
    }
    found
}

fn links(process: &Path) -> Vec<PathBuf> {
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let places = open.map(|entry| entry.path()).chain(["cwd", "root"].map(|l| process.join(l)));
    places.filter_map(|link| fs::read_link(link).ok()).collect()
}

fn read(path: &Path) -> Option<Stat> {
    parse(&fs::read_to_string(path).ok()?)
}

/// The name, in parentheses, may itself hold blanks and parentheses.
fn parse(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let state = fields.first()?.chars().next()?;
    Some(Stat { state, used: number(11)? + number(12)?, started: number(19)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = "7 (a) b (c)) T 1 7 7 0 -1 4194304 1 0 0 0 30 12 0 0 20 0 1 0 4711 1 1";
        assert_eq!(parse(line), Some(Stat { state: 'T', started: 4711, used: 42 }));
    }

    #[test]
    fn this_process_runs_and_its_number_alone_does_not_name_it() {
        let pid = std::process::id();
        let own = stat(pid).unwrap();
        assert!(runs(pid, own.started));
        assert!(!runs(pid, own.started + 1));
        assert!(!threads(pid).is_empty());
    }

    #[test]
    fn an_open_file_has_a_holder() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(holders(folder.path()), [""; 0]);
        let _open = fs::File::create(folder.path().join("held")).unwrap();
        let found = holders(folder.path());
        assert!(found[0].starts_with(&format!("{} (", std::process::id())), "{found:?}");
    }
}
