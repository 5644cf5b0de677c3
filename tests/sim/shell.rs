//! The leader's shell: what one leader does besides replicating. A small reference
//! for `src/leader`: no IO, orders out.
//!
//! Rounds follow each other. One takes everything that has arrived, and ends when a
//! quorum has confirmed the term and what was committed by then is applied here.
//! Then, in this order: stalls move the deadlines, the renewals of the round are
//! answered, and whoever's time is up is marked.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use ringfence::leases::{Leases, Moment, Renewal};
use ringfence::locks::{Command, Effects, LockTable, Phase, Refusal, SessionId, SessionView, Term};

use crate::faults::{Setup, ShellRule};
use crate::network::{Answer, Ask, Read, Request};
use crate::orders::{Arrived, How, Order, Purpose};
use crate::waiting::{Calls, ends_of};

/// A gap between rounds that is no stall: three heartbeats.
pub const USUAL: Duration = Duration::from_millis(150);
/// After how long without an outcome the leader's own entries are proposed again.
const RETRY: Duration = Duration::from_millis(250);
/// How many sessions or timers one entry names.
const BATCH: usize = 2;

/// The leases of a node, and what its leader knows. All but the leases ends with the
/// term.
#[derive(Default)]
pub struct Shell {
    pub leases: Leases,
    setup: Setup,
    term: Option<Term>,
    /// Arrived since the last round began.
    arrived: Vec<Arrived>,
    /// Asked of a quorum.
    round: Option<Round>,
    /// Confirmed; what was committed when they began is not applied yet.
    confirmed: VecDeque<Round>,
    /// Not seen in this term: await the next `MarkSeen`.
    unseen: Vec<Arrived>,
    /// Await the `MarkSeen` that is under way.
    marking: Option<Marking>,
    /// Marked expiring: await the outcome.
    held: Vec<Arrived>,
    marks: u64,
    expiry_proposed: Option<Moment>,
    timers_proposed: Option<Moment>,
    /// Calls that wait in a queue.
    calls: Calls,
    pub orders: Vec<Order>,
}

struct Round {
    number: u64,
    began: Moment,
    /// What was committed when it began.
    index: u64,
    renewals: Vec<Arrived>,
}

struct Marking {
    number: u64,
    since: Moment,
    renewals: Vec<Arrived>,
}

impl Shell {
    pub fn new(leases: Leases, setup: Setup) -> Self {
        Self { leases: leases.with_switches(setup.rules), setup, ..Self::default() }
    }

    /// Takes up a term.
    pub fn elected(&mut self, term: Term) {
        self.term = Some(term);
    }

    /// The term is over: everything volatile ends with it. Calls that wait are not
    /// told anything that is not known.
    pub fn deposed(&mut self) {
        self.term = None;
        if self.setup.holds(ShellRule::TermsAreCompared) {
            self.leases.follow();
        }
        let rounds = self.round.take().into_iter().chain(self.confirmed.drain(..));
        let of_rounds = rounds.flat_map(|round| round.renewals);
        for renewal in self.arrived.drain(..).chain(of_rounds) {
            self.orders.push(Order::Answer(renewal.request, Answer::NotLeader(None)));
        }
        let marking = self.marking.take().into_iter().flat_map(|marking| marking.renewals);
        let unknown = self.unseen.drain(..).chain(self.held.drain(..)).chain(marking);
        let calls = self.calls.drain();
        for request in unknown.map(|renewal| renewal.request).chain(calls) {
            self.orders.push(Order::Answer(request, Answer::Unknown));
        }
        (self.expiry_proposed, self.timers_proposed) = (None, None);
    }

    /// A renewal, or a question that needs a round as one does, arrives at the leader.
    pub fn renewal(
        &mut self,
        request: Rc<Request>,
        session: SessionId,
        table: &LockTable,
        at: Moment,
    ) {
        let renewal = Arrived { request, session, at };
        if self.setup.holds(ShellRule::RoundsAreConfirmed) {
            self.arrived.push(renewal);
        } else if let Some(term) = self.leases.leading() {
            self.answer(renewal, table, term);
        }
    }

    /// Whether it was told that its node leads.
    pub fn has_term(&self) -> bool {
        self.term.is_some()
    }

    /// Whether a round is under way, by its number.
    pub fn round(&self) -> Option<u64> {
        self.round.as_ref().map(|round| round.number)
    }

