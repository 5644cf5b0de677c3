//! A node: its part of the replicated log, its table, and the shell on top.

use std::collections::BTreeMap;
use std::rc::Rc;

use ringfence::leases::Leases;
use ringfence::locks::{Command, Fact, LockTable, SessionId, Term};

use crate::counts::Count;
use crate::faults::ShellRule;
use crate::log::LogEntry;
use crate::network::{Answer, Ask, Message, Request};
use crate::orders::{Order, Purpose};
use crate::properties::{self, Mark, Stall, i10_same_state};
use crate::shell::Shell;
use crate::tell;
use crate::time::{Clock, MS, Micros};
use crate::world::{Event, World};

/// How often a leader confirms its leadership at least.
pub const HEARTBEAT: Micros = 50 * MS;

pub struct Node {
    pub id: usize,
    pub clock: Clock,
    /// On disk: the highest term it has promised, the log, and rows as of some entry
    /// behind it.
    pub promised: u64,
    pub log: Vec<Rc<LogEntry>>,
    pub disk: LockTable,
    /// In memory.
    pub up: bool,
    pub paused_until: Micros,
    pub epoch: u32,
    pub table: LockTable,
    pub committed: usize,
    pub leading: Option<Leading>,
    pub shell: Shell,
    pub election_at: Micros,
    /// Where it believes the leader to be.
    pub hint: Option<usize>,
    pub apply_due: bool,
    late: bool,
    pub purposes: BTreeMap<usize, (u64, Purpose)>,
}

/// What a leader knows of the others. Every vector has a place per node.
pub struct Leading {
    pub term: u64,
    pub next: Vec<usize>,
    pub matched: Vec<usize>,
    pub confirmed: Vec<u64>,
    pub round: u64,
}

impl Node {
    pub fn new(id: usize, world: &mut World) -> Self {
        let origin = if world.rng.permille(100) { 0 } else { world.rng.below(1 << 50) };
        let speed = world.rng.range(Clock::SPEED.0, Clock::SPEED.1);
        let setup = world.setup;
        let table = LockTable::new().with_switches(setup.rules);
        Self {
            id,
            clock: Clock::new(origin, speed),
            promised: 0,
            log: Vec::new(),
            disk: table.clone(),
            up: true,
            paused_until: 0,
            epoch: 0,
            table,
            committed: 0,
            leading: None,
            shell: Shell::new(Leases::default(), setup),
            election_at: 0,
            hint: None,
            apply_due: false,
            late: world.rng.permille(330),
            purposes: BTreeMap::new(),
        }
    }

    pub fn term_at(&self, index: usize) -> u64 {
        if index == 0 { 0 } else { self.log[index - 1].term }
    }

    pub fn applied(&self) -> usize {
        self.table.position().index as usize
    }

    /// Whether it leads, has applied the first entry of its term, and acts.
    pub fn acts(&self) -> bool {
        let term = self.leading.as_ref().map(|leading| Term(leading.term));
        term.is_some() && self.shell.leases.leading() == term
    }

    /// Takes up a term to which a quorum has voted it. Its first entry is blank.
    pub fn lead(&mut self, world: &mut World, term: u64) {
        self.step_down(world);
        let nodes = world.profile.nodes;
        self.leading = Some(Leading {
            term,
            next: vec![self.committed; nodes],
            matched: vec![0; nodes],
            confirmed: vec![0; nodes],
            round: 0,
        });
        self.hint = Some(self.id);
        self.shell.elected(Term(term));
        self.append(world, None, None);
        self.timer(world, term);
    }

    /// Lays its term down, if it leads one.
    pub fn step_down(&mut self, world: &mut World) {
        if let Some(leading) = self.leading.take() {
            tell!(world, "n{} no longer leads term {}", self.id, leading.term);
            if self.shell.round().is_some() {
                world.counts.add(Count::RoundsLost);
            }
            self.purposes.clear();
            self.shell.deposed();
            self.drain(world);
        }
    }

    pub fn timer(&mut self, world: &mut World, term: u64) {
        if self.leading.as_ref().is_none_or(|leading| leading.term != term) {
            return;
        }
        let marks = self.shell.leases.expiring().len() as u64;
        if world.now % world.profile.laid_down < 1 + marks * 4 {
            // The shell is told that it does not lead, wrongly, and later that it does.
            world.counts.add(Count::LaidDown);
            tell!(world, "n{} lays down", self.id);
            self.shell.deposed();
        } else {
            self.shell.elected(Term(term));
        }
        let now = self.clock.at(world.now);
        self.shell.timer(&self.table, now);
        self.drain(world);
        if self.shell.round().is_none() {
            self.begin_round(world);
        } else {
            self.broadcast(world);
        }
        let wish = self.shell.leases.next_deadline().map(|at| self.clock.when(at) + 1);
        let usual = world.now + HEARTBEAT - world.rng.below(10 * MS);
        let next = wish.filter(|at| *at > world.now).map_or(usual, |at| at.min(usual));
        let (node, epoch) = (self.id, self.epoch);
        world.at(next, Event::Timer { node, epoch, term });
    }

