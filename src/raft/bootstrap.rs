//! Static bootstrap: N nodes are started with the same member list, and become one
//! cluster without anybody's further word.
//!
//! The node with the lowest number first hears from all others that they are fresh
//! or its own; then draws the cluster's id, stores it, and invites them. Each
//! stores the id before it answers. When all have, it writes the first membership,
//! which names every node's incarnation. Any of them may crash at any point and
//! start over: what was stored is kept, and every step can be repeated.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::config::Timing;
use super::identity::{Folder, Home, Identity};
use super::network::envelope::identity;
use super::network::link::{Lane, endpoint};
use super::replica::Replica;
use crate::clock;
use crate::locks::ClusterId;
use crate::raft_types::Member;
use crate::wire::peer::peer_client::PeerClient;
use crate::wire::peer::{HelloRequest, HelloResponse};

const ASK_AGAIN: Duration = Duration::from_millis(250);
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Why a cluster was not formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// The list does not name this node.
    #[error("node {0} is not in the member list")]
    NotListed(u64),
    /// The folder is new, but the cluster knows this node with another.
    #[error(
        "node {node} starts on {present}, but node {by} has it recorded with {recorded}: its \
         folder was wiped or replaced. It could vote twice, so it must be removed from the \
         cluster and added anew under a new number",
        present = Folder(present), recorded = Folder(recorded)
    )]
    Wiped {
        /// This node.
        node: u64,
        /// Its incarnation now.
        present: [u8; 16],
        /// As the cluster has it.
        recorded: [u8; 16],
        /// Who says so.
        by: u64,
    },
    /// The others are a cluster without this node.
    #[error("node {by} belongs to cluster {cluster}, which does not know node {node}")]
    NotAMember {
        /// This node.
        node: u64,
        /// Their cluster.
        cluster: ClusterId,
        /// Who says so.
        by: u64,
    },
    /// A node of the list belongs elsewhere.
    #[error(
        "node {by} at {address} belongs to cluster {theirs} and this node to {}: one of the two \
         has another cluster's or an old data folder; check --data and --members",
        ours.map_or("none".to_owned(), |c| c.to_string())
    )]
    OtherCluster {
        /// Who.
        by: u64,
        /// Where.
        address: String,
        /// Its cluster.
        theirs: ClusterId,
        /// This node's.
        ours: Option<ClusterId>,
    },
    /// The list and the world differ.
    #[error("at {address} lives node {found}, not node {listed}: check the member list")]
    OtherNode {
        /// The address of the list.
        address: String,
        /// The node that the list has there.
        listed: u64,
        /// The node that is there.
        found: u64,
    },
    /// The other side refuses.
    #[error("node {by} at {address} refuses: {why}")]
    Refused {
        /// Who.
        by: u64,
        /// Where.
        address: String,
        /// In its words.
        why: String,
    },
    /// An answer that makes no sense.
    #[error("node {by} at {address} gives an unreadable answer")]
    Unreadable {
        /// Who.
        by: u64,
        /// Where.
        address: String,
    },
    /// This node's own disk or replica failed.
    #[error("{0}")]
    Broken(String),
}

/// One node's part in forming the cluster.
pub struct Bootstrap {
    /// This node's folder.
    pub home: Arc<dyn Home>,
    /// All members, id to address; the same on every node.
    pub members: BTreeMap<u64, String>,
    /// How patient the transport is.
    pub timing: Timing,
    /// As in [`super::Parts::bind`].
    pub bind: Option<IpAddr>,
}

impl Bootstrap {
    /// Returns the cluster's id as soon as this node is a member. It waits for the
    /// others as long as it takes, and says so every few seconds.
    ///
    /// # Errors
    /// What waiting cannot mend: see [`BootstrapError`].
    pub async fn run(&self, replica: &Replica) -> Result<ClusterId, BootstrapError> {
        let me = self.home.identity();
        if !self.members.contains_key(&me.node) {
            return Err(BootstrapError::NotListed(me.node));
        }
        let initialized = replica.control().is_initialized().await;
        if let (true, Some(cluster)) =
            (initialized.map_err(BootstrapError::Broken)?, self.home.cluster())
        {
            return Ok(cluster);
        }
        if self.members.keys().next() == Some(&me.node) {
            self.form(replica).await
        } else {
            self.wait_for_invitation(replica).await
        }
    }

