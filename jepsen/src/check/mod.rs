//! Checkers: from what a run left to what may be said of it.
//!
//! Every grant has a token, and tokens grow in the order of the log. So a token is a witness of
//! where in the one true order its grant stands, and each rule is a sort and a sweep. The search
//! of [`cross`] needs no tokens to be right and only checks the checkers.
//!
//! # What a run leaves
//!
//! `history.jsonl` holds the operations. The arguments stand in the invocation's value and are
//! repeated in the completion's, with the results. `fail` means that it had no effect and never
//! will; the completion's `error` is the stable reason. What is unknown is `info`. A field in
//! brackets may be left out. `cluster` is 0, one more with each restore, and may be left out if 0.
//!
//! | f | arguments | results of `ok` |
//! | --- | --- | --- |
//! | `held` | session, resource, token: the client library's guard said that it is held | |
//! | `open` | owner, ttl_ms, \[library: true, of the client library\], \[cluster\] | session, ttl_ms in force |
//! | `renew` | session, ttl_ms in force, \[cluster\] | ttl_ms |
//! | `close` | session, \[cluster\] | |
//! | `set_ttl` | session, ttl_ms, request, \[cluster\] | |
//! | `set_value` | session, resource, token, request, \[cluster\] | |
//! | `cancel` | session, request, target, \[cluster\] | |
//! | `acquire` | session, request, resource, \[more: names\], mode: `exclusive` `shared` `slots`, \[slots\], wait_ms, \[strict: true, barrier_ms\], \[final: true\], \[cluster\] | token, floor, \[slot\], \[confirmed: true if the client did the whole handoff within\]; or queued_ahead and no token |
//! | `confirm` | session, resource, token, \[cluster\] | |
//! | `release` | session, resource, token, \[cluster\] | |
//! | `get` | resource, \[stale\] | holders: \[{token, mode, phase: `active` `barrier`, \[slot\]}\] |
//! | `check_token` | resource, token | current, mode, \[slot\] |
//! | `revoke` | resource, token | by: the token of the fence |
//! | `freeze` | resource | by: the token of the freeze |
//! | `thaw` | resource, token of the freeze | |
//! | `write` | resource, token, floor, \[slot\], element: a name used once, dest | ; refused as stale: `fail` with `FENCED` |
//!
//! A retry is an operation of its own with the same session and request. An acquire of the last
//! phase, which proves that its resource can be had again, has `final`. Nemesis events come in
//! pairs, begun and ended, named by the fault, with `outcome` `installed`, `skipped` or
//! `indeterminate`; pairs called `restore` enclose a restore, `healed` begins the last phase, and
//! `harness-failure` makes the run unknown.
//!
//! `audit.jsonl`: the watch on everything, from the start of each cluster, in order: {cluster,
//! index, ordinal, kind, resources, session, request, token, mode, slots, slot, phase, floor,
//! cause, by}; words of `events.proto` in snake_case. A line of kind `gap` says that some are
//! missing there; whoever begins to watch later than the cluster puts one first. Behind it may stand
//! the state that the watch begins anew with: lines of kind `state_held`, `state_waits` (in the
//! order of the queue) and `state_frozen`.
//!
//! `dest-ledger.jsonl`: what destinations were asked, each in its own order: {seq, dest, resource,
//! token, floor, \[slot\], session, \[cluster\], \[element\], accepted, \[reason: `FENCED`\],
//! \[counter\]}. Without an element it is a raise. `counter` is what a write that read the counter
//! before stored in it.
//!
//! `nodes/<n>/status.jsonl`: what a node said of itself: {time, start: 1 and more with each start,
//! \[cluster\], role, term, \[vote\], leader, commit, applied, last_log, state_hash,
//! state_hash_index}. A node that begins with an empty folder is another node, with another name.
//!
//! `test.json`, field `check`: [`settings::Settings`].

