//! What nodes and clients have in common: true time, the order of events, the
//! network, the committed log, the destination, and those who watch.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

use ringfence::locks::{Command, Fence, Term};

use crate::counts::{Count, Counts};
use crate::destination::{DESTINATIONS, Destination};
use crate::faults::{Fault, Profile, Setup, ShellRule};
use crate::log::{Committed, CommittedLog, LogEntry};
use crate::network::{Answer, Message, Reply, Request};
use crate::orders::Purpose;
use crate::properties::books::place;
use crate::properties::{Properties, Violation, i07_acknowledged_survives};
use crate::rng::Rng;
use crate::time::{MS, Micros};
use crate::trace::Trace;

/// Something that is to happen.
pub enum Event {
    Deliver {
        to: usize,
        message: Message,
    },
    Timer {
        node: usize,
        epoch: u32,
        term: u64,
    },
    ElectionDue {
        node: usize,
        epoch: u32,
    },
    Apply {
        node: usize,
        epoch: u32,
    },
    Propose {
        node: usize,
        epoch: u32,
        term: u64,
        command: Rc<Command>,
        purpose: Purpose,
    },
    Up {
        node: usize,
    },
    Reply {
        client: usize,
        reply: Reply,
    },
    Wake {
        client: usize,
    },
    Write(Write),
    /// A fence without a write; whoever sent it is told.
    Raise {
        client: usize,
        destination: usize,
        fence: Fence,
    },
    Raised {
        client: usize,
        fence: Fence,
        accepted: bool,
    },
    Fault(Fault),
}

/// A client's write under a fence.
pub struct Write {
    pub client: usize,
    pub destination: usize,
    pub fence: Fence,
    /// It is past its check, and commits.
    pub checked: bool,
}

struct Due {
    at: Micros,
    order: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    /// The earliest is the greatest: the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// A partition: nodes in the group and nodes outside do not hear each other.
pub struct Cut {
    pub group: u64,
    pub until: Micros,
}

pub struct World {
    pub now: Micros,
    pub rng: Rng,
    pub setup: Setup,
    pub profile: Profile,
    queue: BinaryHeap<Due>,
    order: u64,
    pub cuts: Vec<Cut>,
    pub log: CommittedLog,
    pub destinations: [Destination; DESTINATIONS],
    pub properties: Properties,
    pub violation: Option<Violation>,
    pub trace: Trace,
    pub counts: Counts,
}

impl World {
    pub fn new(seed: u64, setup: Setup, told: bool) -> Self {
        let mut rng = Rng::new(seed);
        let profile = Profile::draw(setup.weather, &mut rng);
        Self {
            now: 0,
            rng,
            setup,
            profile,
            queue: BinaryHeap::new(),
            order: 0,
            cuts: Vec::new(),
            log: CommittedLog::new(setup.rules),
            destinations: Default::default(),
            properties: Properties::default(),
            violation: None,
            trace: Trace::new(told),
            counts: Counts::default(),
        }
    }

    pub fn at(&mut self, at: Micros, event: Event) {
        self.order += 1;
        self.queue.push(Due { at: at.max(self.now), order: self.order, event });
    }

    pub fn after(&mut self, delay: Micros, event: Event) {
        self.at(self.now + delay, event);
    }

    /// The next event, and with it the time.
    pub fn next(&mut self, until: Micros) -> Option<Event> {
        let due = self.queue.pop().filter(|due| due.at <= until)?;
        self.now = due.at;
        Some(due.event)
    }

    pub fn linked(&self, a: usize, b: usize) -> bool {
        let apart = |cut: &Cut| cut.until > self.now && (cut.group >> a ^ cut.group >> b) & 1 == 1;
        !self.cuts.iter().any(apart)
    }

    pub fn quorum(&self) -> usize {
        self.profile.nodes / 2 + 1
    }

    pub fn is_quiet(&self) -> bool {
        self.now >= crate::faults::QUIET
    }

    /// How long a message takes: mostly a few milliseconds.
    pub fn delay(&mut self) -> Micros {
        let slow = if self.is_quiet() { 0 } else { self.profile.slow };
        match self.rng.below(1000) {
            n if n < slow => self.rng.range(50 * MS, self.profile.slowest.max(50 * MS)),
            n if n < slow + 80 => self.rng.range(3 * MS, 60 * MS),
            _ => self.rng.range(300, 4 * MS),
        }
    }

    /// Sends between nodes: perhaps lost, perhaps twice, in any order.
    pub fn send(&mut self, from: usize, to: usize, message: Message) {
        if !self.linked(from, to) || self.rng.permille(self.profile.lost) {
            return;
        }
        if self.rng.permille(self.profile.twice) {
            let delay = self.delay();
            self.after(delay, Event::Deliver { to, message: message.clone() });
        }
        let delay = self.delay();
        self.after(delay, Event::Deliver { to, message });
    }

    /// Sends from a client: also a copy that arrives much later, now and then.
    pub fn ask(&mut self, to: usize, request: &Rc<Request>) {
        if !self.rng.permille(self.profile.lost) {
            let delay = self.delay();
            self.after(delay, Event::Deliver { to, message: Message::Request(Rc::clone(request)) });
        }
        if self.rng.permille(40) {
            let delay = self.rng.range(30 * MS, 2500 * MS);
            self.after(delay, Event::Deliver { to, message: Message::Request(Rc::clone(request)) });
        }
    }

