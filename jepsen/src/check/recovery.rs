//! After the last fault everything works again.
//!
//! Reads `acquire` with final, the nemesis event `healed`, and the last status of each node.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Name, Status};
use super::load::HEALED;
use super::{Checker, Run, Verdict};

/// Every resource that was used can be had again, and the nodes agree.
pub struct Recovery;

impl Checker for Recovery {
    fn name(&self) -> &'static str {
        "recovery"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let mut tried: BTreeMap<Name, (bool, u64)> = BTreeMap::new();
        for acquire in run.evidence.acquires.iter().filter(|acquire| acquire.last) {
            for resource in [acquire.resource].into_iter().chain(acquire.more.iter().copied()) {
                let known = tried.entry(resource).or_insert((false, acquire.at.ret));
                known.0 |= acquire.token.is_some();
                known.1 = acquire.at.ret;
            }
        }
        verdict.add("resources tried", tried.len() as u64);
        for (resource, (_, op)) in tried.iter().filter(|(_, (had, _))| !had) {
            let what = "it could not be had again after the last fault".to_owned();
            verdict.convict(run.name(*resource), &[*op], what);
        }
        let used: BTreeSet<Name> = run.evidence.acquires.iter().map(|a| a.resource).collect();
        let untried = used.iter().filter(|resource| !tried.contains_key(resource)).count();
        if untried > 0 {
            verdict.doubt(format!("{untried} resources were not tried after the last fault"));
        }
        if run.settings.agreement {
            agreement(run, verdict);
        }
    }
}

/// The last that each node said, after the healing, is the same.
fn agreement(run: &Run, verdict: &mut Verdict) {
    let healed = run.evidence.faults.iter().rfind(|fault| fault.f == HEALED);
    let Some(healed) = healed else {
        verdict.doubt("the run was never healed".to_owned());
        return;
    };
    let cluster = run.evidence.statuses.iter().map(|status| status.cluster).max();
    let mut last: BTreeMap<Name, &Status> = BTreeMap::new();
    let statuses = run.evidence.statuses.iter().filter(|status| status.time >= healed.time);
    for status in statuses.filter(|status| Some(status.cluster) == cluster) {
        last.insert(status.node, status);
    }
    if last.is_empty() {
        verdict.doubt("no node was watched after the last fault".to_owned());
        return;
    }
    verdict.add("nodes at the end", last.len() as u64);
    let terms: BTreeSet<(u64, u64)> = last.values().map(|s| (s.term, s.leader)).collect();
    if terms.len() > 1 || terms.iter().any(|(_, leader)| *leader == 0) {
        let what = format!("terms and leaders at the end: {terms:?}");
        verdict.convict("cluster", &[healed.index], what);
    }
    let applied: BTreeSet<u64> = last.values().map(|status| status.applied).collect();
    if applied.len() > 1 {
        let what = format!("applied at the end: {applied:?}");
        verdict.convict("cluster", &[healed.index], what);
    }
}
