//! W8, W10: sessions live as long as they were told, and not again after.
//!
//! Reads `open`, `renew` (session, ttl_ms), every other operation of a session, with the refusals
//! `SESSION_EXPIRED`, `SESSION_UNKNOWN`, `NOT_HELD` and `GRANT_ENDED`, and what ends grants.

use std::collections::HashMap;

use super::evidence::{Mode, NEVER, Named, Reason, Session, Span};
use super::facts::{Tenure, conflict, session_spans};
use super::{Checker, Run, Verdict, ms, session};

/// A session is over once another holds what it did not give up, or once anybody was told so:
/// nothing that is begun later succeeds in its name.
pub struct Zombie;
/// Nobody is told that a session or a grant is over before its earliest legal end.
pub struct Early;

impl Checker for Zombie {
    fn name(&self) -> &'static str {
        "zombie"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let over = taken_over(run);
        let opens = run.evidence.opens.iter().map(|open| (open.session, &open.at));
        let closes = run.evidence.closes.iter().map(|close| close.at.inv);
        let closes: std::collections::HashSet<u64> = closes.collect();
        for (of, at) in session_spans(&run.evidence).chain(opens).filter(|(_, at)| at.ok()) {
            verdict.add("operations", 1);
            if closes.contains(&at.inv) {
                continue;
            }
            let told = run.facts.lives.get(&of).map_or((NEVER, 0), |life| life.over);
            let taken = over.get(&of).copied().unwrap_or((NEVER, 0, 0));
            if taken.0 < at.t_inv {
                let what = format!(
                    "an operation of it succeeded that began at {}; by {} token {} had what it held",
                    ms(at.t_inv),
                    ms(taken.0),
                    taken.2
                );
                verdict.convict(&session(of), &[taken.1, at.inv, at.ret], what);
            } else if told.0 < at.t_inv {
                let what = format!(
                    "an operation of it succeeded that began at {}; it was over at {}",
                    ms(at.t_inv),
                    ms(told.0)
                );
                verdict.convict(&session(of), &[told.1, at.inv, at.ret], what);
            }
        }
    }
}

/// When each session was first seen to have lost a grant: by when a conflicting higher token had
/// come back, the index of that event and the token.
fn taken_over(run: &Run) -> HashMap<Session, (u64, u64, u64)> {
    let mut over: HashMap<Session, (u64, u64, u64)> = HashMap::new();
    for (_, tenures) in run.facts.resources() {
        let mut first: HashMap<(Mode, Option<u32>), (u64, u64, u64)> = HashMap::new();
        for tenure in tenures.iter().rev() {
            let own = (tenure.mode, tenure.slot);
            let rivals = first.iter().filter(|(key, _)| conflict(**key, own));
            if let Some(taken) = rivals.map(|(_, taken)| *taken).min()
                && taken.0 < tenure.given_up
            {
                let known = over.entry(tenure.session).or_insert(taken);
                *known = taken.min(*known);
            }
            let returned = (tenure.returned.0, tenure.returned.1, tenure.token);
            let known = first.entry(own).or_insert(returned);
            *known = returned.min(*known);
        }
    }
    over
}

impl Checker for Early {
    fn name(&self) -> &'static str {
        "early"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        verdict.add("sessions", run.facts.lives.len() as u64);
        for (of, at) in session_spans(&run.evidence) {
            if at.reason == Reason::SessionOver {
                told_over(run, of, at, verdict);
            }
        }
        let named = run.evidence.releases.iter().chain(&run.evidence.confirms);
        for named in named.filter(|named| named.at.reason == Reason::NotHeld) {
            told_not_held(run, named, verdict);
        }
        told_ended(run, verdict);
        late(run, verdict);
    }
}

fn told_over(run: &Run, of: Session, at: &Span, verdict: &mut Verdict) {
    let Some(life) = run.facts.lives.get(&of) else { return };
    verdict.add("told over", 1);
    if at.t_ret < life.sure_until.min(life.closed).min(life.restored) {
        let what = format!(
            "it was told over by {}; it was sure to live until {}",
            ms(at.t_ret),
            ms(life.sure_until)
        );
        verdict.convict(&session(of), &[life.sure_by, at.ret], what);
    }
}

fn told_not_held(run: &Run, named: &Named, verdict: &mut Verdict) {
    let Some(tenure) = run.facts.tenure(named.resource, named.token) else { return };
    if tenure.session == named.session {
        lost(run, tenure, &named.at, verdict);
    }
}

fn lost(run: &Run, tenure: &Tenure, at: &Span, verdict: &mut Verdict) {
    verdict.add("told lost", 1);
    let restored = run.facts.lives.get(&tenure.session).map_or(NEVER, |life| life.restored);
    if at.t_ret < tenure.end.min(restored) {
        let what = format!(
            "token {} was told lost by {}; it was sure to stand until {}",
            tenure.token,
            ms(at.t_ret),
            ms(tenure.end)
        );
        let sure = run.facts.lives.get(&tenure.session).map_or(0, |life| life.sure_by);
        verdict.convict(run.name(tenure.resource), &[sure, at.ret], what);
    }
}

/// `GRANT_ENDED` to a retry.
fn told_ended(run: &Run, verdict: &mut Verdict) {
    let ended = run.evidence.acquires.iter().filter(|a| a.at.reason == Reason::GrantEnded);
    let ended: Vec<_> = ended.collect();
    if ended.is_empty() {
        return;
    }
    let tenures = run.facts.tenures.iter().map(|t| ((t.session, t.request), t));
    let tenures: HashMap<(Session, u64), &Tenure> = tenures.collect();
    for acquire in ended {
        if let Some(tenure) = tenures.get(&(acquire.session, acquire.request)) {
            lost(run, tenure, &acquire.at, verdict);
        }
    }
}

/// How long the longest wait for the end of a dead session was, past its sure time. Told, not
/// judged: elections and stalls may move deadlines.
fn late(run: &Run, verdict: &mut Verdict) {
    let mut longest = 0;
    for (_, tenures) in run.facts.resources() {
        for pair in tenures.windows(2) {
            let [before, after] = pair else { continue };
            let dead = before.given_up == NEVER && after.returned.0 != NEVER;
            if dead && after.asked.0 < before.end {
                longest = longest.max(after.returned.0.saturating_sub(before.end));
            }
        }
    }
    verdict.add("ms past the sure end, at most", longest / 1_000_000);
}
