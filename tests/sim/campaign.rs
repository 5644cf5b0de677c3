//! Many seeds on all cores, and what is said when one fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::counts::Counts;
use crate::faults::Setup;
use crate::properties::Violation;
use crate::simulation::run;

/// How much of a failing run's trace is shown.
const LINES_SHOWN: usize = 150;

/// A seed and what does not hold in it.
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
}

/// What came of a campaign.
pub struct Campaign {
    pub counts: Counts,
    /// The first failing seed, in the order of seeds.
    pub failure: Option<Failure>,
}

/// Runs seeds from 0 on, and stops at a failure.
pub fn campaign(seeds: u64, setup: Setup) -> Campaign {
    search(seeds, setup, |_| true)
}

/// As [`campaign`], but only some violations count as a failure.
pub fn search(seeds: u64, setup: Setup, wanted: impl Fn(&Violation) -> bool + Sync) -> Campaign {
    let next = AtomicU64::new(0);
    let end = AtomicU64::new(seeds);
    let joined = Mutex::new(Campaign { counts: Counts::default(), failure: None });
    let threads = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut counts = Counts::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end.load(Ordering::Relaxed) {
                        break;
                    }
                    let (of_seed, violation) = run_caught(seed, setup);
                    counts.join(&of_seed);
                    if let Some(violation) = violation.filter(|violation| wanted(violation)) {
                        end.fetch_min(seed, Ordering::Relaxed);
                        let failure = &mut joined.lock().expect("no one panics in it").failure;
                        if failure.as_ref().is_none_or(|first| seed < first.seed) {
                            *failure = Some(Failure { seed, violation });
                        }
                    }
                }
                joined.lock().expect("no one panics in it").counts.join(&counts);
            });
        }
    });
    joined.into_inner().expect("no one panics in it")
}

/// A failed assertion of the rules themselves is a violation too.
fn run_caught(seed: u64, setup: Setup) -> (Counts, Option<Violation>) {
    match catch_unwind(AssertUnwindSafe(|| run(seed, setup, false))) {
        Ok(report) => (report.counts, report.violation),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let what = text.unwrap_or_else(|| "an assertion failed".into());
            (Counts::default(), Some(Violation { property: "assertion", what }))
        }
    }
}

/// The seed, what does not hold, the end of the story, and how to see it again.
pub fn report(failure: &Failure, setup: Setup) -> String {
    let told = catch_unwind(AssertUnwindSafe(|| run(failure.seed, setup, true).lines));
    let lines = told.unwrap_or_default();
    let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
    format!(
        "{last}\n\nseed {}: {}\nagain, with the whole trace: SIM_SEED={} SIM_WEATHER={:?} make sim\n",
        failure.seed, failure.violation, failure.seed, setup.weather
    )
}
