//! Deadlines: one per session on every node's own monotonic clock, outside the log.
//! Section 3 of the contract.
//!
//! Pure: `now` is an argument, and who wants to be woken is told a moment. Every
//! node [`Leases::observe`]s what each applied entry says; only the leader
//! [`Leases::renew`]s, and marks with [`Leases::overdue`] whose time is up. Nothing
//! ends here: a session ends when its `ExpireSessions` entry is applied.
//!
//! Deadlines are kept in *lease time*: the node's clock less the time in which it
//! led and could not have served a renewal. A stall so moves every deadline by one
//! addition.

mod moment;
mod timers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use moment::Moment;
use timers::Timers;

use crate::locks::{
    Fact, LockTable, Millis, Overdue, Position, Rule, SessionId, Switches, Term, Timer,
};

/// The deadlines of one node.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    sessions: BTreeMap<SessionId, Lease>,
    due: BTreeSet<(Moment, SessionId)>,
    /// What else runs by time: not re-based, not postponed.
    timers: Timers,
    /// Term of the last entry observed.
    term: Term,
    /// When the first entry of that term was observed.
    term_began: Moment,
    /// When the last entry was observed.
    observed: Moment,
    /// By how much lease time is behind the clock.
    stalled: Duration,
    /// What only a leader has; ends with the term.
    lead: Option<Lead>,
    /// A lead that was laid down, until another term begins: taken up again, it has its
    /// marks, for their expiries may still be on their way. (I2)
    laid_down: Option<Lead>,
    switches: Switches,
}

/// One session's time.
#[derive(Debug, Clone, Copy)]
struct Lease {
    /// In lease time. Moved earlier by a lowered ttl only.
    deadline: Moment,
    ttl: Millis,
    /// The last entry that saw the session.
    seen: Position,
}

/// A leader's volatile knowledge. All of it ends with the term.
#[derive(Debug, Clone)]
struct Lead {
    term: Term,
    /// When the last confirmed round began: no deadline after it is acted on.
    confirmed: Moment,
    /// Sessions marked expiring, with the revision that every proposal of their
    /// expiry names. A mark ends with an applied outcome or with the term. (I2)
    expiring: BTreeMap<SessionId, u64>,
    /// Timers whose end is proposed.
    ending: BTreeSet<Timer>,
}

/// The answer to a renewal after its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Renewed; the ttl in force.
    Renewed(Millis),
    /// Not seen in this term yet: a `MarkSeen` entry must see it first.
    Unseen,
    /// Its expiry is proposed: wait for the outcome.
    Expiring,
    /// No such session is live.
    Gone,
    /// This node does not lead the term that the round confirmed.
    NotLeading,
}

impl Leases {
    /// Deadlines after a restart or a snapshot install: every session gets its full
    /// ttl, every wait its full time.
    pub fn restore(table: &LockTable, now: Moment) -> Self {
        let term = table.position().term;
        let mut leases = Self { term, term_began: now, observed: now, ..Self::default() };
        for view in table.sessions_after(SessionId(0)) {
            let (ttl, seen) = (view.row.ttl, view.row.seen);
            leases.set(view.row.session, Lease { deadline: now + ttl.duration(), ttl, seen });
        }
        for (timer, after) in table.timers() {
            leases.timers.begin(timer, now + after.duration());
        }
        leases
    }

    /// As [`Leases::restore`], after a snapshot has replaced the table of a running
    /// node. Lead and marks end.
    #[must_use]
    pub fn installed(&self, table: &LockTable, now: Moment) -> Self {
        let mut leases = Self::restore(table, now);
        leases.switches = self.switches;
        if !self.switches.hold(Rule::SnapshotGivesFullTtl) {
            for (session, lease) in &self.sessions {
                if let Some(fresh) = leases.sessions.get(session).copied() {
                    let deadline = lease.deadline + self.stalled;
                    leases.set(*session, Lease { deadline, ..fresh });
                }
            }
        }
        leases
    }

