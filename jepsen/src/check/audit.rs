//! W3 to W7, W10: the audit feed, replayed.
//!
//! Reads `audit.jsonl` alone. At every revision: who holds what beside whom, who waits in which
//! order, and that tokens grow in the order of the log.

use std::collections::{BTreeMap, HashMap};

use super::evidence::{Cause, Event, EventKind, Mode, Name, Session};
use super::{Checker, Run, Verdict, session};

/// The feed is what a lawful authority can have done.
pub struct Audit;

#[derive(Clone, Copy)]
struct Holder {
    token: u64,
    session: Session,
    mode: Mode,
    slot: Option<u32>,
}

#[derive(Default)]
struct Resource {
    holders: Vec<Holder>,
    /// Who waits, in order.
    queue: Vec<(Session, u64)>,
    frozen: bool,
}

/// The state of the authority as the feed tells it.
#[derive(Default)]
struct Replay {
    resources: HashMap<Name, Resource>,
    ended: HashMap<Session, u64>,
    /// Of sessions that ended, at the log index that is being replayed: what must end with them.
    ending: Vec<Session>,
    token: u64,
    at: (u32, u64, u32),
    /// That events are missing: not all that is held is known.
    partial: bool,
}

impl Checker for Audit {
    fn name(&self) -> &'static str {
        "audit"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let Some(audit) = &run.evidence.audit else { return };
        let mut replay = Replay::default();
        let mut gaps = 0;
        for event in audit {
            verdict.add("events", 1);
            if event.kind == EventKind::Gap {
                gaps += 1;
                if gaps > run.settings.gaps_max {
                    verdict.doubt(format!("events are missing after index {}", replay.at.1));
                }
                replay = Replay { token: replay.token, partial: true, ..Replay::default() };
                continue;
            }
            if !replay.begin_with(event) {
                replay.take(run, event, verdict);
            }
        }
        replay.settle(run, verdict);
        verdict.add("gaps", gaps);
    }
}

impl Replay {
    /// Takes in a part of the state that follows a gap; false for what is an event. What is so
    /// already was judged when it happened, or cannot be.
    fn begin_with(&mut self, event: &Event) -> bool {
        let state = [EventKind::StateHeld, EventKind::StateWaits, EventKind::StateFrozen];
        if !state.contains(&event.kind) {
            return false;
        }
        // From here on it is known again who holds what.
        self.partial = false;
        self.token = self.token.max(event.token);
        for name in &event.resources {
            let resource = self.resources.entry(*name).or_default();
            if event.kind == EventKind::StateHeld {
                let (token, mode, slot) = (event.token, event.mode, event.slot);
                resource.holders.push(Holder { token, session: event.session, mode, slot });
            } else if event.kind == EventKind::StateWaits {
                resource.queue.push((event.session, event.request));
            } else {
                resource.frozen = true;
            }
        }
        true
    }

    fn take(&mut self, run: &Run, event: &Event, verdict: &mut Verdict) {
        let cluster = event.session.cluster;
        let at = (cluster, event.index, event.ordinal);
        if (at.0, at.1) != (self.at.0, self.at.1) {
            self.settle(run, verdict);
        }
        if cluster != self.at.0 {
            // A restore ends every session, grant and wait, and keeps the counter and freezes.
            self.resources.retain(|_, resource| resource.frozen);
            self.resources.values_mut().for_each(|r| (r.holders, r.queue) = (vec![], vec![]));
            self.ended.clear();
        } else if at <= self.at && self.at != (0, 0, 0) {
            verdict.doubt(format!("the feed is out of order at index {}", event.index));
        }
        self.at = at;
        match event.kind {
            EventKind::SessionEnded => {
                self.ended.insert(event.session, event.index);
                self.ending.push(event.session);
            }
            EventKind::Queued => self.queued(event),
            EventKind::Granted => self.granted(run, event, verdict),
            EventKind::Ended => self.over(run, event, verdict),
            EventKind::LeftQueue => {
                for name in &event.resources {
                    self.leave(*name, (event.session, event.request));
                }
            }
            EventKind::Frozen | EventKind::Thawed => {
                let frozen = event.kind == EventKind::Frozen;
                for name in &event.resources {
                    self.resources.entry(*name).or_default().frozen = frozen;
                }
                if frozen {
                    self.token = self.token.max(event.token);
                }
            }
            EventKind::Resized => self.token = self.token.max(event.token),
            EventKind::SessionOpened
            | EventKind::Activated
            | EventKind::ValueChanged
            | EventKind::Asked
            | EventKind::Reopened
            | EventKind::Gap
            | EventKind::StateHeld
            | EventKind::StateWaits
            | EventKind::StateFrozen => {}
        }
    }

