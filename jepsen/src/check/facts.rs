//! What follows from the evidence before any rule is applied: how long each session was sure to
//! live, and from when to when each grant was sure to stand.
//!
//! A session lives for its ttl after the last acknowledged renewal, counted from before that
//! renewal was sent, less the allowance for clock rates. A repeated open renews; an acquire does
//! not. So the earliest legal end of a grant with token t is
//!
//! ```text
//! E(t) = min( first release of t, close of its session, revoke of t, freeze of its resource,
//!             and for a strict handoff that was not confirmed its first invocation + barrier:
//!             when they were invoked, whether they are ok or info;
//!             max over ok opens and renewals of its session of invocation + ttl - allowance )
//! ```
//!
//! The ttl is that of the answer; of a session whose ttl was changed the lowest that it was ever
//! given. A request counts from the first invocation of its request id.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::evidence::{
    Acquire, Event, EventKind, Evidence, Hand, Mode, NEVER, Name, Reason, Session, Span,
};
use super::settings::Settings;

/// What is known of a session.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// It may not have ended by its deadline before.
    pub sure_until: u64,
    /// Index of the invocation of the renewal or opening that says so.
    pub sure_by: u64,
    /// When its closing was first invoked.
    pub closed: u64,
    /// When it was first answered that it is over, and the index of that answer.
    pub over: (u64, u64),
    /// The longest ttl it was ever given, in milliseconds.
    pub ttl_ms: u64,
    /// When a restore that ended it began.
    pub restored: u64,
}

/// A grant: one resource, one token.
#[derive(Clone, Debug)]
pub struct Tenure {
    pub resource: Name,
    pub token: u64,
    pub session: Session,
    pub request: u64,
    pub mode: Mode,
    pub slots: u32,
    pub slot: Option<u32>,
    /// First invocation of its request, and the index.
    pub asked: (u64, u64),
    /// First time that its token was returned, and the index; [`NEVER`] if only the audit feed
    /// tells of it.
    pub returned: (u64, u64),
    /// Its earliest legal end: E(t).
    pub end: u64,
    /// The first act that ended it or may have: release, close, revoke, freeze, lack of a
    /// confirmation; [`NEVER`] if there was none.
    pub given_up: u64,
    /// Of a strict handoff: when its confirmation was first invoked and when it was returned.
    pub confirm: Option<(u64, u64)>,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Facts {
    pub lives: HashMap<Session, Life>,
    /// First invocation of each request, and its index.
    pub asked: HashMap<(Session, u64), (u64, u64)>,
    /// By resource and then by token.
    pub tenures: Vec<Tenure>,
    /// Tokens of strict handoffs.
    pub strict: HashSet<u64>,
    /// Where the tenures of each resource stand.
    ranges: BTreeMap<Name, std::ops::Range<usize>>,
}

/// A conflict between two grants on one resource.
pub fn conflict(a: (Mode, Option<u32>), b: (Mode, Option<u32>)) -> bool {
    match (a.0, b.0) {
        (Mode::Shared, Mode::Shared) => false,
        (Mode::Slots, Mode::Slots) => a.1.is_some() && a.1 == b.1,
        (Mode::Exclusive | Mode::Shared | Mode::Slots, _) => true,
    }
}

impl Facts {
    /// What follows.
    pub fn of(evidence: &Evidence, settings: &Settings) -> Facts {
        let mut facts = Facts::default();
        facts.requests(evidence);
        facts.sessions(evidence, settings);
        facts.grants(evidence);
        facts.ends(evidence, settings);
        facts
    }

    /// The tenures of each resource, by token.
    pub fn resources(&self) -> impl Iterator<Item = (Name, &[Tenure])> {
        self.ranges.iter().map(|(name, range)| (*name, &self.tenures[range.clone()]))
    }

    /// The tenures of one resource, by token.
    pub fn on(&self, resource: Name) -> &[Tenure] {
        self.ranges.get(&resource).map_or(&[], |range| &self.tenures[range.clone()])
    }

    /// The tenure of this token on this resource.
    pub fn tenure(&self, resource: Name, token: u64) -> Option<&Tenure> {
        let all = self.on(resource);
        all.binary_search_by_key(&token, |tenure| tenure.token).ok().map(|at| &all[at])
    }

