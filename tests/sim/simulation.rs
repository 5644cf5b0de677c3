//! One run: a seed and a setup decide everything.

use std::rc::Rc;

use crate::administrator::Administrator;
use crate::client::Client;
use crate::counts::{Count, Counts};
use crate::faults::{END, Fault, QUIET, Setup, schedule};
use crate::network::Message;
use crate::node::Node;
use crate::properties::{Violation, progress};
use crate::tell;
use crate::time::{MS, Micros};
use crate::world::{Cut, Event, World};

/// What came of a run.
pub struct Report {
    pub violation: Option<Violation>,
    pub counts: Counts,
    pub trace_hash: u64,
    pub lines: Vec<String>,
}

/// Runs a seed to its end, or to its first violation.
pub fn run(seed: u64, setup: Setup, told: bool) -> Report {
    let mut simulation = Simulation::new(seed, setup, told);
    simulation.run();
    let World { violation, counts, trace, .. } = simulation.world;
    Report { violation, counts, trace_hash: trace.hash(), lines: trace.lines }
}

struct Simulation {
    world: World,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    administrator: Administrator,
    /// Whether somebody leads that can commit, and since when this is known.
    served: bool,
    since: Micros,
}

impl Simulation {
    fn new(seed: u64, setup: Setup, told: bool) -> Self {
        let mut world = World::new(seed, setup, told);
        let mut nodes: Vec<_> =
            (0..world.profile.nodes).map(|id| Node::new(id, &mut world)).collect();
        let clients: Vec<_> =
            (0..world.profile.clients).map(|id| Client::new(id, &mut world)).collect();
        for node in &mut nodes {
            node.heard(&mut world);
            world.at(node.election_at, Event::ElectionDue { node: node.id, epoch: 0 });
        }
        for client in &clients {
            world.at((300 + 7 * client.id as u64) * MS, Event::Wake { client: client.id });
        }
        let administrator = Administrator::new(&world);
        if world.profile.administered {
            world.at(500 * MS, Event::Wake { client: administrator.id });
        }
        let faults = schedule(&world.profile, &mut world.rng);
        for (at, fault) in faults {
            world.at(at, Event::Fault(fault));
        }
        Self { world, nodes, clients, administrator, served: false, since: 0 }
    }

    fn run(&mut self) {
        while let Some(event) = self.world.next(END) {
            self.account();
            if let Some(event) = self.hold_back(event) {
                self.handle(event);
                self.served = self.can_commit();
            }
            if self.world.violation.is_some() {
                return;
            }
        }
        self.finish();
    }

    /// Time without a leader that can commit is counted as it passes.
    fn account(&mut self) {
        let now = self.world.now;
        if !self.served {
            self.world.properties.late.unserved(now - self.since);
        }
        self.since = now;
    }

    fn can_commit(&self) -> bool {
        let awake = |node: &Node| node.up && node.paused_until <= self.world.now;
        self.nodes.iter().filter(|node| awake(node) && node.acts()).any(|leader| {
            let term = leader.promised;
            let follows = |node: &&Node| {
                awake(node) && node.promised <= term && self.world.linked(node.id, leader.id)
            };
            self.nodes.iter().filter(follows).count() >= self.world.quorum()
        })
    }

    /// What is meant for a paused node or client comes when that is over; for a node
    /// that is down, never.
    fn hold_back(&mut self, event: Event) -> Option<Event> {
        let node = match &event {
            Event::Deliver { to, .. } => *to,
            Event::Timer { node, epoch, .. }
            | Event::ElectionDue { node, epoch }
            | Event::Apply { node, epoch }
            | Event::Propose { node, epoch, .. } => {
                if self.nodes[*node].epoch != *epoch {
                    return None;
                }
                *node
            }
            Event::Reply { client, .. } | Event::Wake { client } | Event::Raised { client, .. } => {
                let until = self.clients.get(*client).map_or(0, |client| client.paused_until);
                if until > self.world.now {
                    self.world.at(until, event);
                    return None;
                }
                return Some(event);
            }
            Event::Up { .. } | Event::Write(_) | Event::Raise { .. } | Event::Fault(_) => {
                return Some(event);
            }
        };
        let node = &self.nodes[node];
        if !node.up {
            return None;
        }
        if node.paused_until > self.world.now {
            let shuffled = self.world.rng.below(2 * MS);
            self.world.at(node.paused_until + shuffled, event);
            return None;
        }
        Some(event)
    }

