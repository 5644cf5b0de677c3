//! W13: the cross-check of the other checkers, by a search that trusts no token order.
//!
//! Reads, per resource, `acquire`, `release`, `revoke` and `get`, and the leases behind them. Up
//! to a number of calls and of steps for each resource; a resource on which the search gives up
//! makes the answer unknown, if there are too many of them.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::evidence::{EventKind, Hand, NEVER, Name, Reason, Session, Span};
use super::facts::Tenure;
use super::model::{Call, Lock};
use super::search::{Found, Step, search, shrink};
use super::{Checker, Run, Verdict};

/// W13.
pub struct Cross;

/// A call and the events that it comes from.
#[derive(Clone)]
struct Told {
    step: Step<Call>,
    ops: [u64; 2],
}

impl Checker for Cross {
    fn name(&self) -> &'static str {
        "search"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let mut given_up = 0;
        for (resource, told) in calls(run) {
            let steps: Vec<Step<Call>> = told.iter().map(|told| told.step.clone()).collect();
            verdict.add("resources", 1);
            verdict.add("calls", steps.len() as u64);
            match search(&Lock, &steps, run.settings.search_steps_max) {
                Found::Order(_) => {}
                Found::Unknown => {
                    given_up += 1;
                    verdict.add("given up", 1);
                }
                Found::Nothing { .. } => convict(run, resource, &told, &steps, verdict),
            }
        }
        if given_up > run.settings.search_unknown_max {
            verdict.doubt(format!("the search gave up on {given_up} resources"));
        }
    }
}

fn convict(run: &Run, resource: Name, told: &[Told], steps: &[Step<Call>], verdict: &mut Verdict) {
    // Each round of shrinking is a search of its own.
    let kept = shrink(&Lock, steps, run.settings.search_steps_max / 100 + 1_000);
    let ops: Vec<u64> = kept.iter().flat_map(|place| told[*place].ops).collect();
    let calls: Vec<String> = kept.iter().take(12).map(|place| text(&steps[*place])).collect();
    let more = kept.len().saturating_sub(calls.len());
    let what = format!("no order of these {} calls is lawful: {}", kept.len(), calls.join("; "));
    let what = if more > 0 { format!("{what}; and {more} more") } else { what };
    verdict.convict(run.name(resource), &ops, what);
}

fn text(step: &Step<Call>) -> String {
    let what = match &step.call {
        Call::Acquire { token: Some(token), end, .. } => {
            format!("acquire -> {token} until {}", super::ms(*end))
        }
        Call::Acquire { token: None, .. } => "acquire -> unknown".to_owned(),
        Call::Release { token, done: true } => format!("release {token}"),
        Call::Release { token, done: false } => format!("release {token} -> not held"),
        Call::Read { holders } => format!("get -> {holders:?}"),
    };
    let ret = step.ret.map_or("...".to_owned(), super::ms);
    format!("{what} [{} to {ret}]", super::ms(step.inv))
}

/// The calls on each resource, by their beginning, as many as the settings allow. What was done
/// after a restore began, or to a resource that was ever frozen, is left out.
fn calls(run: &Run) -> BTreeMap<Name, Vec<Told>> {
    let mut of: BTreeMap<Name, Vec<Told>> = BTreeMap::new();
    acquires(run, &mut of);
    releases(run, &mut of);
    reads(run, &mut of);
    for admin in run.evidence.admin.iter().filter(|admin| admin.hand != Hand::Revoke) {
        of.remove(&admin.resource);
    }
    let restore = run.evidence.faults.iter().find(|fault| fault.f == "restore");
    let restore = restore.map_or(NEVER, |fault| fault.time);
    for told in of.values_mut() {
        told.sort_by_key(|told| told.step.inv);
        let beyond = told.get(run.settings.search_ops_max).map_or(NEVER, |told| told.step.inv);
        let until = beyond.min(restore);
        told.retain(|told| told.step.inv < until);
        for told in told.iter_mut() {
            told.step.ret = told.step.ret.filter(|ret| *ret < until);
        }
        told.retain(|told| told.step.ret.is_some() || !matches!(told.step.call, Call::Read { .. }));
    }
    of
}

