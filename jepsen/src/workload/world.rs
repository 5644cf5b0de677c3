//! What every workload acts in: the nodes, the clients, the destination and the time to stop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::cluster::View;
use crate::history::Kind;
use crate::run::book::Book;
use crate::worker::Answer;
use crate::worker::client::{Client, Lane, Wish};

/// How an attempt that was not refused for good ended: worth another one.
const PASSING: &[&str] =
    &["NOT_LEADER", "NO_QUORUM", "OVERLOADED", "RESTORING", "OUTCOME_UNKNOWN", "WINDOW_FULL"];

/// Shared by all workloads of a run.
#[derive(Debug)]
pub struct World {
    /// The history.
    pub book: Arc<Book>,
    /// What the nodes say.
    pub view: Arc<View>,
    /// Name and address of each node.
    pub nodes: Vec<(String, String)>,
    /// Where the destination listens.
    pub dest: String,
    /// That workloads end.
    pub stop: AtomicBool,
    /// How each resource is used: mode, and how many slots.
    pub used: Mutex<BTreeMap<String, (String, u64)>>,
    /// The last token that was seen on each resource.
    pub tokens: Mutex<BTreeMap<String, u64>>,
    /// Names elements.
    pub elements: AtomicU64,
}

impl World {
    /// Whether workloads end.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Remembers that a resource is used so.
    pub fn uses(&self, resource: &str, mode: &str, slots: u64) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.entry(resource.to_owned()).or_insert_with(|| (mode.to_owned(), slots));
    }

    /// How a resource is used.
    #[must_use]
    pub fn mode(&self, resource: &str) -> Option<String> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.get(resource).map(|(mode, _)| mode.clone())
    }

    /// The last token that was seen on a resource.
    #[must_use]
    pub fn token(&self, resource: &str) -> Option<u64> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).get(resource).copied()
    }
}

/// One logical client: a client process, a process of the history and its own dice.
#[derive(Debug)]
pub struct Agent {
    /// What it acts in.
    pub world: Arc<World>,
    /// Through which process.
    pub client: Arc<Client>,
    lane: Lane,
    /// All its choices.
    pub rng: ChaCha8Rng,
}

impl Agent {
    /// A new one.
    #[must_use]
    pub fn new(world: &Arc<World>, client: &Arc<Client>, seed: u64) -> Agent {
        Agent {
            world: Arc::clone(world),
            client: Arc::clone(client),
            lane: Lane::new(&world.book),
            rng: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Another one on the same client process.
    #[must_use]
    pub fn twin(&mut self) -> Agent {
        Agent::new(&self.world, &self.client, self.rng.random())
    }

    /// Whether something of this many percent happens.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Waits for so many milliseconds, drawn.
    pub async fn sleep(&mut self, ms: std::ops::Range<u64>) {
        let ms = self.rng.random_range(ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Mostly the leader, else any node.
    pub fn pick(&mut self) -> usize {
        let any = self.rng.random_range(0..self.world.nodes.len());
        if self.chance(30) {
            return any;
        }
        let leader = self.world.view.leader();
        let at = self.world.nodes.iter().position(|(name, _)| Some(name) == leader.as_ref());
        at.unwrap_or(any)
    }

    /// One attempt at one node.
    pub async fn once(
        &mut self,
        f: &str,
        args: Value,
        aside: Value,
        node: usize,
        timeout_ms: u64,
    ) -> Answer {
        self.client.alive().await;
        let world = Arc::clone(&self.world);
        let (name, address) = &world.nodes[node];
        let node = Some(name.as_str());
        let wish = Wish { f, args, aside, node, address, timeout_ms };
        let answer = self.client.call(&mut self.lane, wish).await;
        answer.unwrap_or_else(|| down(f))
    }

    /// One attempt at the destination.
    pub async fn at_dest(&mut self, f: &str, args: Value, aside: Value, ms: u64) -> Answer {
        self.client.alive().await;
        let world = Arc::clone(&self.world);
        let address = world.dest.as_str();
        let wish = Wish { f, args, aside, node: None, address, timeout_ms: ms };
        let answer = self.client.call(&mut self.lane, wish).await;
        answer.unwrap_or_else(|| down(f))
    }

    /// Through the client library, which finds its node by itself.
    pub async fn somewhere(&mut self, f: &str, args: Value, aside: Value, ms: u64) -> Answer {
        self.client.alive().await;
        let wish = Wish { f, args, aside, node: None, address: "", timeout_ms: ms };
        let answer = self.client.call(&mut self.lane, wish).await;
        answer.unwrap_or_else(|| down(f))
    }

    /// The same request at node after node until it is settled: not unknown, and not refused for
    /// a passing reason. The last answer, and whether it is settled.
    pub async fn settle(
        &mut self,
        f: &str,
        args: &Value,
        aside: &Value,
        timeout_ms: u64,
        attempts: u32,
    ) -> (Answer, bool) {
        let mut node = self.pick();
        let mut last = down(f);
        let mut unknown = false;
        for attempt in 0..attempts {
            if attempt > 0 {
                self.sleep(20..120).await;
                node = self.pick();
            }
            last = self.once(f, args.clone(), aside.clone(), node, timeout_ms).await;
            match last.kind {
                Kind::Ok => return (last, true),
                Kind::Fail if !passing(&last) => return (last, true),
                Kind::Fail => {}
                Kind::Info | Kind::Invoke => unknown = true,
            }
            if self.world.ends() && attempt > 2 {
                break;
            }
        }
        (last, !unknown)
    }
}

/// The answer of a client process that was down, so that nothing was asked.
fn down(f: &str) -> Answer {
    Answer::of(0, Kind::Fail, json!({"f": f}), Some("client-down".into()))
}

fn passing(answer: &Answer) -> bool {
    let Some(error) = &answer.error else { return false };
    PASSING.contains(&error.as_str()) || error.starts_with("connect") || error == "client-down"
}
