//! What a checker says of a run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Violations that are told in full; the rest are counted.
const TOLD_MAX: usize = 20;

/// Whether the run kept the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Valid {
    /// It kept them.
    True,
    /// It cannot be said. Never a pass.
    Unknown,
    /// It broke one.
    False,
}

impl Valid {
    /// As Jepsen writes it.
    pub fn edn(self) -> &'static str {
        match self {
            Valid::True => "true",
            Valid::Unknown => ":unknown",
            Valid::False => "false",
        }
    }
}

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Indexes into the history of the events that show it, earliest first. Empty if it is shown
    /// by a file beside the history; the sentence then names the line.
    pub ops: Vec<u64>,
    /// The resource, session or node it is about.
    pub about: String,
    /// What happened, in one sentence.
    pub what: String,
}

/// What one checker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its name.
    pub checker: String,
    /// Its answer.
    pub valid: Valid,
    /// Up to 20 breaches, the first in the history first.
    pub violations: Vec<Violation>,
    /// Why the answer is unknown, if it is.
    pub unknown: Vec<String>,
    /// What was looked at; `violations` counts all of them.
    pub counts: BTreeMap<String, u64>,
}

impl Verdict {
    /// Nothing found yet.
    pub fn new(checker: &str) -> Verdict {
        Verdict {
            checker: checker.to_owned(),
            valid: Valid::True,
            violations: Vec::new(),
            unknown: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    /// A rule was broken. `ops` are event indexes in any order.
    pub fn convict(&mut self, about: &str, ops: &[u64], what: String) {
        self.valid = Valid::False;
        self.add("violations", 1);
        let mut ops = ops.to_vec();
        ops.sort_unstable();
        ops.dedup();
        let at = self.violations.partition_point(|known| first(known) <= last_of(&ops));
        self.violations.insert(at, Violation { ops, about: about.to_owned(), what });
        self.violations.truncate(TOLD_MAX);
    }

    /// The answer cannot be yes.
    pub fn doubt(&mut self, why: String) {
        self.valid = self.valid.max(Valid::Unknown);
        if self.unknown.len() < TOLD_MAX {
            self.unknown.push(why);
        }
    }

    /// Counts `more` of `what`.
    pub fn add(&mut self, what: &str, more: u64) {
        match self.counts.get_mut(what) {
            Some(count) => *count += more,
            None => drop(self.counts.insert(what.to_owned(), more)),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.valid {
            Valid::True => "ok",
            Valid::Unknown => "unknown",
            Valid::False => "INVALID",
        };
        let counts: Vec<String> = self.counts.iter().map(|(of, n)| format!("{of} {n}")).collect();
        writeln!(f, "{:<14} {word:<8} {}", self.checker, counts.join(", "))?;
        for why in self.unknown.iter().take(3) {
            writeln!(f, "    {why}")?;
        }
        for violation in self.violations.iter().take(3) {
            writeln!(f, "    {}: {} {:?}", violation.about, violation.what, violation.ops)?;
        }
        Ok(())
    }
}

/// When a breach was complete: its last event. One shown by a file beside the history is last.
fn first(of: &Violation) -> u64 {
    last_of(&of.ops)
}

fn last_of(ops: &[u64]) -> u64 {
    ops.last().copied().unwrap_or(u64::MAX)
}

/// Over all: false if any is, else unknown if any is.
pub fn over_all(verdicts: &[Verdict]) -> Valid {
    verdicts.iter().map(|verdict| verdict.valid).max().unwrap_or(Valid::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_breaches_are_told_and_all_are_counted() {
        let mut verdict = Verdict::new("x");
        verdict.doubt("why".into());
        assert_eq!(verdict.valid, Valid::Unknown);
        for index in (0..30).rev() {
            verdict.convict("r", &[index], String::new());
        }
        assert_eq!((verdict.valid, verdict.counts["violations"]), (Valid::False, 30));
        let told: Vec<u64> = verdict.violations.iter().map(|v| v.ops[0]).collect();
        assert_eq!(told, (0..20).collect::<Vec<_>>());
        verdict.doubt("more".into());
        assert_eq!(verdict.valid, Valid::False);
        assert_eq!(over_all(&[Verdict::new("y"), verdict]), Valid::False);
        assert_eq!(over_all(&[]), Valid::Unknown);
    }
}
