//! W12: reads are linearizable.
//!
//! Reads `get` (resource; holders, not stale; log_index) and `check_token` (resource, token;
//! current), against the grants that came back and the releases and revokes that did.

use std::collections::{BTreeMap, HashMap};

use super::evidence::{Hand, Mode, NEVER, Name, Read};
use super::facts::{Tenure, conflict};
use super::{Checker, Run, Verdict, ms};

/// W12: a read shows what stood when it began or later, and each read at least what those showed
/// that had ended before it began.
pub struct Reads;

impl Checker for Reads {
    fn name(&self) -> &'static str {
        "reads"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let mut of: BTreeMap<Name, Vec<&Read>> = BTreeMap::new();
        for read in run.evidence.reads.iter().filter(|read| read.at.ok() && !read.stale) {
            verdict.add("reads", 1);
            of.entry(read.resource).or_default().push(read);
        }
        index_goes_back(run, &of, verdict);
        let ended = ended(run);
        for (resource, mut reads) in of {
            reads.sort_by_key(|read| read.at.t_inv);
            shows_the_replaced(run, resource, &reads, verdict);
            shows_the_ended(run, &reads, &ended, verdict);
            misses_the_held(run, resource, &reads, verdict);
        }
    }
}

/// When the release or revoke of a token had come back, and the index.
fn ended(run: &Run) -> HashMap<u64, (u64, u64)> {
    let mut ended: HashMap<u64, (u64, u64)> = HashMap::new();
    let releases = run.evidence.releases.iter().map(|release| (release.token, &release.at));
    let revokes = run.evidence.admin.iter().filter(|admin| admin.hand == Hand::Revoke);
    let revokes = revokes.map(|admin| (admin.token, &admin.at));
    for (token, at) in releases.chain(revokes).filter(|(_, at)| at.ok()) {
        let end = (at.t_ret, at.ret);
        let known = ended.entry(token).or_insert(end);
        *known = end.min(*known);
    }
    ended
}

/// The revision that a read speaks of is at least that of any read that ended before it began. A
/// restored cluster begins its revisions anew.
fn index_goes_back(run: &Run, of: &BTreeMap<Name, Vec<&Read>>, verdict: &mut Verdict) {
    let told = || of.values().flatten().filter(|read| read.at.log_index > 0);
    let restores = run.evidence.faults.iter().filter(|fault| fault.f == "restore");
    let restores: Vec<u64> = restores.map(|fault| fault.time).collect();
    let epoch = |time: u64| restores.partition_point(|restore| *restore <= time);
    let within = told().filter(|read| epoch(read.at.t_inv) == epoch(read.at.t_ret));
    let mut begins: Vec<&&Read> = within.collect();
    let mut ends: Vec<(u64, u64, u64)> =
        begins.iter().map(|read| (read.at.t_ret, read.at.log_index, read.at.ret)).collect();
    ends.sort_unstable();
    begins.sort_by_key(|read| read.at.t_inv);
    let mut ends = ends.into_iter().peekable();
    let mut highest = (0, 0, 0);
    for read in begins {
        while let Some((time, index, op)) = ends.next_if(|end| end.0 < read.at.t_inv) {
            highest = highest.max((epoch(time), index, op));
        }
        if epoch(read.at.t_inv) == highest.0 && read.at.log_index < highest.1 {
            let what = format!(
                "a read speaks of revision {}; one before it of {}",
                read.at.log_index, highest.1
            );
            verdict.convict(run.name(read.resource), &[highest.2, read.at.inv, read.at.ret], what);
        }
    }
}

