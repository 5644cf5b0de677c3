//! The faults. Each acts for its time; taking back is [`crate::cluster::Cluster::heal`]'s.

use std::fs;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use rand::RngExt;
use serde_json::json;

use super::{Nemesis, Outcome};
use crate::means::disk::damage;
use crate::means::net::Rule;
use crate::means::shim::DiskError;
use crate::means::starve::Starved;

impl Nemesis {
    /// The place of the node that leads, or of any.
    fn leader(&mut self) -> usize {
        let count = self.cluster().nodes.len();
        let any = self.rng.random_range(0..count);
        match self.view.leader() {
            Some(name) => self.cluster().place(&name).unwrap_or(any),
            None => any,
        }
    }

    /// So many places, none of them twice, the given one first.
    fn with(&mut self, first: usize, count: usize) -> Vec<usize> {
        let mut others: Vec<usize> = (0..self.cluster().nodes.len()).collect();
        others.retain(|at| *at != first);
        let mut chosen = vec![first];
        while chosen.len() < count && !others.is_empty() {
            let at = self.rng.random_range(0..others.len());
            chosen.push(others.swap_remove(at));
        }
        chosen
    }

    fn names(&self, of: &[usize]) -> Vec<String> {
        let cluster = self.cluster();
        of.iter().map(|at| cluster.nodes[*at].name.clone()).collect()
    }

    /// Everybody that is not of these: nodes and clients.
    fn others(&self, than: &[String]) -> Vec<String> {
        let cluster = self.cluster();
        let nodes = cluster.nodes.iter().map(|node| node.name.clone());
        nodes.filter(|name| !than.contains(name)).collect()
    }

    /// What `of` has counted over the links between these.
    fn counted(
        &self,
        from: &[String],
        to: &[String],
        of: impl Fn(&crate::means::net::Counts) -> u64,
    ) -> Result<u64> {
        let network = self.cluster().network.clone();
        let mut sum = 0;
        for (one, two) in from.iter().flat_map(|one| to.iter().map(move |two| (one, two))) {
            if one != two {
                sum += of(&network.counts(one, two)?);
            }
        }
        Ok(sum)
    }

