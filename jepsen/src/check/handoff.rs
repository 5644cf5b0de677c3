//! W9: strict handoff.
//!
//! Reads `acquire` with strict (barrier_ms), `confirm`, `write` (resource, token, slot) and the
//! phases that `get` and `check_token` show.

use std::collections::HashMap;

use super::evidence::{Mode, NEVER, Name};
use super::facts::{Tenure, conflict};
use super::{Checker, Run, Verdict, ms};

/// W9: once a strict grant was confirmed, no write of one that it replaced succeeds; before it
/// is confirmed, nobody is told that it is current.
pub struct Handoff;

impl Checker for Handoff {
    fn name(&self) -> &'static str {
        "handoff"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let strict = run.evidence.acquires.iter().filter(|a| a.barrier_ms.is_some());
        let strict =
            strict.filter_map(|acquire| run.facts.tenure(acquire.resource, acquire.token?));
        let strict: HashMap<(Name, u64), &Tenure> =
            strict.map(|tenure| ((tenure.resource, tenure.token), tenure)).collect();
        verdict.add("strict grants", strict.len() as u64);
        current_too_soon(run, &strict, verdict);
        if run.settings.fencing {
            wrote_too_late(run, strict.values().copied(), verdict);
        }
    }
}

fn current_too_soon(run: &Run, strict: &HashMap<(Name, u64), &Tenure>, verdict: &mut Verdict) {
    for read in run.evidence.reads.iter().filter(|read| read.at.ok()) {
        for holder in read.holders.iter().filter(|holder| holder.active) {
            let Some(tenure) = strict.get(&(read.resource, holder.token)) else { continue };
            let confirmed = tenure.confirm.map_or(NEVER, |confirm| confirm.0);
            if read.at.t_ret < confirmed {
                let what = format!(
                    "token {} was shown as current by {}, unconfirmed",
                    holder.token,
                    ms(read.at.t_ret)
                );
                let ops = [tenure.returned.1, read.at.ret];
                verdict.convict(run.name(read.resource), &ops, what);
            }
        }
    }
}

/// Of a way to hold, the highest confirmed token, and the index of its grant's return.
type Highest = HashMap<(Mode, Option<u32>), (u64, u64)>;

/// Writes by their beginning, against the grants that were confirmed by then.
fn wrote_too_late<'a>(run: &Run, strict: impl Iterator<Item = &'a Tenure>, verdict: &mut Verdict) {
    let mut confirmed: Vec<(u64, &Tenure)> =
        strict.filter_map(|tenure| Some((tenure.confirm?.1, tenure))).collect();
    confirmed.retain(|(at, _)| *at != NEVER);
    confirmed.sort_by_key(|(at, tenure)| (*at, tenure.token));
    let mut confirmed = confirmed.into_iter().peekable();
    let mut writes: Vec<_> = run.evidence.writes.iter().filter(|write| write.at.ok()).collect();
    writes.sort_by_key(|write| write.at.t_inv);
    let mut highest: HashMap<Name, Highest> = HashMap::new();
    for write in writes {
        while let Some((_, tenure)) = confirmed.next_if(|(at, _)| *at < write.at.t_inv) {
            let known = highest.entry(tenure.resource).or_default();
            let known = known.entry((tenure.mode, tenure.slot)).or_default();
            *known = (*known).max((tenure.token, tenure.returned.1));
        }
        let Some(known) = highest.get(&write.resource) else { continue };
        let Some(writer) = run.facts.tenure(write.resource, write.token) else { continue };
        let own = (writer.mode, writer.slot);
        let rivals = known.iter().filter(|(key, _)| conflict(**key, own));
        let Some(rival) = rivals.map(|(_, rival)| *rival).max() else { continue };
        if rival.0 > write.token {
            let what = format!(
                "a write with token {} that began at {} succeeded; token {} was confirmed before",
                write.token,
                ms(write.at.t_inv),
                rival.0
            );
            verdict.convict(run.name(write.resource), &[rival.1, write.at.inv, write.at.ret], what);
        }
    }
}