/// A holder is not shown once a conflicting one with a higher token was returned or shown.
fn shows_the_replaced(run: &Run, resource: Name, reads: &[&Read], verdict: &mut Verdict) {
    type Seen = (u64, u64, (Mode, Option<u32>), u64);
    let granted = run.facts.on(resource).iter().filter(|tenure| tenure.returned.0 != NEVER);
    let granted = granted.map(|t| (t.returned.0, t.token, (t.mode, t.slot), t.returned.1));
    let shown = reads.iter().flat_map(|read| {
        let at = &read.at;
        read.holders.iter().map(move |h| (at.t_ret, h.token, (h.mode, h.slot), at.ret))
    });
    let mut seen: Vec<Seen> = granted.chain(shown).collect();
    seen.sort_unstable();
    let mut seen = seen.into_iter().peekable();
    let mut highest: HashMap<(Mode, Option<u32>), (u64, u64)> = HashMap::new();
    for read in reads {
        while let Some((_, token, key, index)) = seen.next_if(|seen| seen.0 < read.at.t_inv) {
            let known = highest.entry(key).or_default();
            *known = (*known).max((token, index));
        }
        for holder in &read.holders {
            let own = (holder.mode, holder.slot);
            let rivals = highest.iter().filter(|(key, _)| conflict(**key, own));
            let Some(rival) = rivals.map(|(_, rival)| *rival).max() else { continue };
            if rival.0 > holder.token {
                let what = format!(
                    "a read that began at {} shows token {}; token {} had been seen before",
                    ms(read.at.t_inv),
                    holder.token,
                    rival.0
                );
                verdict.convict(run.name(resource), &[rival.1, read.at.inv, read.at.ret], what);
            }
        }
    }
}

fn shows_the_ended(
    run: &Run,
    reads: &[&Read],
    ended: &HashMap<u64, (u64, u64)>,
    verdict: &mut Verdict,
) {
    for read in reads {
        for holder in &read.holders {
            let Some(end) = ended.get(&holder.token) else { continue };
            if end.0 < read.at.t_inv {
                let what = format!(
                    "a read that began at {} shows token {}, which had ended by {}",
                    ms(read.at.t_inv),
                    holder.token,
                    ms(end.0)
                );
                let ops = [end.1, read.at.inv, read.at.ret];
                verdict.convict(run.name(read.resource), &ops, what);
            }
        }
    }
}

/// A grant that came back before a read began, and stood until after it ended, is shown.
fn misses_the_held(run: &Run, resource: Name, reads: &[&Read], verdict: &mut Verdict) {
    let mut tenures: Vec<&Tenure> = run.facts.on(resource).iter().collect();
    tenures.sort_by_key(|tenure| tenure.returned);
    let mut tenures = tenures.into_iter().peekable();
    let mut standing: BTreeMap<(u64, u64), &Tenure> = BTreeMap::new();
    for read in reads {
        while let Some(tenure) = tenures.next_if(|tenure| tenure.returned.0 < read.at.t_inv) {
            let life = run.facts.lives.get(&tenure.session);
            let end = tenure.end.min(life.map_or(NEVER, |life| life.restored));
            standing.insert((end, tenure.token), tenure);
        }
        standing = standing.split_off(&(read.at.t_inv, 0));
        for ((_, token), tenure) in standing.range((read.at.t_ret + 1, 0)..) {
            let asked = read.asked.is_none_or(|asked| asked == *token);
            // A question about one token is about an active grant.
            let active = read.asked.is_none() || is_active(run, tenure, read.at.t_inv);
            if asked && active && read.holders.iter().all(|holder| holder.token != *token) {
                let what = format!(
                    "a read from {} to {} misses token {token}, which was held all the while",
                    ms(read.at.t_inv),
                    ms(read.at.t_ret)
                );
                let ops = [tenure.returned.1, read.at.inv, read.at.ret];
                verdict.convict(run.name(resource), &ops, what);
            }
        }
    }
}

/// That it was current before `time`: no strict handoff, or confirmed.
fn is_active(run: &Run, tenure: &Tenure, time: u64) -> bool {
    match tenure.confirm {
        Some(confirm) => confirm.1 < time,
        None => !run.facts.strict.contains(&tenure.token),
    }
}