    /// The lowest node's part.
    async fn form(&self, replica: &Replica) -> Result<ClusterId, BootstrapError> {
        self.meet_all(None).await?;
        let cluster = self.home.cluster().unwrap_or_else(|| ClusterId::new(rand::random()));
        let adopted = self.home.adopt_cluster(cluster).await;
        adopted.map_err(|e| BootstrapError::Broken(format!("the cluster id: {e}")))?;
        let incarnations = self.meet_all(Some(cluster)).await?;
        let member = |(node, address): (&u64, &String)| {
            let incarnation = incarnations.get(node).copied()?;
            Some((*node, Member { address: address.clone(), incarnation }))
        };
        let members = self.members.iter().filter_map(member).collect();
        replica.control().initialize(members).await.map_err(BootstrapError::Broken)?;
        tracing::info!("formed cluster {cluster} of {} nodes", self.members.len());
        Ok(cluster)
    }

    /// Speaks to every other node until all have answered; with `invitation`, until
    /// all have joined it. Answers everyone's incarnation.
    async fn meet_all(
        &self,
        invitation: Option<ClusterId>,
    ) -> Result<BTreeMap<u64, [u8; 16]>, BootstrapError> {
        let me = self.home.identity();
        let mut met = BTreeMap::from([(me.node, me.incarnation)]);
        let mut patience = Patience::default();
        loop {
            for (node, address) in &self.members {
                if met.contains_key(node) {
                    continue;
                }
                match self.ask(*node, address, invitation).await? {
                    Ok(there) => {
                        met.insert(*node, there.incarnation);
                    }
                    Err(why) => patience.report(*node, address, &why),
                }
            }
            if met.len() == self.members.len() {
                return Ok(met);
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// The other nodes' part: a fresh node is invited, and then receives the first
    /// membership; a wiped one learns from the others that it is.
    async fn wait_for_invitation(&self, replica: &Replica) -> Result<ClusterId, BootstrapError> {
        let me = self.home.identity().node;
        let mut patience = Patience::default();
        loop {
            if let (Some(cluster), true) = (self.home.cluster(), is_member(replica, me)) {
                return Ok(cluster);
            }
            let first = self.members.keys().next().copied();
            for (node, address) in self.members.iter().filter(|(node, _)| **node != me) {
                if let Err(why) = self.ask(*node, address, None).await?
                    && Some(*node) == first
                {
                    patience.report(*node, address, &why);
                }
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// One Hello. The inner error is one that waiting may mend.
    async fn ask(
        &self,
        node: u64,
        address: &str,
        invitation: Option<ClusterId>,
    ) -> Result<Result<Identity, String>, BootstrapError> {
        match self.hello(address, invitation).await {
            Err(status) if status.code() == tonic::Code::FailedPrecondition => {
                let why = status.message().to_owned();
                Err(BootstrapError::Refused { by: node, address: address.into(), why })
            }
            Err(status) => Ok(Err(status.message().to_owned())),
            Ok(answer) => self.judge(node, address, &answer, invitation).map(Ok),
        }
    }

    async fn hello(
        &self,
        address: &str,
        invitation: Option<ClusterId>,
    ) -> Result<HelloResponse, tonic::Status> {
        let me = self.home.identity();
        let request = HelloRequest {
            from_node: me.node,
            from_incarnation: Bytes::copy_from_slice(&me.incarnation),
            cluster_id: invitation.map_or(Bytes::new(), |c| Bytes::copy_from_slice(c.as_bytes())),
            members: self.members.clone(),
        };
        let answer = async {
            let endpoint = endpoint(address, &self.timing, Lane::Control)?;
            let channel =
                endpoint.local_address(self.bind).connect().await.map_err(|e| unreachable(&e))?;
            PeerClient::new(channel).hello(request).await
        };
        let answer = tokio::time::timeout(self.timing.connect * 2, answer).await;
        let answer = answer.map_err(|_| tonic::Status::deadline_exceeded("no answer"))?;
        answer.map(tonic::Response::into_inner)
    }

    /// Asks every other node of the list once it is up. Resolves only if most of the
    /// list belongs to one other cluster than `ours`: then this folder is the wrong
    /// one. A single stranger among them is told of, and is for that node to mend.
    pub async fn astray(&self, ours: ClusterId) -> BootstrapError {
        let me = self.home.identity().node;
        let mut unheard: Vec<_> = self.members.iter().filter(|(node, _)| **node != me).collect();
        let mut strangers: BTreeMap<ClusterId, usize> = BTreeMap::new();
        while !unheard.is_empty() {
            for (node, address) in std::mem::take(&mut unheard) {
                let answer = self.hello(address, None).await.ok();
                let theirs = answer.and_then(|a| ClusterId::from_slice(&a.cluster_id).ok());
                let Some(theirs) = theirs else {
                    unheard.push((node, address));
                    continue;
                };
                if theirs == ours {
                    continue;
                }
                let (by, address) = (*node, address.clone());
                let stranger =
                    BootstrapError::OtherCluster { by, address, theirs, ours: Some(ours) };
                let met = strangers.entry(theirs).or_default();
                *met += 1;
                if *met > self.members.len() / 2 {
                    return stranger;
                }
                tracing::error!("{stranger}");
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
        std::future::pending().await
    }

    /// What an answer means for this node.
    fn judge(
        &self,
        node: u64,
        address: &str,
        answer: &HelloResponse,
        invitation: Option<ClusterId>,
    ) -> Result<Identity, BootstrapError> {
        let unreadable = || BootstrapError::Unreadable { by: node, address: address.into() };
        let me = self.home.identity();
        let there = identity(answer.node_id, &answer.incarnation).ok_or_else(unreadable)?;
        if there.node != node {
            let address = address.into();
            return Err(BootstrapError::OtherNode { address, listed: node, found: there.node });
        }
        if answer.cluster_id.is_empty() {
            return match invitation {
                None => Ok(there),
                Some(_) => Err(unreadable()),
            };
        }
        let theirs = ClusterId::from_slice(&answer.cluster_id).map_err(|_| unreadable())?;
        if answer.formed {
            let recorded = <[u8; 16]>::try_from(&answer.recorded_incarnation[..]).ok();
            match recorded {
                None => {
                    let (node, by) = (me.node, node);
                    return Err(BootstrapError::NotAMember { node, cluster: theirs, by });
                }
                Some(recorded) if recorded != me.incarnation => {
                    let present = me.incarnation;
                    return Err(BootstrapError::Wiped {
                        node: me.node,
                        present,
                        recorded,
                        by: node,
                    });
                }
                Some(_) => {}
            }
        }
        let ours = invitation.or(self.home.cluster());
        let joins = ours == Some(theirs);
        // A node that waits may hear of the cluster before it is invited itself; the
        // one that forms it may not.
        let first = self.members.keys().next() == Some(&me.node);
        if joins || (ours.is_none() && !first) {
            return Ok(there);
        }
        let address = address.into();
        Err(BootstrapError::OtherCluster { by: node, address, theirs, ours })
    }
}

fn is_member(replica: &Replica, node: u64) -> bool {
    replica.status().members.iter().any(|m| m.node == node)
}

fn unreachable(error: &tonic::transport::Error) -> tonic::Status {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    tonic::Status::unavailable(cause.to_string())
}

/// Says now and then whom this node waits for.
struct Patience {
    since: Instant,
    said: BTreeMap<u64, Instant>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { since: clock::timer(), said: BTreeMap::new() }
    }
}

impl Patience {
    fn report(&mut self, node: u64, address: &str, why: &str) {
        if self.said.get(&node).is_none_or(|at| at.elapsed() >= REPORT_EVERY) {
            let waited = self.since.elapsed().as_secs();
            tracing::info!("waiting for node {node} at {address} ({waited} s): {why}");
            self.said.insert(node, clock::timer());
        }
    }
}
