//! Redis, with every write synced.

use std::path::Path;

use anyhow::Context;
use nix::sys::signal::Signal;

use super::{Home, Server, listens, program};
use crate::cli::local::Process;

const MISSING: &str = "Redis is missing: apt-get install redis-server (or take DEST=sqlite)";

/// Starts one in `folder`, which must not exist.
///
/// # Errors
/// Redis is missing, or what it says.
pub async fn redis(folder: &Path) -> anyhow::Result<Server> {
    let binary = program("redis-server").or_else(|| program("valkey-server")).context(MISSING)?;
    let home = Home::create(folder, "Redis", &["redis", "nobody"])?;
    let socket = folder.join("socket");
    let mut server = home.command(&binary);
    server.args(["--port", "0", "--unixsocketperm", "700", "--unixsocket"]).arg(&socket);
    server.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
    let process = Process::start("Redis", server, &folder.with_extension("log"))?;
    let url = format!("redis:redis+unix://{}", socket.display());
    // What is synced stays; nobody waits for a snapshot.
    let mut server = Server { process, ends_by: Signal::SIGTERM, url };
    server.ready("Redis", || listens(&socket)).await?;
    Ok(server)
}
