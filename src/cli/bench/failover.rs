//! Failover: the leader is killed under light load, again and again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

use super::progress::Progress;
use crate::cli::local::{Leader, Nodes, PATIENCE, POLL};
use crate::client::{Client, Session};
use crate::clock::Moment;

/// Clients, each with a connection of its own.
const CLIENTS: usize = 4;
/// What each waits between two cycles.
const THINK: Duration = Duration::from_millis(2);
/// Before each kill, and after it once all clients go on.
const CALM: Duration = Duration::from_millis(500);

/// What came of it. Microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Failover {
    /// So many leaders were killed.
    pub kills: u32,
    /// The longest time between two acknowledged acquires around a kill, whoever's:
    /// half of the kills took no longer.
    pub gap_median_us: u64,
    /// And the worst of them.
    pub gap_worst_us: u64,
    /// The same, for the client that waited longest.
    pub client_gap_median_us: u64,
    /// And the worst of them.
    pub client_gap_worst_us: u64,
    /// From the kill until a node says that it leads: the median.
    pub elected_median_us: u64,
    /// And the worst.
    pub elected_worst_us: u64,
    /// Each kill's gap, in order.
    pub gaps_us: Vec<u64>,
}

/// When acquires were acknowledged, and to whom.
type Acknowledged = Arc<Mutex<Vec<(Moment, usize)>>>;

/// What one kill cost.
struct Gaps {
    any: Duration,
    client: Duration,
    elected: Duration,
}

/// Measures.
///
/// # Errors
/// A node does not come back, or a client does not go on.
pub async fn run(nodes: &mut Nodes, kills: u32, ttl: Duration) -> anyhow::Result<Failover> {
    let progress = Progress::begin(format!("failover, {kills} kills"));
    let acknowledged = Acknowledged::default();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let session = Client::connect(nodes.endpoints())?.session(ttl).await?;
        clients.spawn(cycle(session, number, acknowledged.clone()));
    }
    let mut found = Vec::new();
    for kill in 1..=kills {
        let old = nodes.leader_after(0).await?;
        tokio::time::sleep(CALM).await;
        lock(&acknowledged).clear();
        tokio::time::sleep(CALM).await;
        let killed = Moment::now();
        nodes.kill(old.node);
        let new = nodes.leader_after(old.term).await?;
        let elected = Moment::now().since(killed);
        all_go_on(&acknowledged, &mut clients).await?;
        tokio::time::sleep(CALM).await;
        let gaps = gaps(&lock(&acknowledged), killed, elected);
        progress.at(&format!("{kill} of {kills}, the last took {} ms", gaps.any.as_millis()));
        found.push(gaps);
        nodes.run(old.node)?;
        follows(nodes, old.node, new).await?;
    }
    let sorted = |of: fn(&Gaps) -> Duration| {
        let mut times: Vec<u64> = found.iter().map(|gaps| micros(of(gaps))).collect();
        times.sort_unstable();
        times
    };
    let median_and_worst = |times: &[u64]| (times[times.len() / 2], times[times.len() - 1]);
    let (gap_median_us, gap_worst_us) = median_and_worst(&sorted(|gaps| gaps.any));
    let (client_gap_median_us, client_gap_worst_us) = median_and_worst(&sorted(|gaps| gaps.client));
    let (elected_median_us, elected_worst_us) = median_and_worst(&sorted(|gaps| gaps.elected));
    let gaps_us = found.iter().map(|gaps| micros(gaps.any)).collect();
    Ok(Failover {
        kills,
        gap_median_us,
        gap_worst_us,
        client_gap_median_us,
        client_gap_worst_us,
        elected_median_us,
        elected_worst_us,
        gaps_us,
    })
}

/// A client that is never in a hurry.
async fn cycle(session: Session, number: usize, acknowledged: Acknowledged) -> anyhow::Result<()> {
    let name = format!("bench/failover/{number}");
    loop {
        // A try could meet its own late grant: a wait does not.
        let guard = session.acquire(&name).wait(PATIENCE).await?;
        lock(&acknowledged).push((Moment::now(), number));
        guard.release().await?;
        tokio::time::sleep(THINK).await;
    }
}

/// Waits until each client has been acknowledged by the new leader.
async fn all_go_on(
    acknowledged: &Acknowledged,
    clients: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let since = Moment::now();
    let until = since.plus(PATIENCE);
    loop {
        if let Some(ended) = clients.try_join_next() {
            return ended?;
        }
        let goes_on = |number| {
            let later = |(at, by): &(Moment, usize)| *by == number && *at > since;
            lock(acknowledged).iter().any(later)
        };
        if (0..CLIENTS).all(goes_on) {
            return Ok(());
        }
        anyhow::ensure!(Moment::now() < until, "a client does not go on after the failover");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until the node has caught up: the next kill needs it.
async fn follows(nodes: &mut Nodes, node: u64, leader: Leader) -> anyhow::Result<()> {
    let until = Moment::now().plus(PATIENCE);
    let wanted = nodes.status(leader.node).await?.committed;
    loop {
        if let Ok(status) = nodes.status(node).await
            && status.role == "follower"
            && status.applied >= wanted
        {
            return Ok(());
        }
        anyhow::ensure!(Moment::now() < until, "node {node} does not catch up");
        tokio::time::sleep(POLL).await;
    }
}

/// The longest silences that reach beyond the kill.
fn gaps(acknowledged: &[(Moment, usize)], killed: Moment, elected: Duration) -> Gaps {
    let longest = |times: Vec<Moment>| {
        let pairs = times.windows(2).filter(|pair| pair[1] > killed);
        pairs.map(|pair| pair[1].since(pair[0])).max().unwrap_or_default()
    };
    let of = |number| {
        let own = acknowledged.iter().filter(|(_, by)| *by == number);
        longest(own.map(|(at, _)| *at).collect())
    };
    let any = longest(acknowledged.iter().map(|(at, _)| *at).collect());
    Gaps { any, client: (0..CLIENTS).map(of).max().unwrap_or_default(), elected }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_the_longest_silence_that_reaches_beyond_the_kill() {
        let at = |ms| Moment::default().plus(Duration::from_millis(ms));
        let acknowledged =
            [(at(0), 0), (at(400), 1), (at(410), 0), (at(600), 1), (at(610), 1), (at(700), 0)];
        let gaps = gaps(&acknowledged, at(500), Duration::ZERO);
        // The 400 ms before are no failover; client 0 waited from 410 to 700.
        assert_eq!(gaps.any, Duration::from_millis(190));
        assert_eq!(gaps.client, Duration::from_millis(290));
    }
}