    fn handle(&mut self, event: Event) {
        let world = &mut self.world;
        let kind = match event {
            Event::Deliver { to, message } => {
                self.nodes[to].deliver(world, message);
                to as u64
            }
            Event::Timer { node, term, .. } => {
                self.nodes[node].timer(world, term);
                16 + node as u64
            }
            Event::ElectionDue { node, epoch } => {
                if self.nodes[node].election_at <= world.now {
                    self.elect(node);
                }
                let at = self.nodes[node].election_at;
                self.world.at(at, Event::ElectionDue { node, epoch });
                32 + node as u64
            }
            Event::Apply { node, .. } => {
                self.nodes[node].apply(world);
                48 + node as u64
            }
            Event::Propose { node, term, command, purpose, .. } => {
                self.nodes[node].append_in(world, term, command, purpose);
                64 + node as u64
            }
            Event::Up { node } => {
                self.nodes[node].restart(world);
                self.nodes[node].heard(world);
                let (at, epoch) = (self.nodes[node].election_at, self.nodes[node].epoch);
                world.at(at, Event::ElectionDue { node, epoch });
                80 + node as u64
            }
            Event::Reply { client, reply } => {
                match self.clients.get_mut(client) {
                    Some(client) => client.reply(world, reply),
                    None => self.administrator.reply(world, &reply),
                }
                96 + client as u64
            }
            Event::Wake { client } => {
                match self.clients.get_mut(client) {
                    Some(client) => client.wake(world),
                    None => self.administrator.wake(world),
                }
                112 + client as u64
            }
            Event::Write(_) | Event::Raise { .. } | Event::Raised { .. } => {
                self.at_destination(event)
            }
            Event::Fault(fault) => {
                self.fault(fault);
                176
            }
        };
        let world = &mut self.world;
        world.trace.mix([world.now, kind, world.log.last() as u64]);
    }

    /// A fence reaches a destination, or its sender is told what came of it.
    fn at_destination(&mut self, event: Event) -> u64 {
        let world = &mut self.world;
        match event {
            Event::Write(write) => {
                let client = write.client;
                world.write(write);
                128 + client as u64
            }
            Event::Raise { client, destination, fence } => {
                world.raise(client, destination, fence);
                144 + client as u64
            }
            Event::Raised { client, fence, accepted } => {
                if let Some(client) = self.clients.get_mut(client) {
                    client.raised(world, &fence, accepted);
                }
                160 + client as u64
            }
            Event::Deliver { .. }
            | Event::Timer { .. }
            | Event::ElectionDue { .. }
            | Event::Apply { .. }
            | Event::Propose { .. }
            | Event::Up { .. }
            | Event::Reply { .. }
            | Event::Wake { .. }
            | Event::Fault(_) => 0,
        }
    }

