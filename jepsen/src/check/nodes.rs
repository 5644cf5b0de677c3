//! W14: the nodes, from inside.
//!
//! Reads `nodes/<n>/status.jsonl`.

use std::collections::{BTreeMap, HashMap};

use super::evidence::{Name, Status};
use super::{Checker, Run, Verdict, ms};

/// W14: what a node must not forget does not go back, over restarts either; one leader a term;
/// one state at each index.
pub struct Nodes;

impl Checker for Nodes {
    fn name(&self) -> &'static str {
        "nodes"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let mut of: BTreeMap<(Name, u32), Vec<&Status>> = BTreeMap::new();
        for status in &run.evidence.statuses {
            verdict.add("statuses", 1);
            of.entry((status.node, status.cluster)).or_default().push(status);
        }
        for statuses in of.values_mut() {
            statuses.sort_by_key(|status| (status.time, status.start));
            for pair in statuses.windows(2) {
                if let [before, after] = pair {
                    goes_back(run, before, after, verdict);
                }
            }
            votes_twice(run, statuses, verdict);
        }
        one_leader(run, verdict);
        one_state(run, verdict);
    }
}

fn goes_back(run: &Run, before: &Status, after: &Status, verdict: &mut Verdict) {
    let restarted = before.start != after.start;
    let durable = !restarted || run.settings.durable_positions;
    let positions = [
        ("term", before.term, after.term, true),
        ("commit", before.commit, after.commit, durable),
        ("applied", before.applied, after.applied, durable),
    ];
    for (what, from, to, judged) in positions {
        if to >= from {
            continue;
        }
        if !judged {
            verdict.add(&format!("{what} was lower after a restart"), 1);
            continue;
        }
        let over = if restarted { " over a restart" } else { "" };
        let text = format!("{what} goes back from {from} to {to}{over} at {}", ms(after.time));
        verdict.convict(run.name(after.node), &[], text);
    }
}

/// A node has one vote in a term.
fn votes_twice(run: &Run, statuses: &[&Status], verdict: &mut Verdict) {
    let mut votes: HashMap<u64, u64> = HashMap::new();
    for status in statuses {
        let Some(vote) = status.vote.filter(|vote| *vote != 0) else { continue };
        let first = *votes.entry(status.term).or_insert(vote);
        if first != vote {
            let what = format!("in term {} it voted for {first} and for {vote}", status.term);
            verdict.convict(run.name(status.node), &[], what);
            return;
        }
    }
}

fn one_leader(run: &Run, verdict: &mut Verdict) {
    let mut leaders: BTreeMap<(u32, u64), Name> = BTreeMap::new();
    let mut told: HashMap<(u32, u64), u64> = HashMap::new();
    let mut split: BTreeMap<(u32, u64), String> = BTreeMap::new();
    for status in &run.evidence.statuses {
        let term = (status.cluster, status.term);
        if status.leads {
            let first = *leaders.entry(term).or_insert(status.node);
            if first != status.node {
                let (one, other) = (run.name(first), run.name(status.node));
                split.entry(term).or_insert_with(|| format!("{one} and {other} both lead"));
            }
        }
        if status.leader != 0 {
            let first = *told.entry(term).or_insert(status.leader);
            if first != status.leader {
                let other = status.leader;
                split
                    .entry(term)
                    .or_insert_with(|| format!("{first} and {other} are told to lead"));
            }
        }
    }
    verdict.add("terms with a leader", leaders.len() as u64);
    for ((_, term), what) in split {
        verdict.convict(&format!("term {term}"), &[], what);
    }
}

fn one_state(run: &Run, verdict: &mut Verdict) {
    let mut states: BTreeMap<(u32, u64), (Name, Name)> = BTreeMap::new();
    let mut shared = 0;
    for status in &run.evidence.statuses {
        let Some(hash) = status.hash else { continue };
        let at = (status.cluster, status.hash_index);
        let first = *states.entry(at).or_insert((hash, status.node));
        shared += u64::from(first.1 != status.node);
        if first.0 != hash {
            let what = format!(
                "the state at index {} is {} on {} and {} on {}",
                at.1,
                run.name(first.0),
                run.name(first.1),
                run.name(hash),
                run.name(status.node),
            );
            verdict.convict("state", &[], what);
        }
    }
    verdict.add("states compared", shared);
}