    fn requests(&mut self, evidence: &Evidence) {
        for acquire in &evidence.acquires {
            let first = (acquire.at.t_inv, acquire.at.inv);
            let known = self.asked.entry((acquire.session, acquire.request)).or_insert(first);
            *known = first.min(*known);
        }
    }

    fn sessions(&mut self, evidence: &Evidence, settings: &Settings) {
        let mut ttls: HashMap<Session, u64> = HashMap::new();
        for change in evidence.uses.iter().filter(|change| change.ttl_ms > 0) {
            let lowest = ttls.entry(change.session).or_insert(change.ttl_ms);
            *lowest = change.ttl_ms.min(*lowest);
        }
        for renewal in evidence.opens.iter().chain(&evidence.renewals).filter(|r| r.at.ok()) {
            let lowest = ttls.get(&renewal.session).copied().unwrap_or(NEVER);
            let sure = settings.sure_ns(renewal.ttl_ms.min(lowest));
            let life = self.life(renewal.session);
            let until = renewal.at.t_inv + sure;
            if until > life.sure_until {
                (life.sure_until, life.sure_by) = (until, renewal.at.inv);
            }
            life.ttl_ms = life.ttl_ms.max(renewal.ttl_ms);
        }
        for close in evidence.closes.iter().filter(|close| close.at.maybe()) {
            let life = self.life(close.session);
            life.closed = life.closed.min(close.at.t_inv);
            if close.at.ok() {
                life.over = life.over.min((close.at.t_ret, close.at.ret));
            }
        }
        for (session, at) in session_spans(evidence) {
            if at.reason == Reason::SessionOver {
                let life = self.life(session);
                life.over = life.over.min((at.t_ret, at.ret));
            }
        }
        let restores = evidence.faults.iter().filter(|fault| fault.f == "restore");
        let restores: Vec<u64> = restores.step_by(2).map(|fault| fault.time).collect();
        for (session, life) in &mut self.lives {
            let ended = restores.get(session.cluster as usize).copied();
            life.restored = ended.unwrap_or(NEVER);
        }
    }

    fn life(&mut self, session: Session) -> &mut Life {
        self.lives.entry(session).or_insert(Life {
            sure_until: 0,
            sure_by: 0,
            closed: NEVER,
            over: (NEVER, NEVER),
            ttl_ms: 0,
            restored: NEVER,
        })
    }

    fn grants(&mut self, evidence: &Evidence) {
        for acquire in &evidence.acquires {
            let Some(token) = acquire.token else { continue };
            let asked = self.asked[&(acquire.session, acquire.request)];
            for resource in std::iter::once(acquire.resource).chain(acquire.more.iter().copied()) {
                self.tenures.push(granted(acquire, resource, token, asked));
            }
        }
        for event in evidence.audit.iter().flatten() {
            if event.kind == EventKind::Granted {
                self.audited(event);
            }
        }
        self.tenures.sort_by_key(|t| (t.resource, t.token, t.returned));
        self.tenures
            .dedup_by(|late, early| (late.resource, late.token) == (early.resource, early.token));
        let mut from = 0;
        for chunk in self.tenures.chunk_by(|a, b| a.resource == b.resource) {
            self.ranges.insert(chunk[0].resource, from..from + chunk.len());
            from += chunk.len();
        }
    }

    /// A grant that the feed tells of. Of one whose answer was lost nothing else is known.
    fn audited(&mut self, event: &Event) {
        let Some(asked) = self.asked.get(&(event.session, event.request)) else { return };
        for resource in &event.resources {
            self.tenures.push(Tenure {
                resource: *resource,
                token: event.token,
                session: event.session,
                request: event.request,
                mode: event.mode,
                slots: event.slots,
                slot: event.slot,
                asked: *asked,
                returned: (NEVER, NEVER),
                end: 0,
                given_up: NEVER,
                confirm: None,
            });
        }
    }

