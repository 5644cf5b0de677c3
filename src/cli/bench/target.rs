//! The cluster that is measured.

use std::time::Duration;

use anyhow::Context;

use super::Args;
use crate::cli::connect::Connection;
use crate::cli::local::{Folder, Nodes, PATIENCE, POLL};
use crate::client::{Client, Session};
use crate::clock::Moment;
use crate::wire::v1;

/// A cluster, and the folder of one that is our own.
#[derive(Debug)]
pub struct Target {
    endpoints: Vec<String>,
    client: Client,
    // Before the folder: nodes are stopped before their data is removed.
    nodes: Option<Nodes>,
    _folder: Option<Folder>,
}

/// What the nodes have done so far, all together and the leader alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// Synced writes of all nodes.
    pub syncs: u64,
    /// Synced writes of the leader.
    pub leader_syncs: u64,
    /// Log entries written by the leader.
    pub leader_entries: u64,
    /// Rounds in which the leader asked for a majority.
    pub leader_rounds: u64,
    /// Processor time of all nodes, if they are our own.
    pub processor: Duration,
}

impl Done {
    /// What has been done since.
    pub const fn since(self, before: Self) -> Self {
        Self {
            syncs: self.syncs.saturating_sub(before.syncs),
            leader_syncs: self.leader_syncs.saturating_sub(before.leader_syncs),
            leader_entries: self.leader_entries.saturating_sub(before.leader_entries),
            leader_rounds: self.leader_rounds.saturating_sub(before.leader_rounds),
            processor: self.processor.saturating_sub(before.processor),
        }
    }
}

impl Target {
    /// Starts a cluster, or finds the one that is there.
    ///
    /// # Errors
    /// There is none that answers.
    pub async fn of(to: &Connection, args: &Args) -> anyhow::Result<Self> {
        if args.external {
            let client = to.client().map_err(anyhow::Error::new)?;
            let endpoints = to.endpoints.clone();
            let target = Self { endpoints, client, nodes: None, _folder: None };
            target.leader().await?;
            return Ok(target);
        }
        let folder = match &args.data {
            Some(within) => Folder::create_in(within, "bench")?,
            None => Folder::create("bench")?,
        };
        let mut nodes = Nodes::start(folder.path(), args.nodes, args.port)?;
        nodes.leader_after(0).await?;
        let endpoints = nodes.endpoints();
        let client = Client::connect(&endpoints)?;
        Ok(Self { endpoints, client, nodes: Some(nodes), _folder: Some(folder) })
    }

    /// The own cluster.
    ///
    /// # Errors
    /// It is somebody else's.
    pub fn own(&mut self) -> anyhow::Result<&mut Nodes> {
        self.nodes.as_mut().context("not a cluster of our own")
    }

    /// Sessions of so many clients, `share` of which share one connection.
    ///
    /// # Errors
    /// One could not be opened.
    pub async fn sessions(
        &self,
        count: u16,
        share: u16,
        ttl: Duration,
    ) -> anyhow::Result<Vec<Session>> {
        let mut sessions = Vec::new();
        let mut client = Client::connect(&self.endpoints)?;
        for number in 0..count {
            if number > 0 && number % share == 0 {
                client = Client::connect(&self.endpoints)?;
            }
            sessions.push(client.session(ttl).purpose("bench").await?);
        }
        Ok(sessions)
    }

    /// What the leader says of itself.
    ///
    /// # Errors
    /// No node says that it leads.
    pub async fn leader(&self) -> anyhow::Result<v1::StatusResponse> {
        let answers = self.client.status().await;
        let mut leaders = answers.into_iter().filter_map(|(_, answer)| answer.ok());
        let leader = leaders.find(|status| status.role == "leader");
        leader.with_context(|| format!("no node leads at {}", self.endpoints.join(",")))
    }

    /// What the nodes have done so far.
    ///
    /// # Errors
    /// None leads, or one of our own does not answer.
    pub async fn done(&self) -> anyhow::Result<Done> {
        let until = Moment::now().plus(PATIENCE);
        loop {
            let processor = self.nodes.as_ref().map_or(Duration::ZERO, Nodes::processor_time);
            let mut done = Done { processor, ..Done::default() };
            let answers = self.client.status().await;
            // One that is too busy to answer would count as one that has done nothing.
            let complete = self.nodes.is_none() || answers.iter().all(|(_, a)| a.is_ok());
            let mut led = false;
            for status in answers.into_iter().filter_map(|(_, answer)| answer.ok()) {
                done.syncs += status.synced_writes;
                if status.role == "leader" {
                    led = true;
                    done.leader_syncs = status.synced_writes;
                    done.leader_entries = status.written_entries;
                    done.leader_rounds = status.confirm_rounds;
                }
            }
            if complete && led {
                return Ok(done);
            }
            anyhow::ensure!(Moment::now() < until, "a node does not say what it has done");
            tokio::time::sleep(POLL).await;
        }
    }
}
