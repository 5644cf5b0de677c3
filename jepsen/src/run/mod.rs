//! One run: a cluster, its clients and a destination, faults, the end, the files, the verdict.

pub mod book;
mod finish;
mod options;
pub mod soak;
mod stage;
pub mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use crate::check::Valid;
use crate::nemesis::{self, Fault, Nemesis};
use crate::workload;

pub use options::Options;
use stage::Stage;

/// How long clients go on after the last fault.
const HEALED: Duration = Duration::from_secs(4);
/// How often it is said how far the run is.
const PROGRESS: Duration = Duration::from_secs(5);

/// How faults are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Each once, in the order of the script.
    Script,
    /// At random, two at a time.
    Random,
}

/// A run, and what the program exits with.
///
/// # Errors
/// The harness failed: nothing can be said.
pub fn run(options: &Options) -> Result<ExitCode> {
    let (valid, _) = once(options, Choice::Script)?;
    Ok(verdict::code(valid))
}

/// One run: its verdict and its folder.
///
/// # Errors
/// As [`run`].
pub fn once(options: &Options, choice: Choice) -> Result<(Valid, PathBuf)> {
    let kinds = workload::of(&options.only)?;
    let faults = nemesis::of(&options.nemesis)?;
    let folder = options.folder()?;
    println!("run: seed {}, {} s, in {}", options.seed, options.time.as_secs(), folder.display());
    for (name, why) in workload::ABSENT {
        println!("  absent: {name}: {why}");
    }
    options.write_test(&folder, &kinds, &faults, choice)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("agents")
        .enable_all()
        .build()
        .context("cannot start the runtime of the clients")?;

    let stage = Stage::set(options, &folder)?;
    let result = drive(&runtime, &stage, options, &kinds, &faults, choice);
    if let Err(error) = &result {
        println!("  the harness failed: {error:#}");
        stage.world.book.mark("harness-failure", json!({"error": format!("{error:#}")}))?;
    }
    stage.end();
    runtime.shutdown_timeout(Duration::from_secs(1));
    stage.take_down();
    crate::history::export(&folder)?;
    Ok((verdict::verdict(&folder)?, folder))
}

fn drive(
    runtime: &tokio::runtime::Runtime,
    stage: &Stage,
    options: &Options,
    kinds: &[workload::Kind],
    faults: &[Fault],
    choice: Choice,
) -> Result<()> {
    stage.agreed(Duration::from_secs(20)).context("the cluster did not come up")?;
    println!("  the cluster is up after {:.1} s", stage.world.book.now() as f64 / 1e9);
    let mut agents = Vec::new();
    let mut seed = options.seed.wrapping_mul(1_000_003);
    for kind in kinds {
        for number in 0..kind.agents {
            seed = seed.wrapping_add(1);
            let client = &stage.clients[agents.len() % stage.clients.len()];
            let agent = workload::Agent::new(&stage.world, client, seed);
            agents.push(runtime.spawn(workload::work(*kind, number, agent)));
        }
    }
    let ended = std::thread::scope(|scope| {
        let done = std::sync::atomic::AtomicBool::new(false);
        let done = &Arc::new(done);
        let told = Arc::clone(done);
        scope.spawn(move || progress(stage, &told));
        let ended = torment(stage, options, faults, choice);
        done.store(true, Ordering::SeqCst);
        ended
    });
    ended?;
    stage.heal()?;
    stage.world.book.mark(crate::check::load::HEALED, json!({}))?;
    println!("  healed; clients go on for {} s", HEALED.as_secs());
    std::thread::sleep(HEALED);
    stage.world.stop.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        for agent in agents {
            let ended = tokio::time::timeout(Duration::from_secs(30), agent).await;
            ended.context("a client has not ended")?.context("a client panicked")?;
        }
        anyhow::Ok(())
    })?;
    runtime.block_on(finish::acquire_all(stage, options.seed))?;
    stage.agreed(Duration::from_secs(20)).context("the nodes do not agree in the end")?;
    stage.feed_complete(Duration::from_secs(10))?;
    match stage.clients.iter().find_map(|client| client.failure()) {
        Some(failure) => anyhow::bail!("the history broke a rule: {failure}"),
        None => Ok(()),
    }
}

/// Faults for the time of the run.
fn torment(stage: &Stage, options: &Options, faults: &[Fault], choice: Choice) -> Result<()> {
    let begun = Instant::now();
    let mut nemesis = stage.nemesis(options.seed ^ 0x6e65_6d65);
    // What clients do before the first fault.
    let calm = Duration::from_secs(2).min(options.time);
    std::thread::sleep(calm);
    let time = options.time.saturating_sub(begun.elapsed());
    match choice {
        Choice::Script => {
            for left in nemesis.script(faults, time)? {
                println!("  there was no time for the fault {left}");
                stage.world.book.mark(left, json!({"outcome": "skipped"}))?;
            }
            Ok(())
        }
        Choice::Random => twofold(stage, nemesis, faults, time, options.seed),
    }
}

/// Two at a time, each with dice of its own; one of them makes faults of links and clients only.
fn twofold(
    stage: &Stage,
    mut nemesis: Nemesis,
    faults: &[Fault],
    time: Duration,
    seed: u64,
) -> Result<()> {
    let (own, other): (Vec<Fault>, Vec<Fault>) =
        faults.iter().copied().partition(|fault| !fault.of_clients());
    let mut second = stage.nemesis(seed ^ 0x7365_636f);
    std::thread::scope(|scope| {
        let beside = scope.spawn(move || second.random(&other, time));
        nemesis.random(&own, time)?;
        beside.join().map_err(|_| anyhow::anyhow!("the second nemesis panicked"))?
    })
}

fn progress(stage: &Stage, done: &std::sync::atomic::AtomicBool) {
    let mut next = Instant::now() + PROGRESS;
    while !done.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(100));
        if Instant::now() >= next {
            next += PROGRESS;
            println!("  {}", stage.in_words());
        }
    }
}