    /// A client's request arrives.
    pub fn request(&mut self, world: &mut World, request: &Rc<Request>) {
        if self.leading.is_none() {
            self.forward(world, request);
            return;
        }
        match &request.ask {
            Ask::Renew { session, .. } => {
                world.properties.arrived(*session, world.now);
                self.for_a_round(world, request, *session);
            }
            Ask::CheckToken { .. } => self.for_a_round(world, request, SessionId(0)),
            Ask::Command(command) => {
                let purpose = Purpose::Answer(Rc::clone(request));
                self.propose(world, command.clone(), purpose);
            }
        }
    }

    /// What needs a round waits for the next one.
    fn for_a_round(&mut self, world: &mut World, request: &Rc<Request>, session: SessionId) {
        let now = self.clock.at(world.now);
        self.shell.renewal(Rc::clone(request), session, &self.table, now);
        self.drain(world);
        if self.shell.round().is_none() && self.shell.wants_round() {
            self.begin_round(world);
        }
    }

    /// A follower forwards once, or says where to go.
    fn forward(&mut self, world: &mut World, request: &Rc<Request>) {
        let leader = self.hint.filter(|hint| *hint != self.id);
        match leader {
            Some(to) if !request.forwarded && world.rng.permille(500) => {
                let ask = request.ask.clone();
                let (client, tag, first_sent) = (request.client, request.tag, request.first_sent);
                let request = Rc::new(Request { client, tag, ask, first_sent, forwarded: true });
                world.send(self.id, to, Message::Request(request));
            }
            _ => world.reply(self.id, request, Answer::NotLeader(leader)),
        }
    }

    /// Hands an entry to the log: at once, after a while in a queue, or never.
    fn propose(&mut self, world: &mut World, command: Command, purpose: Purpose) {
        let Some(leading) = &self.leading else { return };
        let (node, epoch, term) = (self.id, self.epoch, leading.term);
        if world.rng.permille(5) {
            return;
        }
        let queued = if world.is_quiet() { 0 } else { world.profile.queued };
        let delay = match world.rng.below(1000) {
            n if n < queued => world.rng.range(100 * MS, 1500 * MS),
            n if n < queued + 40 => world.rng.range(MS, 40 * MS),
            _ => return self.append_in(world, term, Rc::new(command), purpose),
        };
        let command = Rc::new(command);
        world.after(delay, Event::Propose { node, epoch, term, command, purpose });
    }

    /// Appends if it still leads the term for which the entry was meant.
    pub fn append_in(
        &mut self,
        world: &mut World,
        term: u64,
        command: Rc<Command>,
        purpose: Purpose,
    ) {
        if self.leading.as_ref().is_some_and(|leading| leading.term == term) {
            self.append(world, Some(Rc::unwrap_or_clone(command)), Some(purpose));
        } else if let Purpose::Answer(request) = purpose {
            world.reply(self.id, &request, Answer::NotLeader(self.hint));
        }
    }

    fn append(&mut self, world: &mut World, command: Option<Command>, purpose: Option<Purpose>) {
        let term = self.leading.as_ref().expect("only a leader appends").term;
        self.log.push(Rc::new(LogEntry { term, command }));
        if let Some(purpose) = purpose {
            self.purposes.insert(self.log.len(), (term, purpose));
        }
        if !world.setup.holds(ShellRule::CommittedFirst) {
            self.committed = self.log.len();
            self.schedule_apply(world);
        }
        self.advance(world);
        self.broadcast(world);
    }

    pub fn schedule_apply(&mut self, world: &mut World) {
        if self.apply_due || self.applied() >= self.committed {
            return;
        }
        self.apply_due = true;
        let late = self.late && !world.is_quiet() && world.rng.permille(200);
        let latest = if late { world.profile.latest_apply } else { 2 * MS };
        let delay = world.rng.below(latest + 1);
        world.after(delay, Event::Apply { node: self.id, epoch: self.epoch });
    }