    /// Leases with some rules switched off, for tests that show that they would be
    /// missed.
    #[cfg(feature = "switches")]
    #[must_use]
    pub fn with_switches(mut self, switches: Switches) -> Self {
        self.switches = switches;
        self
    }

    /// Takes in what an applied entry says, on every node, in the order of the log.
    pub fn observe(&mut self, facts: &[Fact], now: Moment) {
        self.observed = now;
        for fact in facts {
            match *fact {
                Fact::TermBegan { term, previous } => self.begin_term(term, previous, now),
                Fact::Seen { session, ttl, term, index } => {
                    self.see(session, ttl, Position { term, index }, now);
                }
                Fact::Ended { session } => self.drop_session(session),
                Fact::TimerBegan { timer, after } => {
                    self.timers.begin(timer, now + after.duration());
                }
                Fact::TimerEnded { timer } => self.drop_timer(timer),
            }
        }
    }

    /// Takes up the lead of a term; says whether it could. A leader acts only when
    /// it has applied the first entry of its own term: before that, the deadlines are
    /// not re-based yet. (I2)
    pub fn lead(&mut self, term: Term, now: Moment) -> bool {
        if self.term != term && self.switches.hold(Rule::ActAfterFirstEntry) {
            return false;
        }
        let again = self.laid_down.take_if(|lead| lead.term == term);
        if self.leading() != Some(term) && again.is_some() {
            self.lead = again;
        }
        if self.leading() != Some(term) {
            let (expiring, ending) = (BTreeMap::new(), BTreeSet::new());
            // Before its first round the term has served nobody: that too may be a stall.
            let confirmed = if self.term == term { self.term_began.min(now) } else { now };
            self.lead = Some(Lead { term, confirmed, expiring, ending });
        }
        true
    }

    /// Lays the lead down. Marks end with the term: should it be taken up again after
    /// all, they are still there.
    pub fn follow(&mut self) {
        let lead = self.lead.take();
        if lead.is_some() && self.switches.hold(Rule::MarksEndWithTerm) {
            self.laid_down = lead;
        }
    }

    /// The term that this node leads and acts in.
    pub fn leading(&self) -> Option<Term> {
        self.lead.as_ref().map(|lead| lead.term)
    }

    /// Notes that a quorum confirmed the leader of `term` in a round that began at
    /// `began`. A gap since the last one that is longer than `usual` moves every
    /// deadline by the excess: renewals could not have been served in it. But none is
    /// moved farther than a renewal would move it that arrives only now. (I11) Call it
    /// before the renewals of the round are answered, and those before
    /// [`Leases::overdue`].
    pub fn confirmed(&mut self, term: Term, began: Moment, usual: Duration) {
        let Some(lead) = self.lead.as_mut().filter(|lead| lead.term == term) else { return };
        let gap = began.since(lead.confirmed);
        lead.confirmed = lead.confirmed.max(began);
        let stall = gap.saturating_sub(usual);
        if !stall.is_zero() && self.switches.hold(Rule::StallsPostpone) {
            self.stalled += stall;
            if self.switches.hold(Rule::StallIsCapped) {
                self.cap(began.max(self.observed));
            }
        }
    }

    /// Answers a renewal that arrived at `arrived`, after a round that began later
    /// has confirmed this node as the leader of `confirmed`, and after what was
    /// committed by then has been applied here.
    pub fn renew(&mut self, session: SessionId, arrived: Moment, confirmed: Term) -> Renewal {
        let Some(lead) = self.lead.as_ref().filter(|lead| lead.term == confirmed) else {
            return Renewal::NotLeading;
        };
        let Some(lease) = self.sessions.get(&session).copied() else { return Renewal::Gone };
        let marked = lead.expiring.contains_key(&session);
        if marked && self.switches.hold(Rule::ExpiringIsNotRenewed) {
            return Renewal::Expiring;
        }
        if lease.seen.term != confirmed && self.switches.hold(Rule::RenewalNeedsMark) {
            return Renewal::Unseen;
        }
        let deadline = self.lease_time(arrived) + lease.ttl.duration();
        self.set(session, Lease { deadline: lease.deadline.max(deadline), ..lease });
        Renewal::Renewed(lease.ttl)
    }

