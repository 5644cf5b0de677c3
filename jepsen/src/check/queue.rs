//! W5: first come, first served, and nothing for the dead.
//!
//! Reads `acquire` (session, request, resource; token or queued_ahead), every refusal with
//! `SESSION_EXPIRED` or `SESSION_UNKNOWN`, `close`, and the audit feed's grants.

use std::collections::HashMap;

use super::evidence::{NEVER, Session};
use super::facts::Tenure;
use super::{Checker, Run, Verdict, ms, session};

/// W5.
pub struct Queue;

impl Checker for Queue {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        overtaken(run, verdict);
        granted_to_the_dead(run, verdict);
    }
}

/// Who was told to be in the queue before another asked is granted first. By tokens downwards,
/// the earliest such telling among the higher ones.
fn overtaken(run: &Run, verdict: &mut Verdict) {
    let mut queued: HashMap<(Session, u64), (u64, u64)> = HashMap::new();
    for acquire in run.evidence.acquires.iter().filter(|acquire| acquire.queued) {
        let told = (acquire.at.t_ret, acquire.at.ret);
        let known = queued.entry((acquire.session, acquire.request)).or_insert(told);
        *known = told.min(*known);
    }
    verdict.add("waits", queued.len() as u64);
    for (resource, tenures) in run.facts.resources() {
        let mut earliest = (NEVER, 0, 0);
        for tenure in tenures.iter().rev() {
            if earliest.0 < tenure.asked.0 {
                let what = format!(
                    "token {} was granted before token {}, which was queued when it was asked for",
                    tenure.token, earliest.2
                );
                let ops = [earliest.1, tenure.asked.1, tenure.returned.1];
                let known = if tenure.returned.0 == NEVER { &ops[..2] } else { &ops[..] };
                verdict.convict(run.name(resource), known, what);
            }
            if let Some(told) = queued.get(&(tenure.session, tenure.request)) {
                earliest = earliest.min((told.0, told.1, tenure.token));
            }
        }
    }
}

/// A grant came after everything that was asked for and has a lower token: so not to a session
/// of which somebody knew before that it is over.
fn granted_to_the_dead(run: &Run, verdict: &mut Verdict) {
    let mut all: Vec<&Tenure> = run.facts.tenures.iter().collect();
    all.sort_by_key(|tenure| tenure.token);
    let mut after = (0, 0);
    for tenure in all {
        after = after.max(tenure.asked);
        let Some(life) = run.facts.lives.get(&tenure.session) else { continue };
        if life.over.0 < after.0 {
            let what = format!(
                "token {} was granted to {}, which was over by {}",
                tenure.token,
                session(tenure.session),
                ms(life.over.0)
            );
            verdict.convict(run.name(tenure.resource), &[life.over.1, after.1], what);
        }
    }
}
