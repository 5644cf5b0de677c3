//! Contended handoffs: many take turns at one resource.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::load::{self, Client, Record, Span};
use super::target::Target;
use super::times::Percentiles;
use crate::client::Session;
use crate::clock::Moment;

const NAME: &str = "bench/handoffs";

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Handoffs {
    /// So many clients took turns.
    pub waiters: u16,
    /// Grants, each after another's release.
    pub per_second: f64,
    /// From the sending of a release to the next owner's answer.
    pub handoff: Percentiles,
    /// From asking to being granted.
    pub wait: Percentiles,
}

struct Waiter {
    session: Session,
    /// When the owner began to release. There is one owner at a time.
    released: Arc<Mutex<Option<Moment>>>,
}

impl Client for Waiter {
    async fn step(&mut self, record: &mut Record) -> anyhow::Result<()> {
        let asked = Moment::now();
        let guard = self.session.acquire(NAME).await?;
        record.part(asked);
        let slot = || self.released.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(released) = slot().take() {
            record.steps(released, 1);
        }
        *slot() = Some(Moment::now());
        guard.release().await?;
        Ok(())
    }
}

/// Measures.
///
/// # Errors
/// What a client meets.
pub async fn run(
    target: &mut Target,
    waiters: u16,
    ttl: Duration,
    span: Span,
) -> anyhow::Result<Handoffs> {
    let released = Arc::new(Mutex::new(None));
    // Each on a connection of its own, as owners in different processes are.
    let sessions = target.sessions(waiters, 1, ttl).await?;
    let clients =
        sessions.into_iter().map(|session| Waiter { session, released: released.clone() });
    let what = format!("contended handoffs, {waiters} waiters");
    let load = load::run(target, what, clients.collect(), span).await?;
    Ok(Handoffs {
        waiters,
        per_second: load.rate(),
        handoff: load.steps.percentiles(),
        wait: load.parts.percentiles(),
    })
}