    /// Marks sessions whose time is up, at most `max`, and names them for an
    /// `ExpireSessions` entry. From here on they cannot be renewed; they end when the
    /// entry is applied. Only time up to the last confirmed round counts. (I2)
    pub fn overdue(&mut self, now: Moment, max: usize) -> Vec<Overdue> {
        let postpone = self.switches.hold(Rule::StallsPostpone);
        let Some(lead) = &self.lead else { return Vec::new() };
        let until = self.lease_time(if postpone { now.min(lead.confirmed) } else { now });
        let up = self.due.iter().take_while(|(deadline, _)| *deadline <= until);
        let marked: Vec<_> = up
            .filter(|(_, session)| !lead.expiring.contains_key(session))
            .map(|(_, session)| (*session, self.sessions[session].seen.index))
            .take(max)
            .collect();
        if let Some(lead) = &mut self.lead {
            lead.expiring.extend(marked.iter().copied());
        }
        marked.into_iter().map(|(session, seen)| Overdue { session, seen }).collect()
    }

    /// The marked sessions again, for a proposal whose outcome is unknown. It names
    /// the revisions of the first one, whatever was seen since: what that one would
    /// spare, this one spares.
    pub fn expiring(&self) -> Vec<Overdue> {
        let Some(lead) = &self.lead else { return Vec::new() };
        let old = self.switches.hold(Rule::RetryNamesOldRevision);
        let named = lead.expiring.iter().map(|(&session, &seen)| {
            let now = self.sessions.get(&session).map_or(seen, |lease| lease.seen.index);
            Overdue { session, seen: if old { seen } else { now } }
        });
        named.collect()
    }

    /// An expiry that named these was applied: those that live on were spared, and
    /// are marked no longer. A mark of another revision stays: the expiry that names
    /// it is still on its way and would end the session. (I2)
    pub fn expiry_applied(&mut self, expiries: impl IntoIterator<Item = Overdue>) {
        let named = self.switches.hold(Rule::OutcomeNamesRevision);
        for Overdue { session, seen } in expiries {
            for lead in self.lead.iter_mut().chain(&mut self.laid_down) {
                if !named || lead.expiring.get(&session) == Some(&seen) {
                    lead.expiring.remove(&session);
                }
            }
        }
    }

    /// Takes marks back without an outcome: what the contract forbids.
    #[cfg(feature = "switches")]
    pub fn unmark(&mut self, expiries: impl IntoIterator<Item = Overdue>) {
        if !self.switches.hold(Rule::ExpiringMarkStays) {
            self.expiry_applied(expiries);
        }
    }

    /// Names timers that have run out, at most `max`, for the entries that end them; each
    /// once a term.
    pub fn timers_overdue(&mut self, now: Moment, max: usize) -> Vec<Timer> {
        let Some(lead) = &mut self.lead else { return Vec::new() };
        let fresh = self.timers.due(now).filter(|timer| !lead.ending.contains(timer));
        let named: Vec<_> = fresh.take(max).collect();
        lead.ending.extend(named.iter().copied());
        named
    }

    /// The timers named so far that have not ended, for proposals whose outcome is
    /// unknown.
    pub fn ending(&self) -> Vec<Timer> {
        self.lead.iter().flat_map(|lead| lead.ending.iter().copied()).collect()
    }

    /// When [`Leases::overdue`] or [`Leases::timers_overdue`] may have something next.
    /// A deadline that is marked already does not count.
    pub fn next_deadline(&self) -> Option<Moment> {
        let lead = self.lead.as_ref()?;
        let unmarked = |(_, session): &&(Moment, SessionId)| !lead.expiring.contains_key(session);
        let session = self.due.iter().find(unmarked).map(|(at, _)| *at + self.stalled);
        let timer = self.timers.next(|timer| !lead.ending.contains(timer));
        session.into_iter().chain(timer).min()
    }

