//! A lock authority in one struct: the rules of Ringfence without its means.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::mutant::Mutant;
use crate::check::evidence::Mode;

/// How long sessions live, in nanoseconds.
pub const TTL: u64 = 2_000_000_000;
/// How long a strict grant may stay unconfirmed, in nanoseconds.
pub const BARRIER: u64 = 1_000_000_000;

/// A request for a resource.
#[derive(Clone, Debug)]
pub struct Ask {
    pub session: u64,
    pub request: u64,
    pub resource: String,
    pub mode: Mode,
    pub slots: u32,
    pub strict: bool,
}

/// What was granted.
#[derive(Clone, Debug)]
pub struct Grant {
    pub ask: Ask,
    pub token: u64,
    pub floor: u64,
    pub slot: Option<u32>,
    pub active: bool,
    until: u64,
}

/// The answer to an acquire.
#[derive(Debug)]
pub enum Answer {
    Granted(Grant),
    Queued(usize),
    Refused(&'static str),
}

#[derive(Clone, Debug, Default)]
struct Resource {
    holders: Vec<Grant>,
    queue: VecDeque<Ask>,
}

/// The state. Cloned, it is what a leader knew that others have left behind.
#[derive(Clone, Debug)]
pub struct Authority {
    pub mutant: Option<Mutant>,
    pub cluster: u32,
    pub index: u64,
    pub token: u64,
    /// Of each session its deadline.
    sessions: BTreeMap<u64, u64>,
    resources: BTreeMap<String, Resource>,
    /// Tokens by session and request.
    outcomes: BTreeMap<(u64, u64), u64>,
    closed_until: u64,
    ordinal: u32,
    /// Events that nobody took yet.
    pub feed: Vec<Value>,
}

impl Authority {
    pub fn new(mutant: Option<Mutant>) -> Authority {
        Authority {
            mutant,
            cluster: 0,
            index: 0,
            token: 0,
            sessions: BTreeMap::new(),
            resources: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            closed_until: 0,
            ordinal: 0,
            feed: Vec::new(),
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn ttl(&self) -> u64 {
        if self.is(Mutant::ExpiryEarly) { TTL * 9 / 10 } else { TTL }
    }

    fn entry(&mut self) {
        self.index += 1;
        self.ordinal = 0;
    }

    fn tell(&mut self, mut event: Value) {
        let fields = event.as_object_mut().expect("events are objects");
        fields.insert("cluster".into(), json!(self.cluster));
        fields.insert("index".into(), json!(self.index));
        fields.insert("ordinal".into(), json!(self.ordinal));
        self.ordinal += 1;
        self.feed.push(event);
    }

    pub fn open(&mut self, now: u64) -> u64 {
        self.entry();
        let session = self.index;
        self.sessions.insert(session, now + self.ttl());
        self.tell(json!({"kind": "session_opened", "session": session}));
        session
    }

    pub fn renew(&mut self, now: u64, session: u64) -> Result<(), &'static str> {
        let ttl = self.ttl();
        let deadline = self.sessions.get_mut(&session).ok_or("SESSION_EXPIRED")?;
        *deadline = (*deadline).max(now + ttl);
        Ok(())
    }

    pub fn close(&mut self, now: u64, session: u64) -> Result<(), &'static str> {
        if !self.sessions.contains_key(&session) {
            return Err("SESSION_EXPIRED");
        }
        self.entry();
        self.end_session(session, "closed");
        self.grant_all(now);
        Ok(())
    }

    pub fn acquire(&mut self, now: u64, ask: &Ask) -> Answer {
        if now < self.closed_until {
            return Answer::Refused("RESTORING");
        }
        if !self.sessions.contains_key(&ask.session) {
            return Answer::Refused("SESSION_EXPIRED");
        }
        let key = (ask.session, ask.request);
        if !self.is(Mutant::NoRequestDedup)
            && let Some(token) = self.outcomes.get(&key)
        {
            let held = self.resources.get(&ask.resource).and_then(|resource| {
                resource.holders.iter().find(|grant| grant.token == *token).cloned()
            });
            return held.map_or(Answer::Refused("GRANT_ENDED"), Answer::Granted);
        }
        let same = |other: &Ask| (other.session, other.request) == key;
        let resource = self.resources.entry(ask.resource.clone()).or_default();
        if !resource.queue.iter().any(same) {
            resource.queue.push_back(ask.clone());
            self.entry();
            self.tell(json!({"kind": "queued", "resources": [&ask.resource],
                "session": ask.session, "request": ask.request, "mode": word(ask.mode)}));
            self.grant(now, &ask.resource);
        }
        let resource = &self.resources[&ask.resource];
        if let Some(grant) = resource.holders.iter().rfind(|grant| same(&grant.ask)) {
            return Answer::Granted(grant.clone());
        }
        match resource.queue.iter().position(same) {
            Some(ahead) => Answer::Queued(ahead),
            None => Answer::Refused("GRANT_ENDED"),
        }
    }

