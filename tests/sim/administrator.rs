//! Who revokes, freezes, thaws, changes numbers of slots and asks for grants back; by
//! what it sees now and, often enough, by what it saw a while ago. With the tokens that
//! it gets it raises the fences at the destinations. Section 8 of the contract.

use std::collections::BTreeMap;
use std::rc::Rc;

use ringfence::locks::{
    Administered, ClusterId, Command, Done, Fence, Millis, Note, ResourceName, Token,
};

use crate::destination::DESTINATIONS;
use crate::network::{Answer, Ask, Reply, Request, Tag};
use crate::properties::books::{place, resource};
use crate::tell;
use crate::time::MS;
use crate::world::{Event, World};

pub struct Administrator {
    /// As the clients are numbered: the one after them.
    pub id: usize,
    target: usize,
    /// What it has asked, by number.
    asked: BTreeMap<u64, ResourceName>,
    /// Tokens that it has seen.
    seen: Vec<(ResourceName, Token)>,
    /// To be raised when their slots are empty.
    removed: Vec<Fence>,
}

impl Administrator {
    pub fn new(world: &World) -> Self {
        let (asked, seen, removed) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { id: world.profile.clients, target: 0, asked, seen, removed }
    }

    pub fn wake(&mut self, world: &mut World) {
        let next = world.rng.range(60, 200) * MS;
        world.after(next, Event::Wake { client: self.id });
        self.raise_removed(world);
        let name = resource(world.rng.index(world.profile.resources));
        let note = Note { actor: "ops".into(), reason: String::new() };
        if let Some(token) = frozen(world, &name) {
            // In the end nothing stays frozen.
            if world.is_quiet() || world.rng.permille(500) {
                let stale = !world.is_quiet() && world.rng.permille(150);
                let token = if stale { self.stale(world, &name).unwrap_or(token) } else { token };
                self.ask(world, name.clone(), Command::Thaw { resource: name, token, note });
            }
            return;
        }
        if world.is_quiet() {
            return;
        }
        self.interfere(world, name, note);
    }

    fn interfere(&mut self, world: &mut World, name: ResourceName, note: Note) {
        let holders = &world.properties.books.places[place(&name)].holders;
        let held = (!holders.is_empty()).then(|| *world.rng.pick(holders));
        self.seen.extend(held.map(|token| (name.clone(), token)));
        let stale = if world.rng.permille(300) { self.stale(world, &name) } else { held };
        let resource = name.clone();
        let command = match world.rng.below(100) {
            0..25 => stale.map(|token| Command::Revoke { resource, token, note }),
            25..33 => Some(Command::Freeze { resource, note }),
            33..45 => {
                let slots = world.rng.range(1, 4) as u32;
                Some(Command::Resize { resource, slots, note })
            }
            45..60 => stale.map(|token| {
                let within = Millis(500);
                Command::AskRelease { resource, token, within, note }
            }),
            _ => None,
        };
        if let Some(command) = command {
            self.ask(world, name, command);
        }
    }

    /// A token that it saw on the resource some time ago.
    fn stale(&self, world: &mut World, name: &ResourceName) -> Option<Token> {
        let of_it: Vec<_> = self.seen.iter().filter(|(seen, _)| seen == name).collect();
        (!of_it.is_empty()).then(|| world.rng.pick(&of_it).1)
    }

    fn ask(&mut self, world: &mut World, name: ResourceName, command: Command) {
        let number = self.asked.len() as u64;
        self.asked.insert(number, name);
        tell!(world, "the administrator asks n{}: {command:?}", self.target);
        let (tag, ask) = (Tag::Administer(number), Ask::Command(command));
        let (first_sent, forwarded) = (world.now, false);
        let request = Request { client: self.id, tag, ask, first_sent, forwarded };
        world.ask(self.target, &Rc::new(request));
    }

    /// What has no answer is not asked again: it has no request id.
    pub fn reply(&mut self, world: &mut World, reply: &Reply) {
        let Tag::Administer(number) = reply.tag else { return };
        let name = self.asked[&number].clone();
        match &reply.answer {
            Answer::NotLeader(hint) => {
                let other = (reply.from + 1) % world.profile.nodes;
                self.target = hint.filter(|hint| *hint != reply.from).unwrap_or(other);
            }
            Answer::Outcome(Ok(Done::Administered(done))) => self.done(world, &name, done),
            Answer::Outcome(_)
            | Answer::Unknown
            | Answer::Renewed(..)
            | Answer::Granted(_)
            | Answer::Current(_) => {}
        }
    }

    /// Shuts out at the destinations whom it has put out.
    fn done(&mut self, world: &mut World, name: &ResourceName, done: &Administered) {
        match done {
            Administered::Revoked { names, slot, token, floor } => {
                for resource in names {
                    self.raise(world, &fence(resource, *slot, *token, *floor));
                }
            }
            Administered::Frozen { token } => {
                self.seen.push((name.clone(), *token));
                self.raise(world, &fence(name, None, *token, *token));
            }
            Administered::Resized { token, floor, removed, .. } => {
                let fences = removed.clone().map(|slot| fence(name, Some(slot), *token, *floor));
                self.removed.extend(fences);
            }
            Administered::Thawed { .. } | Administered::Asked { .. } => {}
        }
    }

    /// A slot that was taken away is fenced when it is empty.
    fn raise_removed(&mut self, world: &mut World) {
        let held = |fence: &Fence| {
            let books = &world.properties.books;
            let holders = &books.places[place(&fence.resource)].holders;
            let mut earlier = holders.iter().filter(|holder| **holder < fence.token);
            earlier.any(|holder| books.grants[holder].granted.slot == fence.slot)
        };
        let (wait, empty) = self.removed.drain(..).partition(held);
        self.removed = wait;
        let empty: Vec<Fence> = empty;
        empty.iter().for_each(|fence| self.raise(world, fence));
    }

    fn raise(&self, world: &mut World, fence: &Fence) {
        for destination in 0..DESTINATIONS {
            if world.rng.permille(700) {
                let late = world.rng.permille(200);
                let delay = if late { world.rng.range(50, 1500) * MS } else { world.delay() };
                let fence = fence.clone();
                world.after(delay, Event::Raise { client: self.id, destination, fence });
            }
        }
    }
}

fn frozen(world: &World, name: &ResourceName) -> Option<Token> {
    world.properties.books.places[place(name)].frozen
}

fn fence(resource: &ResourceName, slot: Option<u32>, token: Token, floor: Token) -> Fence {
    let (cluster, resource) = (ClusterId::new([7; 16]), resource.clone());
    Fence { cluster, resource, slot, token, floor }
}
