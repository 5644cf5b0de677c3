//! What is held, awaited and closed, kept from the events alone: the table is never
//! asked. The properties judge every event by what stood here before it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence::locks::{
    Claim, Command, GrantEndCause, Granted, Handoff, Happened, Mode, Phase, ResourceName,
    SessionId, Token, Wait, WaitId,
};

use crate::time::Micros;

/// How many resources there are at most: `job/1` and so on.
pub const PLACES: usize = 3;

/// The place of a resource in lists.
pub fn place(name: &ResourceName) -> usize {
    usize::from(name.as_str().as_bytes()[4] - b'1')
}

/// The resource at a place.
pub fn resource(place: usize) -> ResourceName {
    ResourceName::new(["job/1", "job/2", "job/3"][place]).expect("short and plain")
}

/// Everything that events have said so far.
#[derive(Default)]
pub struct Books {
    pub places: [Place; PLACES],
    /// All that were ever granted.
    pub grants: BTreeMap<Token, Grant>,
    pub waits: BTreeMap<WaitId, Waiting>,
    /// What was asked for, as it first came.
    pub asked: BTreeMap<WaitId, (Claim, Wait)>,
    /// Tokens of administrators, with what they shut out.
    pub issued: BTreeMap<Token, [Option<Standing>; PLACES]>,
}

/// One resource.
#[derive(Default)]
pub struct Place {
    pub holders: Vec<Token>,
    /// Lock delays that run, by the token of the grant that ended.
    pub closures: Vec<Token>,
    pub queue: VecDeque<WaitId>,
    pub frozen: Option<Token>,
    /// How many slots it has, while anybody holds or awaits one.
    pub slots: Option<u32>,
    /// Whether an administrator has made it fewer, for as long.
    pub shrunk: bool,
    /// Grows whenever the resource is taken that nobody held.
    pub epoch: u64,
}

/// Where a token stands among those of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub epoch: u64,
    pub slot: Option<u32>,
}

pub struct Grant {
    pub wait: WaitId,
    pub places: Vec<usize>,
    pub granted: Granted,
    pub standing: [Option<Standing>; PLACES],
    pub since: Micros,
    pub active_since: Option<Micros>,
    pub ended: Option<End>,
}

/// How a grant ended, and when its lock delay did.
pub struct End {
    pub at: Micros,
    /// Taken from its holder: not given back.
    pub taken: bool,
    /// By its order among ends and grants.
    pub last_token: u64,
}

pub struct Waiting {
    pub places: Vec<usize>,
    pub mode: Mode,
    pub since: Micros,
}

impl Books {
    /// Takes in what is asked for; says whether it is an acquire that is in the log for
    /// the first time.
    pub fn asks(&mut self, command: Option<&Command>) -> bool {
        let Some(Command::Acquire { header, claim, wait }) = command else { return false };
        let id = WaitId { session: header.session, request: header.id };
        let fresh = !self.asked.contains_key(&id);
        if fresh {
            self.asked.insert(id, (claim.clone(), *wait));
        }
        fresh
    }

    /// Whether the grant is live.
    pub fn live(&self, token: Token) -> Option<&Grant> {
        self.grants.get(&token).filter(|grant| grant.ended.is_none())
    }

    /// Whether the grant is live on that resource.
    pub fn holds(&self, place: usize, token: Token) -> bool {
        self.places[place].holders.contains(&token)
    }

    /// Where a token of whomever stands on a resource.
    pub fn standing(&self, place: usize, token: Token) -> Option<Standing> {
        let granted = self.grants.get(&token).map(|grant| &grant.standing);
        granted.or_else(|| self.issued.get(&token))?[place]
    }

    /// Whether one more may hold the place in this mode.
    pub fn admits(&self, place: usize, mode: Mode) -> bool {
        let at = &self.places[place];
        let mut others = at.holders.iter().chain(&at.closures);
        let conflict = |other: &Token| apart(self.grants[other].granted.mode, mode);
        if at.frozen.is_some() || others.any(conflict) {
            return false;
        }
        let Some(slots) = mode.slots().map(|of| at.slots.unwrap_or(of)) else { return true };
        let theirs = at.holders.iter().chain(&at.closures);
        let taken: BTreeSet<_> = theirs.filter_map(|of| self.grants[of].granted.slot).collect();
        at.holders.len() < slots as usize && (0..slots).any(|slot| !taken.contains(&slot))
    }

