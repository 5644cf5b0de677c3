//! `ringfence serve`: one node of a cluster.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use tokio::signal::unix::{SignalKind, signal};

use super::exit::Exit;
use crate::config::{Layer, NodeConfig, parse_members};
use crate::server::{Ended, Server, StorageOptions};
use crate::telemetry;

/// Run one node of a cluster
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
EXAMPLE
  Three nodes, each started with the same list of members:
    ringfence serve --node-id 1 --listen 10.0.0.1:7411 --data /var/lib/ringfence \\
      --members 1=10.0.0.1:7411,2=10.0.0.2:7411,3=10.0.0.3:7411

The first start waits until all members are up and then forms the cluster; later
starts need a majority. A flag wins over the environment, which wins over --config.
Keep the data folder: a node that comes back without it is refused, for it could
vote twice.

RINGFENCE_LOG says how much is told on stderr, e.g. warn, or ringfence=debug.")]
pub struct Args {
    /// This node's number, 1 or more; never given to another node
    #[arg(long, env = "RINGFENCE_NODE_ID")]
    node_id: Option<u64>,
    /// Address to listen at, for clients and for the other nodes [default: 127.0.0.1:7411]
    #[arg(long, env = "RINGFENCE_LISTEN", value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Address that the others reach this node at [default: its entry in --members]
    #[arg(long, env = "RINGFENCE_ADVERTISE", value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// All members, the same on every node; without it, a cluster of one
    #[arg(long, env = "RINGFENCE_MEMBERS", value_name = "1=HOST:PORT,2=…")]
    members: Option<String>,
    /// Data folder; created if it does not exist
    #[arg(long, env = "RINGFENCE_DATA", value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// How often the leader is heard, in milliseconds: 10 to 10000 [default: 100]
    #[arg(long, env = "RINGFENCE_HEARTBEAT_MS", value_name = "MS")]
    heartbeat_ms: Option<u64>,
    /// How long a leader may be silent before an election begins, in milliseconds; at
    /// least three heartbeats [default: 400]
    #[arg(long, env = "RINGFENCE_ELECTION_MS", value_name = "MS")]
    election_ms: Option<u64>,
    /// Shortest session ttl, in milliseconds; fixed when the cluster forms [default: 500]
    #[arg(long, env = "RINGFENCE_TTL_MIN_MS", value_name = "MS")]
    ttl_min_ms: Option<u64>,
    /// Longest session ttl, in milliseconds; fixed when the cluster forms [default: 86400000]
    #[arg(long, env = "RINGFENCE_TTL_MAX_MS", value_name = "MS")]
    ttl_max_ms: Option<u64>,
    /// A new cluster issues only tokens above this one: for destinations that have seen
    /// another authority's
    #[arg(long, env = "RINGFENCE_TOKEN_FLOOR", value_name = "TOKEN")]
    token_floor: Option<u64>,
    /// How many requests may be under way on this node; more are told when to come
    /// again [default: 8192]
    #[arg(long, env = "RINGFENCE_ADMITTED_MAX", value_name = "REQUESTS")]
    admitted_max: Option<usize>,
    /// How many of the last events this node keeps for watches [default: 65536]
    #[arg(long, env = "RINGFENCE_EVENTS_MAX", value_name = "EVENTS")]
    events_max: Option<usize>,
    /// How many bytes of them, about [default: 33554432]
    #[arg(long, env = "RINGFENCE_EVENTS_BYTES_MAX", value_name = "BYTES")]
    events_bytes_max: Option<usize>,
    /// How many may watch on this node [default: 10000]
    #[arg(long, env = "RINGFENCE_WATCHERS_MAX", value_name = "WATCHERS")]
    watchers_max: Option<usize>,
    /// TOML file with the same settings (node-id, listen, data, [members] …)
    #[arg(long, env = "RINGFENCE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Args {
    fn settings(self) -> anyhow::Result<NodeConfig> {
        let file = match &self.config {
            Some(path) => Layer::read(path)?,
            None => Layer::default(),
        };
        let given = Layer {
            node_id: self.node_id,
            listen: self.listen,
            advertise: self.advertise,
            members: self.members.as_deref().map(parse_members).transpose()?,
            data: self.data,
            heartbeat_ms: self.heartbeat_ms,
            election_ms: self.election_ms,
            ttl_min_ms: self.ttl_min_ms,
            ttl_max_ms: self.ttl_max_ms,
            token_floor: self.token_floor,
            admitted_max: self.admitted_max,
            events_max: self.events_max,
            events_bytes_max: self.events_bytes_max,
            watchers_max: self.watchers_max,
        };
        Ok(given.over(file).resolve()?)
    }
}

/// Serves until SIGTERM or SIGINT, or until the node cannot go on.
///
/// # Errors
/// What kept the node from starting, from joining, or from going on.
pub async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = args.settings()?;
    let node = config.node_id;
    telemetry::start();
    let mut server = Server::start(config, StorageOptions::default()).await?;
    eprintln!("ringfence: node {node} listens at {}", server.address());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let replica = server.replica().clone();
    tokio::select! {
        formed = server.formed() => formed?,
        ended = replica.ended() => return told(ended, node),
        _ = terminate.recv() => return stop(server, node).await,
        _ = interrupt.recv() => return stop(server, node).await,
    }
    eprintln!("ringfence: node {node} is ready");
    tokio::select! {
        ended = server.ended() => told(ended, node),
        _ = terminate.recv() => stop(server, node).await,
        _ = interrupt.recv() => stop(server, node).await,
    }
}

fn told(ended: Ended, node: u64) -> anyhow::Result<Exit> {
    match ended {
        Ended::Shutdown => Ok(Exit::Done),
        Ended::Broken(why) => Err(anyhow::anyhow!("node {node} stops: {why}")),
    }
}

async fn stop(server: Server, node: u64) -> anyhow::Result<Exit> {
    eprintln!("ringfence: node {node} stops as asked");
    server.stop().await;
    Ok(Exit::Done)
}
