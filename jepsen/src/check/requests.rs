//! W4: a request takes effect once, and a release ends what it names.
//!
//! Reads `acquire` (session, request; token), `release`, `revoke` (token), and the audit feed's
//! `granted` and `ended`. A first grant whose answer was lost shows in the feed only, so without
//! a feed the answer is unknown when there were retries.

use std::collections::{HashMap, HashSet};

use super::evidence::{Cause, Event, EventKind, Hand, Session};
use super::{Checker, Run, Verdict, session};

/// W4.
pub struct Requests;

impl Checker for Requests {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        verdict.add("requests", run.facts.asked.len() as u64);
        answered_alike(run, verdict);
        ended_is_not_live(run, verdict);
        match &run.evidence.audit {
            Some(audit) => {
                granted_once(audit, verdict);
                released_by_its_release(run, audit, verdict);
            }
            None if run.evidence.acquires.len() > run.facts.asked.len() => {
                verdict.doubt("there were retries, and there is no audit feed".to_owned());
            }
            None => {}
        }
    }
}

/// Every answer to a request names the same token.
fn answered_alike(run: &Run, verdict: &mut Verdict) {
    let mut first: HashMap<(Session, u64), (u64, u64)> = HashMap::new();
    for acquire in &run.evidence.acquires {
        let Some(token) = acquire.token else { continue };
        let key = (acquire.session, acquire.request);
        let known = *first.entry(key).or_insert((token, acquire.at.ret));
        if known.0 != token {
            let what = format!("request {} was answered with token {} and {token}", key.1, known.0);
            verdict.convict(&session(key.0), &[known.1, acquire.at.ret], what);
        }
    }
}

/// A retry that begins after its grant was released or revoked must not be answered with it.
fn ended_is_not_live(run: &Run, verdict: &mut Verdict) {
    let mut ended: HashMap<u64, (u64, u64)> = HashMap::new();
    let releases = run.evidence.releases.iter().map(|release| (release.token, &release.at));
    let revokes = run.evidence.admin.iter().filter(|admin| admin.hand == Hand::Revoke);
    let revokes = revokes.map(|admin| (admin.token, &admin.at));
    for (token, at) in releases.chain(revokes).filter(|(_, at)| at.ok()) {
        let end = (at.t_ret, at.ret);
        let known = ended.entry(token).or_insert(end);
        *known = end.min(*known);
    }
    for acquire in &run.evidence.acquires {
        let Some(end) = acquire.token.and_then(|token| ended.get(&token)) else { continue };
        if end.0 < acquire.at.t_inv {
            let what = format!(
                "request {} was answered with token {}, which had ended",
                acquire.request,
                acquire.token.unwrap_or(0),
            );
            verdict.convict(&session(acquire.session), &[end.1, acquire.at.ret], what);
        }
    }
}

/// The feed tells of one grant for each request.
fn granted_once(audit: &[Event], verdict: &mut Verdict) {
    let mut granted: HashMap<(Session, u64), u64> = HashMap::new();
    for event in audit.iter().filter(|event| event.kind == EventKind::Granted) {
        verdict.add("grants in the feed", 1);
        let first = *granted.entry((event.session, event.request)).or_insert(event.token);
        if first != event.token {
            let what = format!(
                "the audit feed grants request {} token {first}, and token {} at index {}",
                event.request, event.token, event.index
            );
            verdict.convict(&session(event.session), &[], what);
        }
    }
}

/// What the feed calls released was released by somebody who named it.
fn released_by_its_release(run: &Run, audit: &[Event], verdict: &mut Verdict) {
    let named: HashSet<(u64, Session)> = run
        .evidence
        .releases
        .iter()
        .filter(|release| release.at.maybe())
        .map(|release| (release.token, release.session))
        .collect();
    for event in audit.iter().filter(|event| event.kind == EventKind::Ended) {
        let own = run.evidence.libraries.contains(&event.session);
        if event.cause == Cause::Released && !own && !named.contains(&(event.token, event.session))
        {
            let what = format!(
                "token {} ended at index {} as released; its holder never released it",
                event.token, event.index
            );
            verdict.convict(&session(event.session), &[], what);
        }
    }
}
