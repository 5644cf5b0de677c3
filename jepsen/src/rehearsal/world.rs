//! Clients, nodes and faults around the toy, on a clock of their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use super::act::resources;
use super::authority::{Authority, TTL};
use super::client::Client;
use super::destination::Destination;
use super::mutant::Mutant;
use crate::history::Journal;

/// A millisecond in nanoseconds.
pub const MS: u64 = 1_000_000;

/// What is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// A client begins its next operation.
    Think(usize),
    /// Its request arrives.
    Effect(usize),
    /// Its answer arrives.
    Return(usize),
    /// A fault begins or ends.
    Fault,
    /// The nodes are asked how they are.
    Watch,
}

/// Everything but the clients.
pub struct World {
    pub now: u64,
    pub rng: ChaCha8Rng,
    pub authority: Authority,
    /// What an old leader still believes, as long as it does.
    pub old: Option<Authority>,
    pub dest: Destination,
    pub journal: Journal<BufWriter<File>>,
    pub next_process: u32,
    pub next_element: u64,
    pub operations: u64,
    /// That the last phase has begun.
    pub healed: bool,
    pub resources: Vec<String>,
    due: BinaryHeap<Reverse<(u64, u64, Due)>>,
    sequence: u64,
    audit: BufWriter<File>,
    ledger: BufWriter<File>,
    statuses: Vec<BufWriter<File>>,
    term: u64,
    starts: [u64; 3],
    /// The fault that acts, and the state when it began.
    fault: Option<&'static str>,
    /// What a power cut or a restore goes back to.
    backup: Authority,
    restores: u64,
    faults: u64,
    /// Tokens by leader, for the one who counts them so.
    counters: [u64; 3],
    rolled_back: u64,
    hashes: BTreeMap<u64, u64>,
}

const FAULTS: [&str; 5] = ["leader-change", "kill-all", "power-cut", "wall-step", "snapshot"];

impl World {
    fn new(folder: &Path, mutant: Option<Mutant>, seed: u64, clients: usize) -> Result<World> {
        let file =
            |name: &str| Ok::<_, std::io::Error>(BufWriter::new(File::create(folder.join(name))?));
        let mut statuses = Vec::new();
        for node in ["n1", "n2", "n3"] {
            fs::create_dir_all(folder.join("nodes").join(node))?;
            statuses.push(file(&format!("nodes/{node}/status.jsonl"))?);
        }
        let check = json!({"expiry": true, "leader_change": true, "agreement": true,
            "durable_positions": true, "faults": ["leader-change"], "ok": {"acquire": 100},
            "ok_after": {"acquire": 4}, "fencing": mutant != Some(Mutant::DestinationCheckOff)});
        fs::write(folder.join("test.json"), json!({"seed": seed, "check": check}).to_string())?;
        let authority = Authority::new(mutant);
        let mut world = World {
            now: 0,
            rng: ChaCha8Rng::seed_from_u64(seed),
            backup: authority.clone(),
            authority,
            old: None,
            dest: Destination::new(mutant == Some(Mutant::DestinationCheckOff)),
            journal: Journal::new(file("history.jsonl")?),
            next_process: 0,
            next_element: 0,
            operations: 0,
            healed: false,
            resources: resources(clients),
            due: BinaryHeap::new(),
            sequence: 0,
            audit: file("audit.jsonl")?,
            ledger: file("dest-ledger.jsonl")?,
            statuses,
            term: 1,
            starts: [1; 3],
            fault: None,
            restores: 0,
            faults: 0,
            counters: [0; 3],
            rolled_back: 0,
            hashes: BTreeMap::new(),
        };
        world.plan(50 * MS, Due::Watch);
        world.plan(900 * MS, Due::Fault);
        Ok(world)
    }