    pub fn confirm(
        &mut self,
        session: u64,
        resource: &str,
        token: u64,
    ) -> Result<(), &'static str> {
        let holders = self.resources.get_mut(resource).map(|resource| &mut resource.holders);
        let holder = holders.and_then(|all| all.iter_mut().find(|grant| grant.token == token));
        let holder = holder.filter(|grant| grant.ask.session == session).ok_or("NOT_HELD")?;
        holder.active = true;
        self.entry();
        self.tell(json!({"kind": "activated", "resources": [resource], "session": session,
            "token": token}));
        Ok(())
    }

    pub fn release(
        &mut self,
        now: u64,
        session: u64,
        resource: &str,
        token: u64,
    ) -> Result<(), &'static str> {
        if !self.sessions.contains_key(&session) && !self.is(Mutant::ReleaseWithoutOwnership) {
            return Err("SESSION_EXPIRED");
        }
        let anyone = self.is(Mutant::ReleaseWithoutOwnership);
        let any_token = anyone || self.is(Mutant::ReleaseIgnoresToken);
        let holders = self.resources.get(resource).map(|resource| &resource.holders);
        let named = |grant: &&Grant| {
            (anyone || grant.ask.session == session) && (any_token || grant.token == token)
        };
        let found = holders.and_then(|all| all.iter().find(named)).map(|grant| grant.token);
        let found = found.ok_or("NOT_HELD")?;
        self.entry();
        self.end_grant(resource, found, "released");
        self.grant(now, resource);
        Ok(())
    }

    pub fn holders(&self, resource: &str) -> Vec<Grant> {
        self.resources.get(resource).map_or_else(Vec::new, |found| found.holders.clone())
    }

    /// Ends what is over by now.
    pub fn tick(&mut self, now: u64) {
        let over: Vec<u64> =
            self.sessions.iter().filter(|(_, end)| **end <= now).map(|(id, _)| *id).collect();
        for session in over {
            self.entry();
            self.end_session(session, "expired");
            self.grant_all(now);
        }
        let unconfirmed: Vec<(String, u64)> = self
            .resources
            .iter()
            .flat_map(|(name, resource)| resource.holders.iter().map(move |grant| (name, grant)))
            .filter(|(_, grant)| !grant.active && grant.until <= now)
            .map(|(name, grant)| (name.clone(), grant.token))
            .collect();
        for (name, token) in unconfirmed {
            self.entry();
            self.end_grant(&name, token, "unconfirmed");
            self.grant(now, &name);
        }
    }

    fn end_session(&mut self, session: u64, cause: &str) {
        let names: Vec<String> = self.resources.keys().cloned().collect();
        for name in names {
            let resource = self.resources.get_mut(&name).expect("it was listed");
            let held = resource.holders.iter().filter(|grant| grant.ask.session == session);
            let tokens: Vec<u64> = held.map(|grant| grant.token).collect();
            if self.mutant != Some(Mutant::GrantToExpiredWaiter) {
                let waits = resource.queue.iter().filter(|ask| ask.session == session);
                let requests: Vec<u64> = waits.map(|ask| ask.request).collect();
                resource.queue.retain(|ask| ask.session != session);
                for request in requests {
                    self.tell(json!({"kind": "left_queue", "resources": [&name],
                        "session": session, "request": request, "cause": cause}));
                }
            }
            for token in tokens {
                self.end_grant(&name, token, cause);
            }
        }
        self.outcomes.retain(|(of, _), _| *of != session);
        self.sessions.remove(&session);
        self.tell(json!({"kind": "session_ended", "session": session, "cause": cause}));
    }

    fn end_grant(&mut self, resource: &str, token: u64, cause: &str) {
        let found = self.resources.get_mut(resource).expect("a holder's resource is there");
        let at = found.holders.iter().position(|grant| grant.token == token);
        let grant = found.holders.remove(at.expect("it was found"));
        if self.mutant == Some(Mutant::SharedCountedOnce) && grant.ask.mode == Mode::Shared {
            found.holders.clear();
        }
        self.tell(json!({"kind": "ended", "resources": [resource], "session": grant.ask.session,
            "request": grant.ask.request, "token": token, "cause": cause}));
    }

    fn grant_all(&mut self, now: u64) {
        let names: Vec<String> = self.resources.keys().cloned().collect();
        names.iter().for_each(|name| self.grant(now, name));
    }

    fn grant(&mut self, now: u64, name: &str) {
        loop {
            let resource = self.resources.get_mut(name).expect("it was listed");
            let at = match self.mutant {
                Some(Mutant::Lifo) => resource.queue.len().saturating_sub(1),
                Some(Mutant::SkipHead) if resource.queue.len() > 1 => 1,
                Some(_) | None => 0,
            };
            let Some(ask) = resource.queue.get(at) else { return };
            let more = u32::from(self.mutant == Some(Mutant::SlotsOffByOne));
            let Some(slot) = place(&resource.holders, ask, ask.slots + more) else { return };
            let ask = resource.queue.remove(at).expect("it was looked at");
            self.token += 1;
            let token = self.token;
            let lowest = resource.holders.iter().map(|grant| grant.token).min().unwrap_or(token);
            let floor = if ask.mode == Mode::Exclusive { token } else { lowest.min(token) };
            let (active, until) = (!ask.strict, now + BARRIER);
            let grant = Grant { ask: ask.clone(), token, floor, slot, active, until };
            resource.holders.push(grant);
            self.outcomes.insert((ask.session, ask.request), token);
            self.tell(json!({"kind": "granted", "resources": [name], "session": ask.session,
                "request": ask.request, "token": token, "floor": floor, "slot": slot,
                "slots": ask.slots, "mode": word(ask.mode)}));
        }
    }

    /// Every deadline begins anew, as after a restart or a change of leader.
    pub fn restart(&mut self, now: u64) {
        if self.is(Mutant::DeadlineOverRestart) {
            self.sessions.values_mut().for_each(|end| *end = now.max(*end - TTL / 2));
        } else {
            let until = now + self.ttl();
            self.sessions.values_mut().for_each(|end| *end = until.max(*end));
        }
        if self.is(Mutant::TokenInMemoryOnly) {
            self.token = 0;
        }
    }

    /// The wall clock jumps ahead.
    pub fn wall_step(&mut self, now: u64) {
        if self.is(Mutant::ExpiryByWallClock) {
            self.sessions.values_mut().for_each(|end| *end = now);
        }
    }

    /// A snapshot is installed.
    pub fn snapshot(&mut self) {
        if self.is(Mutant::SnapshotDropsDedup) {
            self.outcomes.clear();
        }
    }

    /// A new cluster out of a backup.
    pub fn restore(&mut self, now: u64, backup: &Authority) {
        self.cluster += 1;
        self.index = backup.index;
        self.entry();
        self.token = backup.token;
        if !self.is(Mutant::RestoreWithoutFloor) {
            self.token += 1 << 40;
        }
        self.sessions.clear();
        self.outcomes.clear();
        self.resources.clear();
        self.closed_until = now + TTL;
    }
}

/// Where there is room for this beside the holders: none if there is not; of slots the number.
fn place(holders: &[Grant], ask: &Ask, slots: u32) -> Option<Option<u32>> {
    match ask.mode {
        Mode::Exclusive => holders.is_empty().then_some(None),
        Mode::Shared => holders.iter().all(|h| h.ask.mode == Mode::Shared).then_some(None),
        Mode::Slots => {
            (0..slots).find(|slot| holders.iter().all(|h| h.slot != Some(*slot))).map(Some)
        }
    }
}

/// The word for a mode in every format.
pub fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Slots => "slots",
    }
}