    fn ends(&mut self, evidence: &Evidence, settings: &Settings) {
        let acts = Acts::of(evidence, settings);
        for tenure in &mut self.tenures {
            let life = self.lives.get(&tenure.session);
            tenure.confirm = acts.confirmed.get(&tenure.token).copied();
            let mut given_up = life.map_or(NEVER, |life| life.closed);
            given_up = given_up.min(acts.ended.get(&tenure.token).copied().unwrap_or(NEVER));
            let sure = tenure.confirm.is_some_and(|confirm| confirm.1 != NEVER);
            if let Some(barrier) = acts.barriers.get(&(tenure.session, tenure.request)) {
                self.strict.insert(tenure.token);
                if !sure {
                    given_up = given_up.min(tenure.asked.0 + barrier);
                }
            }
            tenure.given_up = given_up;
            tenure.end = given_up.min(life.map_or(0, |life| life.sure_until));
        }
        self.freezes(evidence);
    }

    /// A freeze ends every earlier grant on its resource, and with one of a set the whole set.
    fn freezes(&mut self, evidence: &Evidence) {
        let mut ended: HashMap<u64, u64> = HashMap::new();
        for freeze in evidence.admin.iter().filter(|a| a.hand == Hand::Freeze && a.at.maybe()) {
            let below = freeze.by.unwrap_or(NEVER);
            for tenure in self.on(freeze.resource).iter().take_while(|t| t.token < below) {
                let at = ended.entry(tenure.token).or_insert(NEVER);
                *at = freeze.at.t_inv.min(*at);
            }
        }
        if ended.is_empty() {
            return;
        }
        for tenure in &mut self.tenures {
            let at = ended.get(&tenure.token).copied().unwrap_or(NEVER);
            tenure.given_up = tenure.given_up.min(at);
            tenure.end = tenure.end.min(at);
        }
    }
}

fn granted(acquire: &Acquire, resource: Name, token: u64, asked: (u64, u64)) -> Tenure {
    Tenure {
        resource,
        token,
        session: acquire.session,
        request: acquire.request,
        mode: acquire.mode,
        slots: acquire.slots,
        slot: acquire.slot,
        asked,
        returned: (acquire.at.t_ret, acquire.at.ret),
        end: 0,
        given_up: NEVER,
        confirm: None,
    }
}

/// What ends grants, by token.
struct Acts {
    /// First invocation of a release or revoke that may have had an effect.
    ended: HashMap<u64, u64>,
    confirmed: HashMap<u64, (u64, u64)>,
    /// Of requests for a strict handoff, in nanoseconds, less the allowance.
    barriers: HashMap<(Session, u64), u64>,
}

impl Acts {
    fn of(evidence: &Evidence, settings: &Settings) -> Acts {
        let mut ended: HashMap<u64, u64> = HashMap::new();
        let revokes = evidence.admin.iter().filter(|admin| admin.hand == Hand::Revoke);
        let revokes = revokes.map(|admin| (admin.token, &admin.at));
        let releases = evidence.releases.iter().map(|release| (release.token, &release.at));
        for (token, at) in releases.chain(revokes).filter(|(_, at)| at.maybe()) {
            let first = ended.entry(token).or_insert(NEVER);
            *first = at.t_inv.min(*first);
        }
        let mut confirmed: HashMap<u64, (u64, u64)> = HashMap::new();
        let confirms = evidence.confirms.iter().map(|confirm| (confirm.token, &confirm.at));
        let whole = evidence.acquires.iter().filter(|acquire| acquire.confirmed);
        let whole = whole.filter_map(|acquire| Some((acquire.token?, &acquire.at)));
        for (token, at) in confirms.chain(whole).filter(|(_, at)| at.maybe()) {
            let known = confirmed.entry(token).or_insert((NEVER, NEVER));
            known.0 = known.0.min(at.t_inv);
            known.1 = known.1.min(at.t_ret);
        }
        let strict = evidence.acquires.iter().filter_map(|acquire| {
            let barrier = settings.sure_ns(acquire.barrier_ms?);
            Some(((acquire.session, acquire.request), barrier))
        });
        let barriers = strict.collect();
        Acts { ended, confirmed, barriers }
    }
}

/// Every operation of a session with its span.
pub fn session_spans(evidence: &Evidence) -> impl Iterator<Item = (Session, &Span)> {
    let acquires = evidence.acquires.iter().map(|a| (a.session, &a.at));
    let named = evidence.releases.iter().chain(&evidence.confirms).map(|n| (n.session, &n.at));
    let renewals = evidence.renewals.iter().map(|r| (r.session, &r.at));
    let uses = evidence.uses.iter().chain(&evidence.closes).map(|u| (u.session, &u.at));
    acquires.chain(named).chain(renewals).chain(uses)
}