    /// Whether somebody waits for the next round.
    pub fn wants_round(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Begins a round for all that have arrived.
    pub fn begin_round(&mut self, number: u64, now: Moment, committed: u64) {
        let renewals = std::mem::take(&mut self.arrived);
        self.round = Some(Round { number, began: now, index: committed, renewals });
    }

    /// A quorum has confirmed the round.
    pub fn round_confirmed(&mut self) {
        let Some(mut round) = self.round.take() else { return };
        if !self.setup.holds(ShellRule::RoundConfirmsEarlierArrivals) {
            round.renewals.append(&mut self.arrived);
        }
        self.confirmed.push_back(round);
    }

    /// Goes on with confirmed rounds as far as the log is applied here.
    pub fn serve(&mut self, table: &LockTable, now: Moment) {
        let waits = self.setup.holds(ShellRule::TermsAreCompared);
        while let Some(term) = self.term
            && let Some(round) = self.confirmed.front()
            && (round.index <= table.position().index || !waits)
        {
            let round = self.confirmed.pop_front().expect("it was in front");
            self.serve_round(round, term, table, now);
        }
    }

    fn serve_round(&mut self, round: Round, term: Term, table: &LockTable, now: Moment) {
        self.orders.push(Order::Count(crate::counts::Count::RoundsConfirmed));
        let compared = self.setup.holds(ShellRule::TermsAreCompared);
        let old = self.leases.leading().filter(|_| !compared);
        if old.is_none() && !self.leases.lead(term, round.began) {
            // The first entry of the term is not applied yet: another round will do.
            self.arrived.extend(round.renewals);
            return;
        }
        let term = old.unwrap_or(term);
        if table.cluster().is_none() {
            self.orders.push(Order::Propose(bootstrap(), Purpose::Own));
        }
        let before = self.leases.stalled();
        self.leases.confirmed(term, round.began, USUAL);
        let stalled = self.leases.stalled() - before;
        if !stalled.is_zero() {
            self.orders.push(Order::Stalled { by: stalled, until: round.began });
        }
        for renewal in round.renewals {
            self.answer(renewal, table, term);
        }
        self.mark_unseen(now);
        self.mark_overdue(now, round.began);
    }

    /// Answers a renewal whose round was confirmed in this term.
    fn answer(&mut self, renewal: Arrived, table: &LockTable, term: Term) {
        let (owner, session) = match &renewal.request.ask {
            Ask::Renew { owner, session } => (*owner, *session),
            Ask::CheckToken { resource, token } => {
                let grant = table.live_grant_on(resource, *token);
                let current = grant.is_some_and(|grant| grant.phase == Phase::Active);
                self.orders.push(Order::Answer(renewal.request, Answer::Current(current)));
                return;
            }
            Ask::Command(_) => return,
        };
        let owned = table.owned_session(owner, session).is_some()
            || !self.setup.holds(ShellRule::RenewalNamesOwner);
        let gone = if session.0 <= table.position().index {
            Refusal::SessionExpired
        } else {
            Refusal::SessionUnknown
        };
        if !owned {
            self.orders.push(Order::Answer(renewal.request, Answer::Outcome(Err(gone))));
            return;
        }
        match self.leases.renew(session, renewal.at, term) {
            Renewal::Renewed(ttl) => {
                let Some(view) = table.session(session) else { return };
                let read = read_of(&view, table);
                self.orders.push(Order::Renewed(renewal.clone(), How::OffLog));
                self.orders.push(Order::Answer(renewal.request, Answer::Renewed(ttl, read)));
            }
            Renewal::Unseen => self.unseen.push(renewal),
            Renewal::Expiring => {
                self.orders.push(Order::Count(crate::counts::Count::HeldRenewals));
                self.held.push(renewal);
            }
            Renewal::Gone => {
                self.orders.push(Order::Answer(renewal.request, Answer::Outcome(Err(gone))));
            }
            Renewal::NotLeading => {
                self.orders.push(Order::Answer(renewal.request, Answer::NotLeader(None)));
            }
        }
    }

    /// Proposes one `MarkSeen` for all that wait for it, if none is under way.
    fn mark_unseen(&mut self, now: Moment) {
        if self.marking.is_some() || self.unseen.is_empty() {
            return;
        }
        let renewals = std::mem::take(&mut self.unseen);
        let mut sessions: Vec<_> = renewals.iter().map(|renewal| renewal.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        self.marks += 1;
        self.marking = Some(Marking { number: self.marks, since: now, renewals });
        let purpose = Purpose::Marking(self.marks);
        self.orders.push(Order::Propose(Command::MarkSeen { sessions }, purpose));
    }

    /// Marks those whose time is up and proposes their end, in batches.
    fn mark_overdue(&mut self, now: Moment, began: Moment) {
        loop {
            let overdue = self.leases.overdue(now, BATCH);
            if overdue.is_empty() {
                return;
            }
            for &overdue in &overdue {
                let deadline = self.leases.deadline(overdue.session).expect("it was marked");
                let unserved = self.unserved_before(overdue.session, deadline);
                self.orders.push(Order::Marked { overdue, began, unserved });
            }
            self.expiry_proposed = Some(now);
            let command = Command::ExpireSessions { sessions: overdue };
            self.orders.push(Order::Propose(command, Purpose::Own));
        }
    }

    /// Whether a renewal that arrived in time has not been looked at yet.
    fn unserved_before(&self, session: SessionId, deadline: Moment) -> bool {
        let rounds = self.round.iter().chain(&self.confirmed).flat_map(|round| &round.renewals);
        let mut waiting = self.arrived.iter().chain(rounds);
        waiting.any(|renewal| renewal.session == session && renewal.at < deadline)
    }

    /// Now and then: what has had no outcome for long is proposed again.
    pub fn timer(&mut self, table: &LockTable, now: Moment) {
        let Some(term) = self.leases.leading() else { return };
        let long = |since: Moment| now.since(since) >= RETRY;
        if let Some(marking) = self.marking.take_if(|marking| long(marking.since)) {
            self.unseen.extend(marking.renewals);
            self.mark_unseen(now);
        }
        let expiring = self.leases.expiring();
        if !expiring.is_empty() && self.expiry_proposed.is_none_or(long) {
            self.orders.push(Order::Count(crate::counts::Count::ExpiryRetried));
            self.expiry_proposed = Some(now);
            // The contract keeps the marks; only a switch takes them back here.
            self.leases.unmark(expiring.iter().copied());
            if self.leases.expiring().is_empty() {
                let held = std::mem::take(&mut self.held);
                held.into_iter().for_each(|renewal| self.answer(renewal, table, term));
            }
            let command = Command::ExpireSessions { sessions: expiring };
            self.orders.push(Order::Propose(command, Purpose::Own));
        }
        self.end_timers(now);
    }

    /// Proposes the ends of timers that have run out, and again those that had no outcome
    /// for long.
    fn end_timers(&mut self, now: Moment) {
        let retry = self.timers_proposed.is_none_or(|since| now.since(since) >= RETRY);
        let mut timers = if retry { self.leases.ending() } else { Vec::new() };
        timers.extend(self.leases.timers_overdue(now, BATCH));
        if timers.is_empty() {
            return;
        }
        self.timers_proposed = Some(now);
        let orders = ends_of(&timers).map(|command| Order::Propose(command, Purpose::Own));
        self.orders.extend(orders);
    }

    /// An entry was applied here, and the leases have taken it in.
    pub fn applied(
        &mut self,
        command: Option<&Command>,
        purpose: Option<Purpose>,
        effects: &Effects,
        table: &LockTable,
    ) {
        match purpose {
            Some(Purpose::Answer(request)) => {
                let told = self.calls.settle(request, command, &effects.outcome, table);
                self.orders.extend(told);
            }
            Some(Purpose::Marking(number)) => self.marked(number, table),
            Some(Purpose::Own) | None => {}
        }
        if let Some(Command::ExpireSessions { sessions }) = command {
            self.leases.expiry_applied(sessions.iter().copied());
            let settled = |held: &Arrived| sessions.iter().any(|o| o.session == held.session);
            let (again, held): (Vec<_>, _) = self.held.drain(..).partition(settled);
            self.held = held;
            // Their round was confirmed in this term; they are served before anyone is
            // marked anew.
            if let Some(term) = self.leases.leading() {
                again.into_iter().for_each(|renewal| self.answer(renewal, table, term));
            }
        }
        self.calls.wake(effects, table, &mut self.orders);
    }

    /// The `MarkSeen` for these renewals was applied: those that live are renewed.
    fn marked(&mut self, number: u64, table: &LockTable) {
        let Some(marking) = self.marking.take_if(|marking| marking.number == number) else {
            return;
        };
        for renewal in marking.renewals {
            let answer = match table.session(renewal.session) {
                Some(view) => Answer::Renewed(view.row.ttl, read_of(&view, table)),
                None => Answer::Outcome(Err(Refusal::SessionExpired)),
            };
            if matches!(answer, Answer::Renewed(..)) {
                self.orders.push(Order::Renewed(renewal.clone(), How::Marked));
            }
            self.orders.push(Order::Answer(renewal.request, answer));
        }
    }
}

/// What a renewal's answer lets its client read.
fn read_of(view: &SessionView<'_>, table: &LockTable) -> Rc<Read> {
    let grants = view.grants().map(|grant| (grant.token, grant.asked.is_some())).collect();
    Rc::new(Read { at: table.position().index, changed_at: view.changed_at, grants })
}

fn bootstrap() -> Command {
    let limits = ringfence::locks::Limits {
        ttl_min: ringfence::locks::Millis(100),
        ..ringfence::locks::Limits::default()
    };
    let cluster = ringfence::locks::ClusterId::new([7; 16]);
    Command::Bootstrap(ringfence::locks::Bootstrap { cluster, token_floor: 0, limits })
}