fn acquires(run: &Run, of: &mut BTreeMap<Name, Vec<Told>>) {
    let mut granted: HashSet<(Session, u64)> = HashSet::new();
    for (resource, tenures) in run.facts.resources() {
        for tenure in tenures {
            granted.insert((tenure.session, tenure.request));
            let ret = (tenure.returned.0 != NEVER).then_some(tenure.returned.0);
            let (mode, slot, end) = (tenure.mode, tenure.slot, end(run, tenure));
            let call = Call::Acquire { token: Some(tenure.token), mode, slot, end };
            let step = Step { call, inv: tenure.asked.0, ret };
            let shown = if ret.is_some() { tenure.returned.1 } else { tenure.asked.1 };
            of.entry(resource).or_default().push(Told { step, ops: [tenure.asked.1, shown] });
        }
    }
    let complete = run.evidence.audit.as_ref();
    if complete.is_some_and(|audit| audit.iter().all(|event| event.kind != EventKind::Gap)) {
        // What the feed does not tell of was not granted.
        return;
    }
    let unknown = run.evidence.acquires.iter().filter(|a| a.at.maybe() && a.token.is_none());
    for acquire in unknown.filter(|a| !granted.contains(&(a.session, a.request))) {
        let (mode, slot) = (acquire.mode, None);
        for resource in [acquire.resource].into_iter().chain(acquire.more.iter().copied()) {
            let call = Call::Acquire { token: None, mode, slot, end: 0 };
            let step = Step { call, inv: acquire.at.t_inv, ret: None };
            of.entry(resource).or_default().push(Told { step, ops: [acquire.at.inv; 2] });
        }
    }
}

/// Until when a grant stands unless somebody ends it.
fn end(run: &Run, tenure: &Tenure) -> u64 {
    let Some(life) = run.facts.lives.get(&tenure.session) else { return 0 };
    if run.facts.strict.contains(&tenure.token) {
        return tenure.end;
    }
    life.sure_until.min(life.closed)
}

/// Of each grant one end: of several attempts one had the effect.
fn releases(run: &Run, of: &mut BTreeMap<Name, Vec<Told>>) {
    let mut ends: HashMap<u64, Told> = HashMap::new();
    let releases = run.evidence.releases.iter().map(|release| (release.token, &release.at));
    let revokes = run.evidence.admin.iter().filter(|admin| admin.hand == Hand::Revoke);
    let revokes = revokes.map(|admin| (admin.token, &admin.at));
    for (token, at) in releases.chain(revokes).filter(|(_, at)| at.maybe()) {
        let told = release(token, true, at);
        let known = ends.entry(token).or_insert_with(|| told.clone());
        known.step.inv = known.step.inv.min(told.step.inv);
        known.step.ret = [known.step.ret, told.step.ret].into_iter().flatten().min();
    }
    for (resource, tenures) in run.facts.resources() {
        let ended = tenures.iter().filter_map(|tenure| ends.get(&tenure.token));
        of.entry(resource).or_default().extend(ended.cloned());
    }
    for stale in run.evidence.releases.iter().filter(|r| r.at.reason == Reason::NotHeld) {
        let owner = run.facts.tenure(stale.resource, stale.token).map(|tenure| tenure.session);
        if owner == Some(stale.session) {
            let told = release(stale.token, false, &stale.at);
            of.entry(stale.resource).or_default().push(told);
        }
    }
}

fn release(token: u64, done: bool, at: &Span) -> Told {
    let ret = (at.t_ret != NEVER).then_some(at.t_ret);
    let step = Step { call: Call::Release { token, done }, inv: at.t_inv, ret };
    Told { step, ops: [at.inv, at.ret] }
}

/// Reads that show nobody of whose request nothing is known.
fn reads(run: &Run, of: &mut BTreeMap<Name, Vec<Told>>) {
    let reads = run.evidence.reads.iter().filter(|read| read.at.ok() && !read.stale);
    for read in reads.filter(|read| read.asked.is_none()) {
        let mut holders: Vec<u64> = read.holders.iter().map(|holder| holder.token).collect();
        holders.sort_unstable();
        if holders.iter().all(|token| run.facts.tenure(read.resource, *token).is_some()) {
            let call = Call::Read { holders };
            let step = Step { call, inv: read.at.t_inv, ret: Some(read.at.t_ret) };
            let told = Told { step, ops: [read.at.inv, read.at.ret] };
            of.entry(read.resource).or_default().push(told);
        }
    }
}