    /// Applies what is committed, all of it or a part.
    pub fn apply(&mut self, world: &mut World) {
        self.apply_due = false;
        let part = world.rng.permille(100);
        let upto = if part { self.committed.min(self.applied() + 2) } else { self.committed };
        while self.applied() < upto && world.violation.is_none() {
            self.apply_one(world);
        }
        if world.rng.permille(100) {
            self.disk = self.table.clone();
        }
        self.serve(world);
        self.schedule_apply(world);
    }

    fn apply_one(&mut self, world: &mut World) {
        let index = self.applied() + 1;
        let entry = Rc::clone(&self.log[index - 1]);
        let effects = entry.apply(&mut self.table, index as u64);
        if index > world.log.last() {
            let early = Err(format!("n{} applies {index}, which is not committed", self.id));
            world.check("I7", early);
            return;
        }
        let same = i10_same_state::applied(self.id, &self.table, &effects.outcome, &world.log);
        world.check("I10", same);
        let now = self.clock.at(world.now);
        self.shell.leases.observe(&effects.facts, now);
        self.observed(world, &effects.facts, entry.term);
        if let Some(Command::ExpireSessions { sessions }) = &entry.command {
            for overdue in sessions {
                world.properties.late.spared(self.id, overdue.session, world.now);
            }
        }
        let purpose = self.purposes.remove(&index);
        let purpose = purpose.filter(|(term, _)| *term == entry.term).map(|(_, why)| why);
        self.shell.applied(entry.command.as_ref(), purpose, &effects, &self.table);
        self.drain(world);
    }

    /// Tells the checkers what moved deadlines here.
    fn observed(&mut self, world: &mut World, facts: &[Fact], term: u64) {
        let leads = self.leading.as_ref().is_some_and(|leading| leading.term == term);
        for fact in facts {
            match *fact {
                Fact::TermBegan { previous, .. } => {
                    world.properties.term_began(self.id, previous, world.now);
                    let seen_in =
                        |s: &ringfence::locks::SessionView<'_>| s.row.seen.term == previous;
                    let sessions = self.table.sessions_after(SessionId(0)).filter(seen_in).count();
                    world.counts.many(Count::Rebased, sessions as u64);
                    tell!(
                        world,
                        "n{} applies the first entry of term {term} after {previous}",
                        self.id
                    );
                }
                Fact::Seen { session, .. } if leads => world.properties.arrived(session, world.now),
                Fact::Seen { .. }
                | Fact::Ended { .. }
                | Fact::TimerBegan { .. }
                | Fact::TimerEnded { .. } => {}
            }
        }
    }

    /// Goes on with rounds, as far as they are confirmed and applied.
    pub fn serve(&mut self, world: &mut World) {
        let now = self.clock.at(world.now);
        self.shell.serve(&self.table, now);
        self.drain(world);
        if self.leading.is_some() && self.shell.round().is_none() && self.shell.wants_round() {
            self.begin_round(world);
        }
    }

    /// Does what the shell has ordered.
    pub fn drain(&mut self, world: &mut World) {
        for order in std::mem::take(&mut self.shell.orders) {
            match order {
                Order::Propose(command, purpose) => {
                    tell!(world, "n{} proposes {command:?}", self.id);
                    self.propose(world, command, purpose);
                }
                Order::Answer(request, answer) => {
                    tell!(
                        world,
                        "n{} answers c{} {:?}: {answer:?}",
                        self.id,
                        request.client,
                        request.tag
                    );
                    properties::answered(world, &request, &answer);
                    world.reply(self.id, &request, answer);
                }
                Order::Renewed(renewal, how) => {
                    let arrived = self.clock.when(renewal.at);
                    properties::renewed(world, &renewal.request, renewal.session, arrived, how);
                }
                Order::Marked { overdue, began, unserved } => {
                    tell!(world, "n{} marks {} (seen {})", self.id, overdue.session, overdue.seen);
                    let term = self.leading.as_ref().map_or(0, |leading| leading.term);
                    let mark = Mark { node: self.id, term, began: self.clock.when(began) };
                    let view = self.table.session(overdue.session).expect("it was just overdue");
                    properties::marked(world, mark, view.row, unserved);
                }
                Order::Stalled { by, until } => {
                    world.counts.add(Count::Stalls);
                    let (by, until) = (self.clock.truly(by), self.clock.when(until));
                    tell!(world, "n{} moves all deadlines by {by} us", self.id);
                    let from = until.saturating_sub(by);
                    let stall = Stall { from, until, served: world.now };
                    world.properties.late.stalled(self.id, stall);
                }
                Order::Count(what) => world.counts.add(what),
            }
        }
    }
}
