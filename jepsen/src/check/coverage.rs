//! Whether the run did what it was for. A run in which nothing happened proves nothing.
//!
//! Reads the nemesis events (outcome), how many operations of each name were `ok` before and
//! after `healed`, the terms of the nodes, the audit feed's causes, and the settings' demands.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::{Cause, EventKind, Mode};
use super::{Checker, Run, Verdict};

/// Unknown if a demand of the settings was not met.
pub struct Coverage;

impl Checker for Coverage {
    fn name(&self) -> &'static str {
        "coverage"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        verdict.add("events", run.evidence.events);
        faults(run, verdict);
        operations(run, verdict);
        modes(run, verdict);
        if run.settings.leader_change && terms(run) < 2 {
            verdict.doubt("no leader changed".to_owned());
        }
        let mut ended =
            run.evidence.audit.iter().flatten().filter(|event| {
                event.kind == EventKind::SessionEnded && event.cause == Cause::Expired
            });
        if run.settings.expiry && ended.next().is_none() {
            verdict.doubt("no session expired".to_owned());
        }
    }
}

fn faults(run: &Run, verdict: &mut Verdict) {
    let mut installed: BTreeMap<&str, u64> = BTreeMap::new();
    for fault in &run.evidence.faults {
        if fault.outcome == "installed" {
            *installed.entry(&fault.f).or_default() += 1;
        }
        if fault.f == "harness-failure" {
            verdict.doubt(format!("the harness failed at event {}", fault.index));
        }
    }
    for fault in &run.settings.faults {
        if !installed.contains_key(fault.as_str()) {
            verdict.doubt(format!("the fault {fault} never acted"));
        }
    }
    for (fault, times) in installed {
        verdict.add(&format!("fault {fault}"), times);
    }
}

fn operations(run: &Run, verdict: &mut Verdict) {
    for ((f, after), count) in &run.evidence.ok {
        let phase = if *after { " after healing" } else { "" };
        verdict.add(&format!("ok {f}{phase}"), *count);
    }
    for (demands, after) in [(&run.settings.ok, false), (&run.settings.ok_after, true)] {
        for (f, least) in demands {
            let count = run.evidence.ok.get(&(f.clone(), after)).copied().unwrap_or(0);
            if count < *least {
                let phase = if after { "after healing" } else { "before healing" };
                verdict.doubt(format!("{count} {f} were ok {phase}, fewer than {least}"));
            }
        }
    }
}

/// What kinds of grant there were: what is not there was not tested.
fn modes(run: &Run, verdict: &mut Verdict) {
    for acquire in run.evidence.acquires.iter().filter(|acquire| acquire.token.is_some()) {
        verdict.add(
            match acquire.mode {
                Mode::Exclusive => "grants exclusive",
                Mode::Shared => "grants shared",
                Mode::Slots => "grants of slots",
            },
            1,
        );
        if !acquire.more.is_empty() {
            verdict.add("grants of sets", 1);
        }
        if acquire.barrier_ms.is_some() {
            verdict.add("grants strict", 1);
        }
    }
}

fn terms(run: &Run) -> usize {
    let leaders = run.evidence.statuses.iter().filter(|status| status.leads);
    leaders.map(|status| (status.cluster, status.term)).collect::<BTreeSet<_>>().len()
}