    /// A session's deadline on this node's clock, unless moved by a later stall.
    pub fn deadline(&self, session: SessionId) -> Option<Moment> {
        self.sessions.get(&session).map(|lease| lease.deadline + self.stalled)
    }

    /// When a timer runs out on this node's clock.
    pub fn timer(&self, timer: Timer) -> Option<Moment> {
        self.timers.at(timer)
    }

    /// By how much stalls have moved deadlines so far.
    pub const fn stalled(&self) -> Duration {
        self.stalled
    }

    /// How many sessions have a deadline.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether no session has a deadline.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// The first entry of a term gives time to the sessions seen in the term of the
    /// entry just before it, whatever its number: no renewal of the others was
    /// acknowledged since. A lead of an earlier term is over.
    fn begin_term(&mut self, term: Term, previous: Term, now: Moment) {
        (self.term, self.term_began) = (term, now);
        self.lead.take_if(|lead| lead.term != term);
        self.laid_down.take_if(|lead| lead.term != term);
        if !self.switches.hold(Rule::TermGivesTime) {
            return;
        }
        let whatever = self.switches.hold(Rule::RebaseWhateverNumber);
        let seen_in = if whatever { previous } else { Term(term.0.saturating_sub(1)) };
        let of_it = self.sessions.iter().filter(|(_, lease)| lease.seen.term == seen_in);
        for (session, lease) in of_it.map(|(s, l)| (*s, *l)).collect::<Vec<_>>() {
            self.extend(session, lease, now);
        }
    }

    /// A stall is known when it is over. Who was seen in the midst of it, or after, is
    /// not owed all of it; nobody is owed more than its ttl from `now`.
    fn cap(&mut self, now: Moment) {
        let now = self.lease_time(now);
        let latest = |lease: &Lease| now + lease.ttl.duration();
        let beyond = self.sessions.iter().filter(|(_, lease)| lease.deadline > latest(lease));
        let beyond: Vec<_> = beyond.map(|(session, lease)| (*session, *lease)).collect();
        for (session, lease) in beyond {
            self.set(session, Lease { deadline: latest(&lease), ..lease });
        }
    }

    fn see(&mut self, session: SessionId, ttl: Millis, seen: Position, now: Moment) {
        let fresh = Lease { deadline: self.lease_time(now) + ttl.duration(), ttl, seen };
        match self.sessions.get(&session) {
            Some(lease) if ttl >= lease.ttl => {
                self.set(session, Lease { deadline: fresh.deadline.max(lease.deadline), ..fresh });
            }
            // New, or the ttl was lowered: the only way to an earlier deadline.
            Some(_) | None => self.set(session, fresh),
        }
    }

    fn extend(&mut self, session: SessionId, lease: Lease, now: Moment) {
        let deadline = self.lease_time(now) + lease.ttl.duration();
        self.set(session, Lease { deadline: lease.deadline.max(deadline), ..lease });
    }

    fn set(&mut self, session: SessionId, lease: Lease) {
        if let Some(old) = self.sessions.insert(session, lease) {
            self.due.remove(&(old.deadline, session));
        }
        self.due.insert((lease.deadline, session));
    }

    fn drop_session(&mut self, session: SessionId) {
        if let Some(lease) = self.sessions.remove(&session) {
            self.due.remove(&(lease.deadline, session));
        }
        for lead in self.lead.iter_mut().chain(&mut self.laid_down) {
            lead.expiring.remove(&session);
        }
    }

    fn drop_timer(&mut self, timer: Timer) {
        self.timers.end(timer);
        for lead in self.lead.iter_mut().chain(&mut self.laid_down) {
            lead.ending.remove(&timer);
        }
    }

    fn lease_time(&self, at: Moment) -> Moment {
        at.minus(self.stalled)
    }
}