    /// Answers a client; the answer may be lost.
    pub fn reply(&mut self, from: usize, request: &Request, answer: Answer) {
        if self.rng.permille(self.profile.lost + 10) {
            return;
        }
        let delay = self.delay();
        let reply = Reply { from, tag: request.tag, first_sent: request.first_sent, answer };
        self.after(delay, Event::Reply { client: request.client, reply });
    }

    /// A leader has found an entry committed. The first to find it applies it to the
    /// committed log; all others must agree.
    pub fn committed(&mut self, index: usize, entry: &Rc<LogEntry>, by_term: u64) {
        if index <= self.log.last() {
            let same = Rc::ptr_eq(&self.log.entries[index - 1], entry);
            let verdict = i07_acknowledged_survives::same_entry(index, same);
            self.check("I7", verdict);
            return;
        }
        self.counts.add(Count::Entries);
        if entry.term < by_term {
            self.counts.add(Count::LateCommits);
        }
        let effects = self.log.commit(entry);
        let at = ringfence::locks::Position { term: Term(entry.term), index: index as u64 };
        crate::tell!(
            self,
            "committed {} {:?} -> {:?} {:?}",
            index,
            entry.command,
            effects.outcome,
            effects.events
        );
        crate::properties::count_effects(&mut self.counts, entry.command.as_ref(), &effects);
        if self.properties.once.repeated(entry.command.as_ref()) {
            self.counts.add(Count::RepeatsAnswered);
        }
        let whole = self.rng.permille(30);
        let small = self.setup.small_entries;
        let seen = Committed {
            now: self.now,
            at,
            command: entry.command.as_ref(),
            effects: &effects,
            table: &self.log.table,
        };
        if let Err(violation) = self.properties.committed(&seen, whole, small) {
            self.violate(violation);
        }
    }

    /// A write arrives at a destination. Some take a while from their check to their
    /// commit.
    pub fn write(&mut self, write: Write) {
        let Write { client, destination, fence, checked } = &write;
        let locks = self.setup.holds(ShellRule::CheckLocksMark);
        let at = &mut self.destinations[*destination];
        if !checked && locks && at.locked_until(fence) > self.now {
            let until = at.locked_until(fence);
            self.at(until, Event::Write(write));
            return;
        }
        if !checked && at.check(fence) && self.rng.permille(150) {
            let commits = self.now + self.rng.range(1, 80) * MS;
            at.lock(fence, commits);
            self.at(commits, Event::Write(Write { checked: true, ..write }));
            return;
        }
        let refuses = locks || !checked;
        let accepted = self.fenced(*client, *destination, fence, "writes", refuses);
        let holders = &self.properties.books.places[place(&fence.resource)].holders;
        self.counts.add(if accepted { Count::Writes } else { Count::WritesRefused });
        if !holders.contains(&fence.token) {
            self.counts.add(Count::WritesLate);
        } else if holders.len() > 1 {
            self.counts.add(Count::WritesBeside);
        }
    }

    /// A fence without a write arrives at a destination: it waits for writes that are past
    /// their check. Whoever sent it is told, unless the answer is lost.
    pub fn raise(&mut self, client: usize, destination: usize, fence: Fence) {
        let locked = self.destinations[destination].locked_until(&fence);
        if self.setup.holds(ShellRule::CheckLocksMark) && locked > self.now {
            self.counts.add(Count::RaisesWaited);
            self.at(locked, Event::Raise { client, destination, fence });
            return;
        }
        let accepted = self.fenced(client, destination, &fence, "raises", true);
        self.counts.add(match accepted {
            true if client == self.profile.clients => Count::FencesRaised,
            true => Count::Raises,
            false => Count::RaisesRefused,
        });
        if !self.rng.permille(self.profile.lost) {
            let delay = self.delay();
            self.after(delay, Event::Raised { client, fence, accepted });
        }
    }

    fn fenced(
        &mut self,
        client: usize,
        at: usize,
        fence: &Fence,
        does: &str,
        refuses: bool,
    ) -> bool {
        let refuses = refuses && self.setup.holds(ShellRule::DestinationRefuses);
        let marks_slots = self.setup.holds(ShellRule::SlotsAreMarked);
        let kept = Fence { slot: fence.slot.filter(|_| marks_slots), ..fence.clone() };
        let verdict = self.destinations[at].write(&kept, refuses);
        crate::tell!(
            self,
            "c{client} {does} under {} (floor {}) to {} at {at}, slot {:?}: {verdict:?}",
            fence.token,
            fence.floor,
            fence.resource,
            fence.slot
        );
        if let Err(violation) = self.properties.wrote(at, fence, verdict) {
            self.violate(violation);
        }
        verdict.accepted
    }

    /// Records the first violation; the run ends with it.
    pub fn check(&mut self, property: &'static str, verdict: Result<(), String>) {
        if let Err(what) = verdict {
            self.violate(Violation { property, what });
        }
    }

    pub fn violate(&mut self, violation: Violation) {
        crate::tell!(self, "VIOLATION {violation}");
        self.violation.get_or_insert(violation);
    }
}