    /// A whole number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.rng.random_range(0..end)
    }

    /// With so many chances in a thousand.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// Does `what` after so many nanoseconds.
    pub fn plan(&mut self, after: u64, what: Due) {
        self.sequence += 1;
        self.due.push(Reverse((self.now + after, self.sequence, what)));
    }

    /// A line for the ledger.
    pub fn book(&mut self, line: &Value) -> Result<()> {
        Ok(writeln!(self.ledger, "{line}")?)
    }

    /// The authority catches up with the time, and what it tells is kept.
    pub fn settle(&mut self) -> Result<()> {
        self.authority.tick(self.now);
        if let Some(old) = &mut self.old {
            old.feed.clear();
        }
        for event in std::mem::take(&mut self.authority.feed) {
            writeln!(self.audit, "{event}")?;
        }
        Ok(())
    }

    fn mutant(&self, mutant: Mutant) -> bool {
        self.authority.mutant == Some(mutant)
    }

    fn fault(&mut self) -> Result<()> {
        if let Some(fault) = self.fault.take() {
            self.end(fault)?;
            let pause = 300 * MS + self.below(900 * MS);
            self.plan(pause, Due::Fault);
            return Ok(());
        }
        if self.healed {
            return Ok(());
        }
        let restore = self.now > 5_000 * MS * (1 + self.restores * 4);
        let drawn = usize::try_from(self.below(5)).unwrap_or(0);
        let drawn = if self.faults == 0 { 0 } else { drawn };
        self.faults += 1;
        let fault = if restore { "restore" } else { FAULTS[drawn] };
        self.journal.nemesis(self.now, fault, json!({"outcome": "installed"}))?;
        self.fault = Some(fault);
        match fault {
            "leader-change" => {
                self.old = Some(self.authority.clone());
                self.term += 1;
                if self.mutant(Mutant::TokenLocalCounter) {
                    let leader = usize::try_from(self.term % 3).unwrap_or(0);
                    let last = usize::try_from((self.term - 1) % 3).unwrap_or(0);
                    self.counters[last] = self.authority.token;
                    self.authority.token = self.counters[leader];
                }
                self.authority.restart(self.now);
            }
            "power-cut" | "restore" => self.backup = self.authority.clone(),
            _ => {}
        }
        let longest = if fault == "leader-change" { 3_000 } else { 400 };
        let length = 200 * MS + self.below(longest * MS);
        self.plan(length, Due::Fault);
        Ok(())
    }

    fn end(&mut self, fault: &'static str) -> Result<()> {
        self.settle()?;
        self.old = None;
        match fault {
            "kill-all" => self.restart(),
            "power-cut" => {
                if self.mutant(Mutant::LogNotSynced) {
                    self.authority = self.backup.clone();
                }
                if self.mutant(Mutant::RecoveryRollsBack) {
                    self.rolled_back = 5;
                }
                self.restart();
                if self.mutant(Mutant::VoteNotSynced) {
                    self.watch()?;
                    self.term -= 1;
                }
            }
            "wall-step" => self.authority.wall_step(self.now),
            // Nodes that were out for long take one up, each at its time.
            "snapshot" => self.authority.snapshot(),
            "restore" => {
                self.restores += 1;
                let backup = self.backup.clone();
                self.authority.restore(self.now, &backup);
                self.hashes.clear();
                self.term = 1;
            }
            _ => {}
        }
        self.journal.nemesis(self.now, fault, json!({"outcome": "installed"}))?;
        Ok(())
    }

    fn restart(&mut self) {
        self.authority.restart(self.now);
        self.starts.iter_mut().for_each(|start| *start += 1);
        self.term += 1;
    }

    fn watch(&mut self) -> Result<()> {
        self.settle()?;
        if self.fault == Some("snapshot") {
            self.authority.snapshot();
        }
        let leader = self.term % 3 + 1;
        let index = self.authority.index;
        let hash = index.wrapping_mul(0x9E37_79B9) ^ self.authority.token;
        self.hashes.insert(index, hash);
        for node in 1..=3u64 {
            let at = usize::try_from(node - 1).unwrap_or(0);
            let back = if node == 2 { self.rolled_back } else { 0 };
            let skew = u64::from(node == 3 && self.mutant(Mutant::ClockInApply));
            let role = if node == leader { "leader" } else { "follower" };
            let status = json!({"time": self.now, "cluster": self.authority.cluster,
                "start": self.starts[at], "role": role, "term": self.term, "vote": leader,
                "leader": leader, "commit": index - back.min(index),
                "applied": index - back.min(index), "last_log": index,
                "state_hash": format!("{:x}", hash + skew), "state_hash_index": index});
            writeln!(self.statuses[at], "{status}")?;
        }
        self.rolled_back = 0;
        Ok(())
    }

    /// All that was written is in the files.
    fn close(&mut self) -> Result<()> {
        self.settle()?;
        self.watch()?;
        self.audit.flush()?;
        self.ledger.flush()?;
        Ok(self.statuses.iter_mut().try_for_each(Write::flush)?)
    }
}

/// Lets `clients` work until there are so many operations, heals, and proves that every resource
/// can be had again. Leaves in `folder` what a run leaves.
///
/// # Errors
/// A file cannot be written.
pub fn run(
    folder: &Path,
    mutant: Option<Mutant>,
    seed: u64,
    operations: u64,
    clients: usize,
) -> Result<()> {
    let mut world = World::new(folder, mutant, seed, clients)?;
    let mut all: Vec<Client> = (0..clients).map(|number| Client::new(number, &mut world)).collect();
    let mut last = u64::MAX;
    while let Some(Reverse((time, _, due))) = world.due.pop() {
        world.now = time;
        if !world.healed && world.operations >= operations && world.fault.is_none() {
            world.healed = true;
            world.journal.nemesis(time, "healed", json!({}))?;
            last = time + 2 * TTL + TTL / 2;
            all.iter_mut().for_each(|client| client.finish(&world.resources));
        }
        if time > last && (all.iter().all(Client::done) || time > last + 10 * TTL) {
            break;
        }
        match due {
            Due::Think(client) => all[client].think(&mut world)?,
            Due::Effect(client) => all[client].effect(&mut world)?,
            Due::Return(client) => all[client].answered(&mut world)?,
            Due::Fault => world.fault()?,
            Due::Watch => {
                world.watch()?;
                world.plan(100 * MS, Due::Watch);
            }
        }
    }
    world.journal.nemesis(world.now, "healed", json!({}))?;
    world.close()
}
