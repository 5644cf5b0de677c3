//! Lock cycles: each client takes and releases a resource of its own.

use std::time::Duration;

use serde::Serialize;

use super::load::{self, Client, Record, Span};
use super::target::Target;
use super::times::Percentiles;
use crate::client::Session;
use crate::clock::Moment;

/// How many clients.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// So many.
    pub clients: u16,
    /// Of which so many share one connection.
    pub share: u16,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Cycles {
    /// So many clients.
    pub clients: u16,
    /// Cycles that were acknowledged, both of their answers.
    pub per_second: f64,
    /// Of whole cycles.
    pub cycle: Percentiles,
    /// Of their acquires.
    pub acquire: Percentiles,
    /// Synced writes of the leader for each cycle.
    pub leader_syncs_per_cycle: f64,
    /// Synced writes of all nodes for each cycle.
    pub syncs_per_cycle: f64,
    /// Log entries for each cycle.
    pub entries_per_cycle: f64,
    /// Processor time of all nodes for each cycle, microseconds; 0 if they are not our
    /// own. It hardly depends on what else the machine does.
    pub processor_us_per_cycle: f64,
}

struct Cycler {
    session: Session,
    name: String,
}

impl Client for Cycler {
    async fn step(&mut self, record: &mut Record) -> anyhow::Result<()> {
        let began = Moment::now();
        let guard = self.session.try_acquire(&self.name).await?;
        record.part(began);
        guard.release().await?;
        record.steps(began, 1);
        Ok(())
    }
}

/// Measures.
///
/// # Errors
/// What a client meets.
pub async fn run(
    target: &mut Target,
    asked: Asked,
    ttl: Duration,
    span: Span,
) -> anyhow::Result<Cycles> {
    let Asked { clients, share } = asked;
    let sessions = target.sessions(clients, share, ttl).await?;
    let cyclers = sessions.into_iter().enumerate().map(|(number, session)| {
        let name = format!("bench/cycles/{number}");
        Cycler { session, name }
    });
    let what = format!("lock cycles, {clients} clients");
    let load = load::run(target, what, cyclers.collect(), span).await?;
    Ok(Cycles {
        clients,
        per_second: load.rate(),
        cycle: load.steps.percentiles(),
        acquire: load.parts.percentiles(),
        leader_syncs_per_cycle: load.per_step(load.done.leader_syncs),
        syncs_per_cycle: load.per_step(load.done.syncs),
        entries_per_cycle: load.per_step(load.done.leader_entries),
        processor_us_per_cycle: load.processor_us_per_step(),
    })
}