pub mod audit;
pub mod beside;
pub mod coverage;
pub mod cross;
pub mod evidence;
pub mod exclusion;
pub mod facts;
pub mod handoff;
pub mod leases;
pub mod ledger;
pub mod load;
pub mod model;
pub mod nodes;
pub mod queue;
pub mod reads;
pub mod recovery;
pub mod requests;
pub mod search;
pub mod settings;
#[cfg(test)]
mod stories;
pub mod tokens;
pub mod verdict;

use std::path::Path;

use anyhow::Result;

use crate::history::edn::keyword;
use evidence::{Evidence, Name, Session};
use facts::Facts;
use settings::Settings;
pub use verdict::{Valid, Verdict, Violation, over_all};

/// All that a checker may look at.
#[derive(Debug)]
pub struct Run {
    pub evidence: Evidence,
    pub settings: Settings,
    pub facts: Facts,
}

impl Run {
    /// Of what was loaded.
    pub fn new(evidence: Evidence, settings: Settings) -> Run {
        let facts = Facts::of(&evidence, &settings);
        Run { evidence, settings, facts }
    }

    /// What `folder` holds.
    ///
    /// # Errors
    /// As of [`load::load`].
    pub fn load(folder: &Path) -> Result<Run> {
        let (evidence, settings) = load::load(folder)?;
        Ok(Run::new(evidence, settings))
    }

    fn name(&self, number: Name) -> &str {
        self.evidence.names.name(number)
    }
}

/// One rule, or a few that go together.
pub trait Checker {
    /// Its name in the results.
    fn name(&self) -> &'static str;

    /// Looks at the run. Convicts only what no lawful authority can have done.
    fn check(&self, run: &Run, verdict: &mut Verdict);
}

/// All checkers, in the order of the workloads that they belong to.
pub fn all() -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(exclusion::Exclusion),
        Box::new(ledger::Ledger),
        Box::new(tokens::Tokens),
        Box::new(requests::Requests),
        Box::new(queue::Queue),
        Box::new(exclusion::Sharing),
        Box::new(exclusion::Slots),
        Box::new(leases::Zombie),
        Box::new(leases::Early),
        Box::new(handoff::Handoff),
        Box::new(tokens::Floor),
        Box::new(reads::Reads),
        Box::new(cross::Cross),
        Box::new(audit::Audit),
        Box::new(nodes::Nodes),
        Box::new(recovery::Recovery),
        Box::new(coverage::Coverage),
    ]
}

/// What every checker says of a run.
pub fn check(run: &Run) -> Vec<Verdict> {
    let verdicts = all().into_iter().map(|checker| {
        let mut verdict = Verdict::new(checker.name());
        checker.check(run, &mut verdict);
        verdict
    });
    verdicts.collect()
}

/// Writes `results.json` and `results.edn` into `folder`: over all, and each checker.
///
/// # Errors
/// A file cannot be written.
pub fn write_results(folder: &Path, verdicts: &[Verdict]) -> Result<()> {
    let all = serde_json::json!({"valid": over_all(verdicts), "checkers": verdicts});
    std::fs::write(folder.join("results.json"), serde_json::to_string_pretty(&all)?)?;
    let mut edn = format!("{{:valid? {}", over_all(verdicts).edn());
    for verdict in verdicts {
        let valid = verdict.valid.edn();
        edn.push_str(&format!(",\n {} {{:valid? {valid}", keyword(&verdict.checker)));
        let mut rest = serde_json::to_value(verdict)?;
        let fields = rest.as_object_mut().into_iter().flatten();
        for (name, field) in
            fields.filter(|field| !["valid", "checker"].contains(&field.0.as_str()))
        {
            edn.push_str(&format!(", {} ", keyword(name)));
            crate::history::edn::value(&mut edn, field, false);
        }
        edn.push('}');
    }
    edn.push_str("}\n");
    Ok(std::fs::write(folder.join("results.edn"), edn)?)
}

fn session(of: Session) -> String {
    match of.cluster {
        0 => format!("session {}", of.id),
        cluster => format!("session {} of cluster {cluster}", of.id),
    }
}

/// Nanoseconds of a run as milliseconds, for sentences.
fn ms(ns: u64) -> String {
    format!("{}.{:03} ms", ns / 1_000_000, ns / 1_000 % 1_000)
}
