//! A closed loop: each client does one step after the other, all clients side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::progress::Progress;
use super::target::{Done, Target};
use super::times::Times;
use crate::clock::Moment;

/// How long.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Before anything is counted.
    pub warm_up: Duration,
    /// While it is.
    pub seconds: u64,
}

/// One client of the loop.
pub trait Client: Send + 'static {
    /// Does one step and records what of it is measured.
    fn step(&mut self, record: &mut Record) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// What one client has measured. Only what begins and ends while the span is measured
/// counts.
#[derive(Debug)]
pub struct Record {
    from: Moment,
    to: Moment,
    /// Whole steps.
    pub steps: Times,
    /// Their first parts.
    pub parts: Times,
    seen: Arc<AtomicU64>,
}

impl Record {
    fn counts(&self, began: Moment, ended: Moment) -> bool {
        self.from <= began && ended <= self.to
    }

    /// So many steps took from `began` until now.
    pub fn steps(&mut self, began: Moment, count: u64) {
        let now = Moment::now();
        self.seen.fetch_add(count, Ordering::Relaxed);
        if self.counts(began, now) {
            self.steps.add_many(now.since(began), count);
        }
    }

    /// The first part of a step took from `began` until now.
    pub fn part(&mut self, began: Moment) {
        let now = Moment::now();
        if self.counts(began, now) {
            self.parts.add(now.since(began));
        }
    }
}

/// What all clients have measured.
#[derive(Debug)]
pub struct Load {
    /// Whole steps.
    pub steps: Times,
    /// Their first parts.
    pub parts: Times,
    /// What the nodes did meanwhile.
    pub done: Done,
    /// How long it was measured.
    pub took: Duration,
}

impl Load {
    /// Steps per second.
    pub fn rate(&self) -> f64 {
        self.steps.count() as f64 / self.took.as_secs_f64()
    }

    /// Processor time of the nodes for each step, in microseconds.
    pub fn processor_us_per_step(&self) -> f64 {
        self.done.processor.as_secs_f64() * 1e6 / self.steps.count().max(1) as f64
    }

    /// So much for each step.
    pub fn per_step(&self, count: u64) -> f64 {
        count as f64 / self.steps.count().max(1) as f64
    }
}

/// Runs all clients for the span.
///
/// # Errors
/// The first that a client meets.
pub async fn run<C: Client>(
    target: &Target,
    what: String,
    clients: Vec<C>,
    span: Span,
) -> anyhow::Result<Load> {
    let progress = Progress::begin(what);
    let seen = Arc::new(AtomicU64::new(0));
    let took = Duration::from_secs(span.seconds);
    let from = Moment::now().plus(span.warm_up);
    let to = from.plus(took);
    let mut running = JoinSet::new();
    for client in clients {
        let (steps, parts) = (Times::new(), Times::new());
        running.spawn(client_loop(client, Record { from, to, steps, parts, seen: seen.clone() }));
    }
    tokio::time::sleep(from.since(Moment::now())).await;
    let before = target.done().await?;
    for second in 1..=span.seconds {
        let at = from.plus(Duration::from_secs(second));
        tokio::time::sleep(at.since(Moment::now())).await;
        let done = seen.load(Ordering::Relaxed);
        progress.at(&format!("{second} s of {} s, {done} done", span.seconds));
    }
    let done = target.done().await?.since(before);
    let mut load = Load { steps: Times::new(), parts: Times::new(), done, took };
    while let Some(ended) = running.join_next().await {
        let record = ended??;
        load.steps.add_all(&record.steps);
        load.parts.add_all(&record.parts);
    }
    Ok(load)
}

async fn client_loop<C: Client>(mut client: C, mut record: Record) -> anyhow::Result<Record> {
    while Moment::now() < record.to {
        client.step(&mut record).await?;
    }
    Ok(record)
}
