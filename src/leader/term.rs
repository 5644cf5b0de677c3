//! One term of leadership.
//!
//! Rounds follow each other: one begins when a renewal waits or a heartbeat has
//! passed, takes everything that has arrived, and ends when a quorum has confirmed
//! the term and what was committed by then is applied here. Then, in this order:
//! stalls move the deadlines, the renewals of the round are answered, and whoever's
//! time is up is marked.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::proposals::{Proposed, Underway};
use super::renewals::{Renew, RenewalAnswer};
use super::{PLACES_PER_ENTRY_MAX, SESSIONS_PER_ENTRY_MAX, TIMERS_PER_ENTRY_MAX, still_leads};
use crate::authority::{Authority, State};
use crate::clock;
use crate::leases::{Moment, Renewal};
use crate::locks::{LockTable, Overdue, SessionId, Term};
use crate::raft::{ConfirmError, Leadership, Replica};

/// How many renewals one round takes.
const RENEWALS_PER_ROUND_MAX: usize = 65_536;

/// The leader's volatile state; dropped with the term.
pub(super) struct Lead<'n> {
    replica: &'n Replica,
    authority: &'n Arc<Authority>,
    heartbeat: Duration,
    term: Term,
    /// Arrived before the round that is under way, or await the next one.
    waiting: Vec<Renew>,
    /// Not seen in this term yet: await a `MarkSeen`.
    unseen: Vec<Renew>,
    /// Marked expiring: await the outcome.
    expiring: Vec<Renew>,
    /// More may have arrived before the round than it could take.
    behind: bool,
    underway: FuturesUnordered<Underway>,
    marks_underway: bool,
    expiries_underway: bool,
    /// How many entries that end timers are under way.
    timers_underway: usize,
}

/// How a round ended.
enum Round {
    Confirmed,
    NoQuorum,
    Over,
}

impl<'n> Lead<'n> {
    pub fn new(
        replica: &'n Replica,
        authority: &'n Arc<Authority>,
        heartbeat: Duration,
        term: Term,
    ) -> Self {
        Self {
            replica,
            authority,
            heartbeat,
            term,
            waiting: Vec::new(),
            unseen: Vec::new(),
            expiring: Vec::new(),
            behind: false,
            underway: FuturesUnordered::new(),
            marks_underway: false,
            expiries_underway: false,
            timers_underway: 0,
        }
    }

    /// Leads until the term is over; returns when it is, with everybody answered.
    pub async fn run(
        mut self,
        renewals: &mut mpsc::Receiver<Renew>,
        leadership: &mut watch::Receiver<Leadership>,
    ) {
        let mut next_round = clock::timer();
        while still_leads(leadership, self.term) {
            self.gather(renewals, leadership, next_round).await;
            if renewals.is_closed() || !still_leads(leadership, self.term) {
                break;
            }
            next_round = clock::timer() + self.heartbeat;
            match self.round().await {
                Round::Confirmed => self.act(),
                Round::NoQuorum => self.no_quorum(),
                Round::Over => break,
            }
        }
        self.end(leadership).await;
    }

