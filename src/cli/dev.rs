//! `ringfence dev`: a cluster in one process, to try things out.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args as ClapArgs;
use tokio::signal::unix::{SignalKind, signal};

use super::exit::Exit;
use crate::config::Layer;
use crate::server::{Server, StorageOptions};

/// Run a whole cluster in this process, for trying things out
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
EXAMPLE
    ringfence dev                       one node, forgotten when it ends
    ringfence dev --nodes 3 --data ./d  three nodes, kept in ./d
    ringfence lock job/7 -- sleep 5     in another terminal

One process is one failure: for real use run `ringfence serve` on three machines.")]
pub struct Args {
    /// How many nodes: 1 or 3
    #[arg(long, default_value_t = 1, value_parser = nodes)]
    nodes: u16,
    /// Port of the first node; the others take the next ones
    #[arg(long, default_value_t = 7411)]
    port: u16,
    /// Data folder [default: a temporary one, removed at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

fn nodes(text: &str) -> Result<u16, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("must be 1 or 3".to_owned()),
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// What kept a node from starting.
pub async fn run(args: Args) -> anyhow::Result<Exit> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (folder, temporary) = match args.data {
        Some(folder) => (folder, false),
        None => (temporary_folder()?, true),
    };
    let members = members(args.nodes, args.port)?;
    let mut servers = Vec::new();
    for (id, address) in &members {
        let layer = Layer {
            node_id: id.parse().ok(),
            listen: Some(address.clone()),
            members: Some(members.clone()),
            data: Some(folder.join(format!("node-{id}"))),
            ..Layer::default()
        };
        servers.push(Server::start(layer.resolve()?, StorageOptions::default()).await?);
    }
    for server in &mut servers {
        server.formed().await?;
    }
    let endpoints = members.values().cloned().collect::<Vec<_>>().join(",");
    eprintln!("ringfence: ready at {endpoints}, data in {}", folder.display());
    eprintln!("ringfence: try in another terminal: ringfence --endpoints {endpoints} status");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    // The last leader has nobody to hand over to: all stop at once.
    futures::future::join_all(servers.into_iter().map(Server::stop)).await;
    if temporary {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(Exit::Done)
}

fn members(nodes: u16, port: u16) -> anyhow::Result<BTreeMap<String, String>> {
    let last = port.checked_add(nodes - 1).context("--port is too high for so many nodes")?;
    Ok((port..=last)
        .zip(1..)
        .map(|(p, id): (u16, u64)| (id.to_string(), format!("127.0.0.1:{p}")))
        .collect())
}

fn temporary_folder() -> anyhow::Result<PathBuf> {
    // A name that nobody else has: the port that the system gives is ours alone.
    let unique = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let name = format!("ringfence-dev-{}-{unique}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}