    fn last(&self, ms: u64) {
        self.rest(Duration::from_millis(ms));
    }
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// The leader and perhaps one more on one side, the majority on the other.
pub(super) fn partition_leader(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let count = nemesis.rng.random_range(1..=2);
    let minority = nemesis.with(leader, count);
    let side = nemesis.names(&minority);
    let others = nemesis.others(&side);
    let before = nemesis.counted(&side, &others, |counts| counts.cut)?;
    let network = nemesis.cluster().network.clone();
    network.set_between(&refs(&side), &refs(&others), Rule::cut())?;
    nemesis.last(ms);
    let cut = nemesis.counted(&side, &others, |counts| counts.cut)? - before;
    Ok(Outcome::acted(cut > 0, json!({"alone": side, "frames_cut": cut})))
}

/// The leader hears nobody, or nobody hears it.
pub(super) fn one_way(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let side = nemesis.names(&[leader]);
    let others = nemesis.others(&side);
    let deaf = nemesis.rng.random::<bool>();
    let (from, to) = if deaf { (&others, &side) } else { (&side, &others) };
    let before = nemesis.counted(from, to, |counts| counts.cut)?;
    let network = nemesis.cluster().network.clone();
    for (one, two) in from.iter().flat_map(|one| to.iter().map(move |two| (one, two))) {
        network.set(one, two, Rule::cut())?;
    }
    nemesis.last(ms);
    let cut = nemesis.counted(from, to, |counts| counts.cut)? - before;
    let what = json!({"leader": side, "hears_nobody": deaf, "frames_cut": cut});
    Ok(Outcome::acted(cut > 0, what))
}

/// Clients are heard by the nodes, and hear nothing.
pub(super) fn reply_cut(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let nodes = nemesis.with(leader, 2);
    let from = nemesis.names(&nodes);
    let clients: Vec<String> = nemesis.clients.iter().map(|client| client.name.clone()).collect();
    let before = nemesis.counted(&from, &clients, |counts| counts.cut)?;
    let network = nemesis.cluster().network.clone();
    for (one, two) in from.iter().flat_map(|one| clients.iter().map(move |two| (one, two))) {
        network.set(one, two, Rule::cut())?;
    }
    nemesis.last(ms);
    for (one, two) in from.iter().flat_map(|one| clients.iter().map(move |two| (one, two))) {
        network.set(one, two, Rule::default())?;
    }
    let cut = nemesis.counted(&from, &clients, |counts| counts.cut)? - before;
    Ok(Outcome::acted(cut > 0, json!({"mute_to_clients": from, "frames_cut": cut})))
}

/// Loss, delay, jitter, doubles, overtaking and flipped bits between all nodes.
pub(super) fn loss_delay(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let nodes = nemesis.others(&[]);
    let rng = &mut nemesis.rng;
    let rule = Rule {
        delay: Duration::from_millis(rng.random_range(5..60)),
        jitter: Duration::from_millis(rng.random_range(0..40)),
        loss: rng.random_range(0.01..0.15),
        duplicate: 0.05,
        reorder: 0.05,
        hold: Duration::from_millis(20),
        corrupt: 0.01,
        cut: false,
    };
    let count = |nemesis: &Nemesis| -> Result<[u64; 3]> {
        Ok([
            nemesis.counted(&nodes, &nodes, |counts| counts.lost)?,
            nemesis.counted(&nodes, &nodes, |counts| counts.delayed)?,
            nemesis.counted(&nodes, &nodes, |counts| counts.overtaken)?,
        ])
    };
    let before = count(nemesis)?;
    let network = nemesis.cluster().network.clone();
    network.set_between(&refs(&nodes), &refs(&nodes), rule)?;
    nemesis.last(ms);
    let after = count(nemesis)?;
    let [lost, delayed, overtaken] =
        [0, 1, 2].map(|at: usize| after[at].saturating_sub(before[at]));
    let what = json!({
        "lost": lost, "delayed": delayed, "overtaken": overtaken,
        "rule": format!("{rule:?}"),
    });
    Ok(Outcome::acted(lost > 0 && delayed > 0, what))
}

/// The leader stands still, for longer than an election and than a lease.
pub(super) fn pause_leader(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let names = nemesis.names(&[leader]);
    nemesis.cluster().process(leader)?.pause()?;
    nemesis.last(ms);
    let mut cluster = nemesis.cluster();
    let paused = cluster.process(leader)?.is_paused();
    cluster.process(leader)?.resume()?;
    Ok(Outcome::acted(paused, json!({"paused": names})))
}

/// A client process stands still with whatever it has under way.
pub(super) fn pause_client(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let mut paused = Vec::new();
    let mut outstanding = 0;
    let count = nemesis.clients.len().div_ceil(2);
    let odd = nemesis.rng.random_range(0..2);
    for at in 0..count {
        let client = &nemesis.clients[(at * 2 + odd) % nemesis.clients.len()];
        client.pause()?;
        paused.push(client.name.clone());
        outstanding += client.outstanding();
    }
    nemesis.last(ms);
    for client in nemesis.clients.iter().filter(|client| paused.contains(&client.name)) {
        client.resume()?;
    }
    let what = json!({"paused": paused, "outstanding": outstanding});
    Ok(Outcome::acted(outstanding > 0, what))
}

/// A client process dies and a new one takes its place.
pub(super) fn kill_client(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let at = nemesis.rng.random_range(0..nemesis.clients.len());
    let client = nemesis.clients[at].clone();
    let outstanding = client.outstanding();
    client.kill()?;
    nemesis.last(ms);
    client.restart()?;
    let what = json!({"killed": client.name, "outstanding": outstanding});
    Ok(Outcome::acted(true, what))
}

/// The leader's process dies; the kernel keeps what it wrote.
pub(super) fn kill_leader(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let names = nemesis.names(&[leader]);
    nemesis.cluster().kill(leader)?;
    nemesis.last(ms);
    Ok(Outcome::acted(true, json!({"killed": names})))
}

/// The leader dies; as soon as there is another, it and as many as make a majority lose power.
pub(super) fn power_cut_voters(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let first = nemesis.leader();
    let dead = nemesis.names(&[first]);
    nemesis.cluster().kill(first)?;
    for _ in 0..60 {
        nemesis.last(50);
        if nemesis.view.leader().is_some_and(|name| !dead.contains(&name)) {
            break;
        }
    }
    let second = nemesis.leader();
    let majority = nemesis.cluster().nodes.len() / 2 + 1;
    let mut cut = nemesis.with(second, majority);
    cut.retain(|at| *at != first);
    let names = nemesis.names(&cut);
    nemesis.cluster().power_cut(&cut)?;
    nemesis.last(ms);
    Ok(Outcome::acted(true, json!({"killed": dead, "power_cut": names})))
}

/// Every node loses power at once.
pub(super) fn power_cut_all(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let all: Vec<usize> = (0..nemesis.cluster().nodes.len()).collect();
    let names = nemesis.names(&all);
    nemesis.cluster().power_cut(&all)?;
    nemesis.last(ms);
    Ok(Outcome::acted(true, json!({"power_cut": names})))
}

/// Syncs of the leader take long.
pub(super) fn fsync_stall(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let names = nemesis.names(&[leader]);
    let delay = nemesis.rng.random_range(200..2_000);
    let before = nemesis.cluster().nodes[leader].shim.counts().syncs_delayed;
    nemesis.cluster().nodes[leader].shim.delay_syncs(Duration::from_millis(delay));
    nemesis.last(ms);
    let after = nemesis.cluster().nodes[leader].shim.counts().syncs_delayed;
    let what = json!({"stalled": names, "by_ms": delay, "syncs": after - before});
    Ok(Outcome::acted(after > before, what))
}

/// The wall clock steps, and the monotonic one runs a little faster, within the contract.
pub(super) fn clock(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let places = nemesis.with(leader, 3);
    let names = nemesis.names(&places);
    let mut set = Vec::new();
    let before: i64 =
        places.iter().map(|at| nemesis.cluster().nodes[*at].shim.counts().clock_reads).sum();
    for at in &places {
        let hours = if nemesis.rng.random::<bool>() { 1 } else { -1 };
        // The client allows for 10,000 parts in a million.
        let ppm = nemesis.rng.random_range(-4_000..=4_000);
        let cluster = nemesis.cluster();
        cluster.nodes[*at].shim.set_wall_offset_ns(hours * 3_600_000_000_000);
        cluster.nodes[*at].shim.set_rate_ppm(ppm);
        set.push(json!({"wall_hours": hours, "rate_ppm": ppm}));
    }
    nemesis.last(ms);
    let after: i64 =
        places.iter().map(|at| nemesis.cluster().nodes[*at].shim.counts().clock_reads).sum();
    let what = json!({"nodes": names, "clocks": set, "reads": after - before});
    Ok(Outcome::acted(after > before, what))
}

/// A node's disk is full.
pub(super) fn enospc(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    disk_error(nemesis, ms, DiskError::NoSpace)
}

/// A node's disk is broken.
pub(super) fn eio(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    disk_error(nemesis, ms, DiskError::Io)
}

/// The node must not go on: it ends, or serves nothing; it is started again on a sound disk.
fn disk_error(nemesis: &mut Nemesis, ms: u64, error: DiskError) -> Result<Outcome> {
    let leader = nemesis.leader();
    let names = nemesis.names(&[leader]);
    let before = nemesis.cluster().nodes[leader].shim.counts();
    {
        let cluster = nemesis.cluster();
        let shim = &cluster.nodes[leader].shim;
        match error {
            DiskError::Io => shim.fail_syncs(Some(error)),
            DiskError::NoSpace => shim.fail_writes(Some(error)),
        }
    }
    nemesis.last(ms);
    let mut cluster = nemesis.cluster();
    let after = cluster.nodes[leader].shim.counts();
    let failed = after.syncs_failed + after.writes_failed;
    let failed = failed - before.syncs_failed - before.writes_failed;
    let ended = !cluster.runs(leader)?;
    cluster.nodes[leader].shim.heal();
    cluster.kill(leader)?;
    let what = json!({"node": names, "calls_failed": failed, "ended_by_itself": ended});
    Ok(Outcome::acted(failed > 0, what))
}

/// A follower crashes while it writes: its newest write-ahead log ends in the beginning of a
/// record. Nothing that it had synced is taken: no disk of the contract loses that.
pub(super) fn torn_wal(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let places = nemesis.with(leader, 2);
    let Some(&follower) = places.get(1) else {
        return Ok(Outcome::skipped("there is no follower"));
    };
    let names = nemesis.names(&[follower]);
    let bytes = nemesis.rng.random_range(1..=12);
    let folder = {
        let mut cluster = nemesis.cluster();
        cluster.kill(follower)?;
        cluster.nodes[follower].volume.folder().join("node")
    };
    let path = damage::newest(&folder, ".log").context("no write-ahead log")?;
    let log = fs::read(&path)?;
    let outcome = if log.len() <= bytes {
        Outcome::skipped("the newest write-ahead log is empty")
    } else {
        let mut file = fs::File::options().append(true).open(&path)?;
        file.write_all(&log[..bytes])?;
        file.sync_all()?;
        Outcome::acted(true, json!({"node": names, "at": log.len(), "bytes": bytes}))
    };
    nemesis.last(ms);
    Ok(outcome)
}

/// The leader gets a fraction of a core.
pub(super) fn starve(nemesis: &mut Nemesis, ms: u64) -> Result<Outcome> {
    let leader = nemesis.leader();
    let names = nemesis.names(&[leader]);
    let percent = nemesis.rng.random_range(4..12);
    let run = nemesis.run.clone();
    let starved = Starved::start(&run, nemesis.cluster().process(leader)?, percent)?;
    nemesis.last(ms);
    let throttled = starved.throttled();
    let what = json!({"node": names, "percent": percent, "throttled": throttled});
    Ok(Outcome::acted(throttled != Some(0), what))
}
