//! What goes wrong, when, and whether it really did.
//!
//! Each fault is begun and ended in the history. The end says whether it acted: `installed` if a
//! counter of its means moved, `skipped` if there was nothing to do it to, `indeterminate` if
//! that cannot be told or something failed.

mod faults;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::cluster::{Cluster, View};
use crate::means::Run;
use crate::run::book::Book;
use crate::worker::client::Client;

/// How long it is calm between two faults of the script, at least if there is more than one round.
const PAUSE_MS: u64 = 2_000;

/// A class of faults.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Its name in the history.
    pub name: &'static str,
    /// How long it lasts in the script, in milliseconds.
    pub lasts_ms: u64,
    make: fn(&mut Nemesis, u64) -> Result<Outcome>,
}

/// Whether a fault acted, and what it was.
#[derive(Debug)]
pub struct Outcome {
    acted: Option<bool>,
    what: Value,
}

impl Fault {
    /// That it is done to clients and not to nodes.
    #[must_use]
    pub fn of_clients(self) -> bool {
        matches!(self.name, "pause-client" | "kill-client" | "reply-cut")
    }
}

impl Outcome {
    fn acted(acted: bool, what: Value) -> Outcome {
        Outcome { acted: Some(acted), what }
    }

    fn skipped(why: &str) -> Outcome {
        Outcome { acted: None, what: json!({"why": why}) }
    }

    fn word(&self) -> &'static str {
        match self.acted {
            Some(true) => "installed",
            Some(false) => "indeterminate",
            None => "skipped",
        }
    }
}

/// All classes, in the order of the script.
pub const ALL: &[Fault] = &[
    Fault { name: "partition-leader", lasts_ms: 3_000, make: faults::partition_leader },
    Fault { name: "pause-client", lasts_ms: 2_500, make: faults::pause_client },
    Fault { name: "kill-leader", lasts_ms: 1_500, make: faults::kill_leader },
    Fault { name: "one-way", lasts_ms: 3_000, make: faults::one_way },
    Fault { name: "loss-delay", lasts_ms: 4_000, make: faults::loss_delay },
    Fault { name: "pause-leader", lasts_ms: 2_500, make: faults::pause_leader },
    Fault { name: "power-cut-voters", lasts_ms: 1_000, make: faults::power_cut_voters },
    Fault { name: "reply-cut", lasts_ms: 2_500, make: faults::reply_cut },
    Fault { name: "fsync-stall", lasts_ms: 3_000, make: faults::fsync_stall },
    Fault { name: "clock", lasts_ms: 4_000, make: faults::clock },
    Fault { name: "power-cut-all", lasts_ms: 500, make: faults::power_cut_all },
    Fault { name: "enospc", lasts_ms: 2_000, make: faults::enospc },
    Fault { name: "eio", lasts_ms: 2_000, make: faults::eio },
    Fault { name: "kill-client", lasts_ms: 300, make: faults::kill_client },
    Fault { name: "torn-wal", lasts_ms: 1_000, make: faults::torn_wal },
    Fault { name: "starve", lasts_ms: 4_000, make: faults::starve },
];

/// The faults of these names; all if there are none, no faults for `none`.
///
/// # Errors
/// There is none of such a name.
pub fn of(names: &[String]) -> Result<Vec<Fault>> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    let mut faults = Vec::new();
    for name in names.iter().filter(|name| *name != "none") {
        let found: Vec<Fault> =
            ALL.iter().filter(|fault| fault.name.starts_with(name.as_str())).copied().collect();
        if found.is_empty() {
            bail!("no fault is called {name}");
        }
        faults.extend(found);
    }
    Ok(faults)
}

/// Who makes faults.
pub struct Nemesis {
    pub(crate) run: Arc<Run>,
    pub(crate) cluster: Arc<Mutex<Cluster>>,
    pub(crate) clients: Vec<Arc<Client>>,
    pub(crate) view: Arc<View>,
    pub(crate) book: Arc<Book>,
    pub(crate) rng: ChaCha8Rng,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Nemesis {
    /// A new one, with dice of its own.
    #[must_use]
    pub fn new(
        run: &Arc<Run>,
        cluster: &Arc<Mutex<Cluster>>,
        clients: &[Arc<Client>],
        view: &Arc<View>,
        book: &Arc<Book>,
        seed: u64,
    ) -> Nemesis {
        Nemesis {
            run: Arc::clone(run),
            cluster: Arc::clone(cluster),
            clients: clients.to_vec(),
            view: Arc::clone(view),
            book: Arc::clone(book),
            rng: ChaCha8Rng::seed_from_u64(seed),
            stop: Arc::default(),
        }
    }

    pub(crate) fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each fault once, or as often as there is time for, spread over the time. What does not
    /// fit is left out and told.
    ///
    /// # Errors
    /// The history cannot be written, or a fault cannot be taken back.
    pub fn script(&mut self, faults: &[Fault], time: Duration) -> Result<Vec<&'static str>> {
        let end = Instant::now() + time;
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let once: u64 = faults.iter().map(|fault| fault.lasts_ms + PAUSE_MS).sum();
        let rounds = ms.checked_div(once).unwrap_or(1).max(1);
        let acts: u64 = faults.iter().map(|fault| fault.lasts_ms * rounds).sum();
        let pause = ms.saturating_sub(acts) / (faults.len() as u64 * rounds + 1);
        let mut left = Vec::new();
        for round in 0..rounds {
            for fault in faults {
                self.rest(Duration::from_millis(pause.clamp(300, 4_000)).min(left_of(end)));
                if left_of(end).is_zero() {
                    left.extend((round == 0).then_some(fault.name));
                    continue;
                }
                self.act(*fault, fault.lasts_ms)?;
            }
        }
        self.rest(left_of(end));
        Ok(left)
    }

    /// Faults at random until the time is over, each taken back before the next of its kind.
    ///
    /// # Errors
    /// As [`Nemesis::script`].
    pub fn random(&mut self, faults: &[Fault], time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while !faults.is_empty() && !left_of(end).is_zero() && !self.stopped() {
            let fault = faults[self.rng.random_range(0..faults.len())];
            let lasts = self.rng.random_range(fault.lasts_ms / 3..=fault.lasts_ms * 3 / 2);
            self.act(fault, lasts)?;
            let pause = self.rng.random_range(200..2_500);
            self.rest(Duration::from_millis(pause).min(left_of(end)));
        }
        self.rest(left_of(end));
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Waits, unless it is told to stop.
    pub(crate) fn rest(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stopped() && !left_of(end).is_zero() {
            std::thread::sleep(left_of(end).min(Duration::from_millis(50)));
        }
    }

    /// Makes one fault and takes it back.
    ///
    /// # Errors
    /// As [`Nemesis::script`].
    pub fn act(&mut self, fault: Fault, lasts_ms: u64) -> Result<()> {
        println!("  fault: {}", fault.name);
        self.book.nemesis(fault.name, json!({"lasts_ms": lasts_ms}))?;
        let outcome = (fault.make)(self, lasts_ms);
        let healed = if fault.of_clients() { Ok(()) } else { self.cluster().heal() };
        let mut value = match &outcome {
            Ok(outcome) => json!({"outcome": outcome.word(), "what": outcome.what}),
            Err(error) => json!({"outcome": "indeterminate", "error": format!("{error:#}")}),
        };
        if let Err(error) = &healed {
            value["heal"] = json!(format!("{error:#}"));
        }
        println!("  fault: {} over: {value}", fault.name);
        self.book.nemesis(fault.name, value)?;
        healed
    }
}

fn left_of(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}