    /// Waits for a reason to begin a round, and takes in what arrives meanwhile.
    async fn gather(
        &mut self,
        renewals: &mut mpsc::Receiver<Renew>,
        leadership: &mut watch::Receiver<Leadership>,
        next_round: Instant,
    ) {
        // Under load there is always a renewal: outcomes are not left behind for it.
        while let Some(Some((proposed, told))) = self.underway.next().now_or_never() {
            self.settled(proposed, told.is_ok());
        }
        loop {
            while self.waiting.len() < RENEWALS_PER_ROUND_MAX
                && let Ok(renewal) = renewals.try_recv()
            {
                self.waiting.push(renewal);
            }
            self.behind = self.waiting.len() >= RENEWALS_PER_ROUND_MAX;
            if !self.waiting.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                _ = leadership.changed() => return,
                renewal = renewals.recv() => match renewal {
                    Some(renewal) => self.waiting.push(renewal),
                    None => return,
                },
                Some((proposed, told)) = self.underway.next() => self.settled(proposed, told.is_ok()),
                () = tokio::time::sleep_until(next_round) => return,
            }
        }
    }

    /// One ReadIndex round for all that has arrived. (Raft thesis, 6.4)
    async fn round(&mut self) -> Round {
        let began = Moment::now();
        match self.replica.confirm_leadership().await {
            Ok(confirmed) if confirmed.term == self.term => {
                let mut state = self.authority.lock();
                if !state.leases.lead(self.term, began) {
                    return Round::NoQuorum;
                }
                let usual = self.heartbeat * 2;
                state.leases.confirmed(self.term, began, usual);
                let round = std::mem::take(&mut self.waiting);
                self.answer(&mut state, round);
                Round::Confirmed
            }
            Ok(_) | Err(ConfirmError::NotLeader { .. }) => Round::Over,
            Err(ConfirmError::NoQuorum) => Round::NoQuorum,
        }
    }

    /// Answers renewals that a round of this term has confirmed.
    fn answer(&mut self, state: &mut State, renewals: Vec<Renew>) {
        for renewal in renewals.into_iter().filter(|r| !r.is_abandoned()) {
            let Some(view) = state.table.owned_session(renewal.owner, renewal.session) else {
                let opened_before = renewal.session.0 <= state.table.position().index;
                renewal.answer(match opened_before {
                    true => RenewalAnswer::Expired,
                    false => RenewalAnswer::Unknown,
                });
                continue;
            };
            let changed_at = view.changed_at;
            match state.leases.renew(renewal.session, renewal.arrived, self.term) {
                Renewal::Renewed(ttl) => {
                    renewal.answer(RenewalAnswer::Renewed { ttl, changed_at });
                }
                Renewal::Unseen => self.unseen.push(renewal),
                Renewal::Expiring => self.expiring.push(renewal),
                Renewal::Gone => renewal.answer(RenewalAnswer::Expired),
                Renewal::NotLeading => renewal.answer(RenewalAnswer::NotLeading),
            }
        }
    }

    /// Proposes what is due: marks for those who wait, then ends.
    fn act(&mut self) {
        let now = Moment::now();
        self.propose_marks();
        let authority = Arc::clone(self.authority);
        let mut state = authority.lock();
        if !self.expiries_underway {
            // Marked and not ended: an earlier proposal's outcome is unknown. The same
            // revisions are named again.
            let mut overdue = state.leases.expiring();
            overdue.truncate(SESSIONS_PER_ENTRY_MAX);
            // Whoever waits is served before anyone is marked, however many they are.
            if overdue.is_empty() && !self.behind && self.unseen.is_empty() {
                overdue = state.leases.overdue(now, SESSIONS_PER_ENTRY_MAX);
            }
            if !overdue.is_empty() {
                overdue.truncate(fitting(&state.table, &overdue));
                self.expiries_underway = true;
                self.propose(Proposed::Expiries(overdue));
            }
        }
        if self.timers_underway == 0 {
            let mut timers = state.leases.ending();
            timers.truncate(TIMERS_PER_ENTRY_MAX);
            if timers.is_empty() {
                timers = state.leases.timers_overdue(now, TIMERS_PER_ENTRY_MAX);
            }
            for ends in Proposed::ends_of(&timers) {
                self.timers_underway += 1;
                self.propose(ends);
            }
        }
    }

    fn propose_marks(&mut self) {
        if self.marks_underway || self.unseen.is_empty() {
            return;
        }
        let mut sessions: Vec<SessionId> = self.unseen.iter().map(|r| r.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions.truncate(SESSIONS_PER_ENTRY_MAX);
        self.marks_underway = true;
        self.propose(Proposed::Marks(sessions));
    }

    fn propose(&self, proposed: Proposed) {
        self.underway.push(Box::pin(proposed.propose(self.replica.clone(), self.term)));
    }

    /// Takes in the outcome of one of the leader's own entries. An unknown one is
    /// proposed again by [`Lead::act`]; marks stay.
    fn settled(&mut self, proposed: Proposed, applied: bool) {
        match proposed {
            Proposed::Marks(sessions) => {
                self.marks_underway = false;
                if applied {
                    let marked = |r: &Renew| sessions.binary_search(&r.session).is_ok();
                    let (seen, rest) =
                        std::mem::take(&mut self.unseen).into_iter().partition(marked);
                    self.unseen = rest;
                    self.answer(&mut Arc::clone(self.authority).lock(), seen);
                    self.propose_marks();
                }
            }
            Proposed::Expiries(overdue) => {
                self.expiries_underway = false;
                if applied {
                    let authority = Arc::clone(self.authority);
                    let mut state = authority.lock();
                    state.leases.expiry_applied(overdue);
                    let waited = std::mem::take(&mut self.expiring);
                    self.answer(&mut state, waited);
                    drop(state);
                    self.act(); // the next batch, if there is one
                }
            }
            Proposed::Timers(_) => {
                self.timers_underway -= 1;
                if applied && self.timers_underway == 0 {
                    self.act();
                }
            }
        }
    }

    /// Renewals cannot be confirmed here now; others may lead by now, so calls that
    /// are under way go and ask.
    fn no_quorum(&mut self) {
        for renewal in self.waiting.drain(..) {
            renewal.answer(RenewalAnswer::NoQuorum);
        }
        self.authority.doubt();
    }

    /// Everything volatile dies with the term. The marks do so when the next one's first
    /// entry is applied here: an expiry of this one may be on its way. (I2)
    async fn end(mut self, leadership: &watch::Receiver<Leadership>) {
        self.authority.doubt();
        for renewal in self.waiting.drain(..) {
            renewal.answer(RenewalAnswer::NotLeading);
        }
        // An entry that sees or ends these may be under way.
        for renewal in self.unseen.drain(..).chain(self.expiring.drain(..)) {
            renewal.answer(RenewalAnswer::OutcomeUnknown);
        }
        if still_leads(leadership, self.term) {
            // The round said otherwise: give the news a moment to arrive.
            tokio::time::sleep(self.heartbeat / 10).await;
            // Calls that came meanwhile believed the old news.
            self.authority.doubt();
        }
    }
}

/// How many of these fit into one entry by what they hold and wait for; at least one.
/// The others stay marked, and the next entry names them.
fn fitting(table: &LockTable, overdue: &[Overdue]) -> usize {
    let mut places = 0;
    let within = overdue.iter().take_while(|o| {
        places += table.session(o.session).map_or(0, |v| v.grants().len() + v.waits().len());
        places <= PLACES_PER_ENTRY_MAX
    });
    within.count().max(1)
}
