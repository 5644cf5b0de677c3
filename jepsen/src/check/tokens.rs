//! W3, W11: tokens.
//!
//! Reads `acquire` (session, request, resource, more; token), `revoke`, `freeze` (by), the audit
//! feed and the destination's ledger, and the nemesis pairs called `restore`.

use std::collections::HashMap;

use super::evidence::{EventKind, Hand, NEVER, Session};
use super::{Checker, Run, Verdict, session};

/// W3: no token twice, and none at or below one that came back before it was asked for. Over all
/// resources, through every fault and restore.
pub struct Tokens;
/// W11: after a restore all tokens are higher than any that was ever seen before it.
pub struct Floor;

/// A token as it was issued.
struct Issue {
    token: u64,
    /// Whose: a request, or the index of an administrator's operation.
    to: (Session, u64),
    asked: (u64, u64),
    returned: (u64, u64),
}

/// All tokens that were issued to somebody who said so.
fn issues(run: &Run) -> Vec<Issue> {
    let mut issues = Vec::with_capacity(run.evidence.acquires.len());
    for acquire in &run.evidence.acquires {
        let Some(token) = acquire.token else { continue };
        let to = (acquire.session, acquire.request);
        let returned = (acquire.at.t_ret, acquire.at.ret);
        issues.push(Issue { token, to, asked: run.facts.asked[&to], returned });
    }
    for admin in run.evidence.admin.iter().filter(|admin| admin.hand != Hand::Thaw) {
        let Some(token) = admin.by else { continue };
        let to = (Session { cluster: u32::MAX, id: 0 }, admin.at.inv);
        let (asked, returned) = ((admin.at.t_inv, admin.at.inv), (admin.at.t_ret, admin.at.ret));
        issues.push(Issue { token, to, asked, returned });
    }
    issues
}

impl Checker for Tokens {
    fn name(&self) -> &'static str {
        "tokens"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let mut issues = issues(run);
        verdict.add("tokens", issues.len() as u64);
        twice(&mut issues, verdict);
        backwards(&issues, verdict);
    }
}

fn twice(issues: &mut [Issue], verdict: &mut Verdict) {
    issues.sort_by_key(|issue| (issue.token, issue.returned));
    for pair in issues.windows(2) {
        let [a, b] = pair else { continue };
        if a.token == b.token && a.to != b.to {
            let (one, other) = (whose(a.to), whose(b.to));
            let what = format!("token {} was issued to {one} and to {other}", a.token);
            verdict.convict("tokens", &[a.returned.1, b.returned.1], what);
        }
        if a.token == 0 {
            verdict.convict("tokens", &[a.returned.1], "the token 0 was issued".to_owned());
        }
    }
}

fn whose(to: (Session, u64)) -> String {
    if to.0.cluster == u32::MAX {
        return format!("the operation {}", to.1);
    }
    format!("request {} of {}", to.1, session(to.0))
}

/// By the time they were asked for, against the highest that had come back by then.
fn backwards(issues: &[Issue], verdict: &mut Verdict) {
    let mut returns: Vec<(u64, u64, u64)> =
        issues.iter().map(|i| (i.returned.0, i.token, i.returned.1)).collect();
    returns.sort_unstable();
    let mut asks: Vec<&Issue> = issues.iter().collect();
    asks.sort_by_key(|issue| issue.asked);
    let mut returns = returns.into_iter().peekable();
    let mut highest = (0, 0);
    for issue in asks {
        while let Some((_, token, index)) = returns.next_if(|next| next.0 < issue.asked.0) {
            highest = highest.max((token, index));
        }
        if issue.token < highest.0 {
            let what = format!(
                "token {} was asked for after token {} had come back",
                issue.token, highest.0
            );
            verdict.convict("tokens", &[highest.1, issue.asked.1, issue.returned.1], what);
        }
    }
}

impl Checker for Floor {
    fn name(&self) -> &'static str {
        "restore-floor"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let restores: Vec<_> = run.evidence.faults.iter().filter(|f| f.f == "restore").collect();
        // Clusters are numbered by the restores before them, so what the feed and the ledger
        // say of a cluster stands before or after each restore as a whole.
        for (number, pair) in restores.chunks(2).enumerate() {
            let [_, ended] = pair else { continue };
            verdict.add("restores", 1);
            let cluster = u32::try_from(number).unwrap_or(u32::MAX);
            let (token, by) = highest(run, cluster);
            for acquire in run.evidence.acquires.iter().filter(|a| a.session.cluster > cluster) {
                if acquire.token.is_some_and(|new| new <= token) {
                    let what = format!(
                        "token {} was issued after the restore; {token} had been seen {by} before",
                        acquire.token.unwrap_or(0),
                    );
                    verdict.convict("restore", &[ended.index, acquire.at.ret], what);
                }
            }
        }
        revived(run, verdict);
    }
}

/// The highest token of clusters up to this one, and where it was seen.
fn highest(run: &Run, cluster: u32) -> (u64, &'static str) {
    let acquires = run.evidence.acquires.iter().filter(|a| a.session.cluster <= cluster);
    let clients = acquires.filter_map(|a| a.token).max().unwrap_or(0);
    let events = run.evidence.audit.iter().flatten().filter(|e| e.session.cluster <= cluster);
    let audit = events.filter(|e| e.kind == EventKind::Granted).map(|e| e.token).max();
    let entries = run.evidence.ledger.iter().flatten().filter(|e| e.session.cluster <= cluster);
    let ledger = entries.filter(|e| e.accepted).map(|e| e.token).max();
    let seen = [(clients, "by a client"), (audit.unwrap_or(0), "in the audit feed")];
    let all = seen.into_iter().chain([(ledger.unwrap_or(0), "at a destination")]);
    all.max_by_key(|seen| seen.0).unwrap_or((0, ""))
}

/// No session of before a restore does anything after it.
fn revived(run: &Run, verdict: &mut Verdict) {
    let restored: HashMap<Session, u64> =
        run.facts.lives.iter().map(|(session, life)| (*session, life.restored)).collect();
    let ends: Vec<&super::evidence::Fault> =
        run.evidence.faults.iter().filter(|f| f.f == "restore").collect();
    for renewal in run.evidence.renewals.iter().filter(|renewal| renewal.at.ok()) {
        let begun = restored.get(&renewal.session).copied().unwrap_or(NEVER);
        let after = ends.get(renewal.session.cluster as usize * 2 + 1);
        if begun != NEVER && after.is_some_and(|end| renewal.at.t_inv > end.time) {
            let what = format!("{} was renewed after the restore", session(renewal.session));
            verdict.convict("restore", &[renewal.at.inv, renewal.at.ret], what);
        }
    }
}
