//! What goes wrong, how often, and which rule is switched off.

use ringfence::locks::Switches;

use crate::properties::books::PLACES;
use crate::rng::Rng;
use crate::time::{MS, Micros};

/// How a run is set up; with the seed it decides everything.
#[derive(Clone, Copy, Default)]
pub struct Setup {
    /// Rules of `locks` and `leases`.
    pub rules: Switches,
    /// A rule of the leader's shell or of the surroundings that is switched off.
    pub off: Option<ShellRule>,
    pub weather: Weather,
    /// `Rule::EntriesAreLarge` is switched off: grants are left for later entries.
    pub small_entries: bool,
}

impl Setup {
    pub fn holds(self, rule: ShellRule) -> bool {
        self.off != Some(rule)
    }
}

/// Rules that are not in `locks` and `leases`, but with whoever drives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShellRule {
    /// A renewal is answered only after a confirmed round.
    RoundsAreConfirmed,
    /// A round confirms only renewals that arrived before it began.
    RoundConfirmsEarlierArrivals,
    /// A lead ends with its term: what was committed when a round began is applied
    /// before its renewals are answered, in the term that the round confirmed.
    TermsAreCompared,
    /// A renewal names its owner too.
    RenewalNamesOwner,
    /// Nothing is acknowledged before it is committed.
    CommittedFirst,
    /// A restarted node finds all its rows.
    RowsAreWhole,
    /// The destination checks tokens.
    DestinationRefuses,
    /// A client counts from before the first sending.
    CountsFromFirstSending,
    /// A client counts the lower ttl while a change is not settled.
    CountsLowerTtl,
    /// A client raises its fence at every destination before it confirms.
    RaisesBeforeConfirm,
    /// A destination's transaction holds the mark's lock from its check to its commit.
    CheckLocksMark,
    /// A destination keeps a mark for each slot.
    SlotsAreMarked,
}

/// How bad the network is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weather {
    /// Drawn from the seed: 1, 3 or 5 nodes, mostly fast, everything possible.
    #[default]
    Mixed,
    /// Three nodes, and every fourth message takes up to 2 s.
    Slow,
    /// Five nodes that often restart, apply late and install snapshots.
    Catching,
    /// Every second proposal stays in a queue for up to 1.5 s; little else goes wrong.
    Queueing,
}

impl Weather {
    pub const ALL: [Self; 4] = [Self::Mixed, Self::Slow, Self::Catching, Self::Queueing];
}

/// The weather of one run.
pub struct Profile {
    pub nodes: usize,
    pub clients: usize,
    pub resources: usize,
    /// How many messages in a thousand are slow, and how slow at most.
    pub slow: u64,
    pub slowest: Micros,
    /// How late a late node applies at most; one in three nodes is late.
    pub latest_apply: Micros,
    /// How many messages in a thousand are lost, or arrive twice.
    pub lost: u64,
    pub twice: u64,
    /// How many proposals in a thousand stay in a queue for long.
    pub queued: u64,
    /// Of so many timers one finds its lead laid down and taken up again.
    pub laid_down: u64,
    pub faults: u64,
    /// How often clients ask for each mode.
    pub mix: Mix,
    /// The number of slots that the users of each resource agree on.
    pub slots: [u32; PLACES],
    /// Whether somebody revokes, freezes and the like.
    pub administered: bool,
    /// Whether all clients stop at the end.
    pub all_stop: bool,
}

/// So many in a hundred; the rest is exclusive.
#[derive(Clone, Copy)]
pub struct Mix {
    pub shared: u64,
    pub slots: u64,
    pub sets: u64,
}

const MIXES: [Mix; 6] = [
    Mix { shared: 0, slots: 0, sets: 0 },
    Mix { shared: 30, slots: 30, sets: 10 },
    Mix { shared: 60, slots: 10, sets: 10 },
    Mix { shared: 10, slots: 70, sets: 5 },
    Mix { shared: 0, slots: 60, sets: 0 },
    Mix { shared: 10, slots: 10, sets: 50 },
];

/// When faults end and everything heals.
pub const QUIET: Micros = 6000 * MS;
/// When a run ends.
pub const END: Micros = 10_500 * MS;

impl Profile {
    pub fn draw(weather: Weather, rng: &mut Rng) -> Self {
        let calm = rng.permille(150);
        let mut drawn = Self {
            nodes: *rng.pick(&[1, 3, 3, 3, 3, 5]),
            clients: *rng.pick(&[4, 4, 5, 6]),
            resources: *rng.pick(&[2, 2, 3]),
            slow: rng.range(0, 25),
            slowest: rng.range(100, 1000) * MS,
            latest_apply: rng.range(0, 1200) * MS,
            lost: rng.range(0, 20),
            twice: rng.range(0, 20),
            queued: rng.range(0, 15),
            laid_down: 211,
            faults: if calm { 1 } else { rng.range(2, 10) },
            mix: *rng.pick(&MIXES),
            slots: std::array::from_fn(|_| rng.range(1, 3) as u32),
            administered: rng.permille(600),
            all_stop: rng.permille(400),
        };
        match weather {
            Weather::Mixed => {}
            Weather::Queueing => {
                (drawn.queued, drawn.laid_down, drawn.faults) = (500, 23, 3);
            }
            Weather::Slow => {
                drawn.nodes = 3;
                (drawn.slow, drawn.slowest, drawn.faults) = (250, 2000 * MS, 12);
            }
            Weather::Catching => {
                drawn.nodes = *rng.pick(&[3, 5]);
                (drawn.latest_apply, drawn.faults) = (1500 * MS, 12);
            }
        }
        drawn
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nodes in the group hear nothing of those outside.
    Cut {
        group: u64,
        until: Micros,
    },
    CutLeader {
        until: Micros,
    },
    Pause {
        node: usize,
        until: Micros,
    },
    PauseLeader {
        until: Micros,
    },
    Down {
        node: usize,
        until: Micros,
    },
    DownLeader {
        until: Micros,
    },
    PauseClient {
        client: usize,
        until: Micros,
    },
    /// The node stands for election though nobody misses a leader.
    Election {
        node: usize,
    },
}

/// Draws what goes wrong and when.
pub fn schedule(profile: &Profile, rng: &mut Rng) -> Vec<(Micros, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..profile.faults {
        let at = rng.range(400, QUIET / MS - 500) * MS + rng.below(MS);
        let length = if rng.permille(500) { rng.range(50, 700) } else { rng.range(500, 2500) };
        let until = (at + length * MS).min(QUIET);
        let down = (at + rng.range(20, 1200) * MS).min(QUIET);
        let node = rng.index(profile.nodes);
        let group = rng.below(1 << profile.nodes);
        faults.push((
            at,
            match rng.below(14) {
                0 => Fault::Cut { group: 1 << node, until },
                1 | 2 => Fault::Cut { group, until },
                3 => Fault::Pause { node, until },
                4 => Fault::Down { node, until: down },
                5 | 6 => Fault::PauseClient { client: rng.index(profile.clients), until },
                7 | 8 => Fault::CutLeader { until },
                9 | 10 => Fault::PauseLeader { until },
                11 => Fault::DownLeader { until: down },
                _ => Fault::Election { node },
            },
        ));
    }
    faults
}