    /// Takes in what happened.
    pub fn take(&mut self, what: &Happened, now: Micros) {
        match what {
            Happened::Queued { wait, names, mode } => {
                let places: Vec<_> = names.iter().map(place).collect();
                for at in &places {
                    self.places[*at].queue.push_back(*wait);
                    self.use_slots(*at, *mode);
                }
                self.waits.insert(*wait, Waiting { places, mode: *mode, since: now });
            }
            Happened::Granted { wait, names, grant } => self.granted(*wait, names, grant, now),
            Happened::LeftQueue { wait, .. } => self.leave(*wait),
            Happened::Activated { token, .. } => {
                if let Some(grant) = self.grants.get_mut(token) {
                    grant.active_since = Some(now);
                }
            }
            Happened::GrantEnded { token, cause, delay, .. } => {
                self.end(*token, cause, delay.0 > 0, now);
            }
            Happened::Reopened { names, token, .. } => {
                for at in names.iter().map(place) {
                    self.places[at].closures.retain(|closed| closed != token);
                }
            }
            Happened::Frozen { name, token, .. } => {
                let at = place(name);
                self.places[at].frozen = Some(*token);
                self.issue(*token, at, None);
            }
            Happened::Thawed { name, .. } => self.places[place(name)].frozen = None,
            Happened::Resized { name, slots, token, .. } => {
                let at = place(name);
                let here = &mut self.places[at];
                here.shrunk |= here.slots.is_some_and(|before| *slots < before);
                here.slots = Some(*slots);
                self.issue(*token, at, None);
            }
            Happened::Opened { .. }
            | Happened::Ended { .. }
            | Happened::ValueChanged { .. }
            | Happened::Asked { .. } => {}
        }
    }

    fn granted(&mut self, wait: WaitId, names: &[ResourceName], granted: &Granted, now: Micros) {
        let places: Vec<_> = names.iter().map(place).collect();
        let mut standing = [None; PLACES];
        for &at in &places {
            self.use_slots(at, granted.mode);
            let here = &mut self.places[at];
            here.epoch += u64::from(here.holders.is_empty());
            here.holders.push(granted.token);
            standing[at] = Some(Standing { epoch: here.epoch, slot: granted.slot });
        }
        let active_since = (granted.phase == Phase::Active).then_some(now);
        let (granted, since, ended) = (*granted, now, None);
        let grant = Grant { wait, places, granted, standing, since, active_since, ended };
        self.grants.insert(granted.token, grant);
        self.leave(wait);
    }

    fn leave(&mut self, wait: WaitId) {
        let Some(waiting) = self.waits.remove(&wait) else { return };
        for at in waiting.places {
            self.places[at].queue.retain(|other| *other != wait);
            self.forget_slots(at);
        }
    }

    fn end(&mut self, token: Token, cause: &GrantEndCause, delayed: bool, now: Micros) {
        let last_token = self.grants.keys().next_back().map_or(0, |last| last.get());
        let Some(grant) = self.grants.get_mut(&token) else { return };
        let taken = *cause != GrantEndCause::Released;
        grant.ended = Some(End { at: now, taken, last_token });
        let (places, slot) = (grant.places.clone(), grant.granted.slot);
        for at in places {
            self.places[at].holders.retain(|holder| *holder != token);
            if delayed {
                self.places[at].closures.push(token);
            }
            self.forget_slots(at);
            if let GrantEndCause::Revoked { by, .. } = cause {
                self.issue(*by, at, slot);
            }
        }
    }

    /// A token that is no grant's: who remains is not shut out by it; if nobody does, all
    /// who held the resource so far are.
    fn issue(&mut self, token: Token, at: usize, slot: Option<u32>) {
        let epoch = self.places[at].epoch + u64::from(self.places[at].holders.is_empty());
        self.issued.entry(token).or_default()[at] = Some(Standing { epoch, slot });
    }

    /// The first one says how many slots there are.
    fn use_slots(&mut self, at: usize, mode: Mode) {
        if let Some(of) = mode.slots() {
            self.places[at].slots.get_or_insert(of);
        }
    }

    /// With the last one the number is forgotten.
    fn forget_slots(&mut self, at: usize) {
        let here = &self.places[at];
        let held = here.holders.iter().filter_map(|token| self.grants.get(token));
        let held = held.map(|grant| grant.granted.mode);
        let awaited = here.queue.iter().filter_map(|wait| self.waits.get(wait));
        let mut modes = held.chain(awaited.map(|wait| wait.mode));
        if !modes.any(|mode| mode.slots().is_some()) {
            (self.places[at].slots, self.places[at].shrunk) = (None, false);
        }
    }

    /// The terms on which a grant was asked for.
    pub fn claim(&self, wait: WaitId) -> Option<&Claim> {
        self.asked.get(&wait).map(|(claim, _)| claim)
    }

    /// How long a claim may stay unconfirmed, if it is of a strict handoff.
    pub fn barrier(&self, wait: WaitId) -> Option<u64> {
        match self.claim(wait)?.terms.handoff {
            Handoff::Plain => None,
            Handoff::Strict { barrier } => Some(barrier.0),
        }
    }

    /// Whether a session has anything.
    pub fn has_places(&self, session: SessionId) -> bool {
        let mut held = self.places.iter().flat_map(|at| &at.holders);
        held.any(|token| self.grants[token].wait.session == session)
            || self.waits.keys().any(|wait| wait.session == session)
    }
}

/// Whether holders of these modes may not be together, slots aside.
pub fn apart(one: Mode, other: Mode) -> bool {
    match one {
        Mode::Exclusive => true,
        Mode::Shared => other != Mode::Shared,
        Mode::Slots { .. } => other.slots().is_none(),
    }
}