    /// A node stands for election: a quorum that it reaches votes for it if its log
    /// is not behind theirs. Votes arrive at once; who was not asked knows nothing.
    fn elect(&mut self, candidate: usize) {
        let world = &mut self.world;
        let term_skip = if world.rng.permille(400) { world.rng.range(1, 2) } else { 0 };
        self.nodes[candidate].heard(world);
        if self.nodes[candidate].leading.is_some() {
            return;
        }
        let rank = |node: &Node| (node.term_at(node.log.len()), node.log.len());
        let mine = rank(&self.nodes[candidate]);
        let votes = |node: &Node| {
            node.up
                && node.paused_until <= world.now
                && world.linked(node.id, candidate)
                && rank(node) <= mine
                && node.id != candidate
        };
        let mut voters: Vec<_> = (0..self.nodes.len()).filter(|n| votes(&self.nodes[*n])).collect();
        let needed = world.quorum() - 1;
        if voters.len() < needed {
            return;
        }
        while voters.len() > needed && world.rng.permille(500) {
            let without = world.rng.index(voters.len());
            voters.remove(without);
        }
        voters.push(candidate);
        let promised = voters.iter().map(|n| self.nodes[*n].promised).max().unwrap_or(0);
        let term = promised + 1 + term_skip;
        tell!(world, "n{candidate} is elected in term {term} by {voters:?}");
        world.counts.add(Count::Leaders);
        world.counts.many(Count::SkippedTerms, term_skip);
        for voter in voters {
            let node = &mut self.nodes[voter];
            node.promised = term;
            node.step_down(world);
            node.heard(world);
        }
        let unaware = self.nodes.iter().filter(|node| node.leading.is_some()).count();
        world.counts.many(Count::DeposedUnaware, unaware as u64);
        self.nodes[candidate].lead(world, term);
    }

    fn fault(&mut self, fault: Fault) {
        let leading = self.nodes.iter().filter(|node| node.up && node.leading.is_some());
        let leader = leading.max_by_key(|node| node.promised).map(|node| node.id);
        tell!(self.world, "fault: {fault:?}, leader {leader:?}");
        match fault {
            Fault::Cut { group, until } => self.cut(group, until),
            Fault::CutLeader { until } => {
                if let Some(leader) = leader {
                    self.cut(1 << leader, until);
                }
            }
            Fault::Pause { node, until } => self.pause(node, until),
            Fault::PauseLeader { until } => {
                if let Some(leader) = leader {
                    self.pause(leader, until);
                }
            }
            Fault::Down { node, until } => self.nodes[node].crash(&mut self.world, until),
            Fault::DownLeader { until } => {
                if let Some(leader) = leader {
                    self.nodes[leader].crash(&mut self.world, until);
                }
            }
            Fault::PauseClient { client, until } => {
                let paused = &mut self.clients[client].paused_until;
                *paused = (*paused).max(until);
            }
            Fault::Election { node } => {
                let node = &self.nodes[node];
                if node.up && node.paused_until <= self.world.now {
                    self.elect(node.id);
                }
            }
        }
    }

    fn cut(&mut self, group: u64, until: Micros) {
        self.world.counts.add(Count::Cuts);
        self.world.cuts.push(Cut { group, until });
    }

    fn pause(&mut self, node: usize, until: Micros) {
        self.world.counts.add(Count::Pauses);
        let paused = &mut self.nodes[node].paused_until;
        *paused = (*paused).max(until);
    }

    /// After the quiet time at the end, all that must come about has come about.
    fn finish(&mut self) {
        let world = &mut self.world;
        debug_assert!(world.now > QUIET);
        let alive: Vec<_> = self.clients.iter().filter_map(Client::live_session).collect();
        let verdict = world.properties.late.finish(world.now, &world.log.table, &alive);
        world.check("I11", verdict);
        let books = &world.properties.books;
        let verdict = world.properties.closures.finish(books, world.now);
        let free = progress::all_free(books, &world.log.table);
        world.check("timers", verdict);
        world.counts.many(Count::AllFree, u64::from(free == Ok(true)));
        world.check("progress", free.map(|_| ()));
        for client in &self.clients {
            let verdict = client.knows_its_grants(&world.log.table);
            world.check("I6", verdict);
        }
    }
}

impl Node {
    fn deliver(&mut self, world: &mut World, message: Message) {
        match message {
            Message::Append(append) => self.on_append(world, append),
            Message::Ack(ack) => self.on_ack(world, &ack),
            Message::Snapshot(snapshot) => self.on_snapshot(world, &snapshot),
            Message::Request(request) => self.request(world, &Rc::clone(&request)),
        }
    }
}