    fn queued(&mut self, event: &Event) {
        for name in &event.resources {
            let resource = self.resources.entry(*name).or_default();
            resource.queue.push((event.session, event.request));
        }
    }

    fn granted(&mut self, run: &Run, event: &Event, verdict: &mut Verdict) {
        let (token, index) = (event.token, event.index);
        if token <= self.token {
            let what = format!("token {token} at index {index} comes after token {}", self.token);
            verdict.convict("tokens", &[], what);
        }
        self.token = self.token.max(token);
        if self.ended.contains_key(&event.session) {
            let what = format!("token {token} at index {index} is granted after its end");
            verdict.convict(&session(event.session), &[], what);
        }
        for name in &event.resources {
            let resource = self.resources.entry(*name).or_default();
            for what in resource.grant(event) {
                let what = format!("token {token} at index {index} is granted {what}");
                verdict.convict(run.name(*name), &[], what);
            }
            self.leave(*name, (event.session, event.request));
        }
    }

    fn over(&mut self, run: &Run, event: &Event, verdict: &mut Verdict) {
        for name in &event.resources {
            let resource = self.resources.entry(*name).or_default();
            let before = resource.holders.len();
            resource.holders.retain(|holder| holder.token != event.token);
            if resource.holders.len() == before && !self.partial {
                let what = format!("token {} ends at index {} unheld", event.token, event.index);
                verdict.convict(run.name(*name), &[], what);
            }
        }
        let with_session = matches!(event.cause, Cause::Expired | Cause::Closed);
        if with_session && !self.ended.contains_key(&event.session) {
            self.ending.push(event.session);
        }
    }

    fn leave(&mut self, name: Name, who: (Session, u64)) {
        if let Some(resource) = self.resources.get_mut(&name) {
            resource.queue.retain(|waiter| *waiter != who);
        }
    }

    /// At the end of an entry: a session that ended holds nothing, and what ended with its
    /// session did so in the entry that ended it.
    fn settle(&mut self, run: &Run, verdict: &mut Verdict) {
        let ending: Vec<Session> = self.ending.drain(..).collect();
        if ending.is_empty() {
            return;
        }
        for of in &ending {
            if !self.ended.contains_key(of) {
                let what = format!("a grant of it ended with it at {}, it did not", self.at.1);
                verdict.convict(&session(*of), &[], what);
            }
        }
        let mut left: BTreeMap<Name, u64> = BTreeMap::new();
        for (name, resource) in &self.resources {
            for holder in resource.holders.iter().filter(|h| ending.contains(&h.session)) {
                left.insert(*name, holder.token);
            }
        }
        for (name, token) in left {
            let what = format!("token {token} outlives its session, ended at {}", self.at.1);
            verdict.convict(run.name(name), &[], what);
        }
    }
}

impl Resource {
    /// What is wrong with this grant here and now; and it holds.
    fn grant(&mut self, event: &Event) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.frozen {
            wrong.push("while it is frozen".to_owned());
        }
        let own = (event.mode, event.slot);
        for holder in &self.holders {
            if super::facts::conflict(own, (holder.mode, holder.slot)) {
                wrong.push(format!("beside token {}", holder.token));
            }
        }
        if event.mode == Mode::Slots && self.holders.len() >= event.slots as usize {
            wrong.push(format!("as one more than {} slots", event.slots));
        }
        if event.mode == Mode::Slots && event.slot >= Some(event.slots) {
            wrong.push(format!("a slot beyond its {}", event.slots));
        }
        if let Some(first) = self.queue.first()
            && *first != (event.session, event.request)
        {
            let who = session(first.0);
            wrong.push(format!("before request {} of {who}, first in the queue", first.1));
        }
        let (token, mode, slot) = (event.token, event.mode, event.slot);
        self.holders.push(Holder { token, session: event.session, mode, slot });
        let others = self.holders.iter().map(|holder| holder.token);
        let floor = match mode {
            Mode::Exclusive => token,
            Mode::Shared | Mode::Slots => others.min().unwrap_or(token),
        };
        if event.floor != 0 && event.floor != floor {
            wrong.push(format!("with floor {} instead of {floor}", event.floor));
        }
        wrong
    }
}
