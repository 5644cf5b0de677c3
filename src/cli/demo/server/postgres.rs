//! PostgreSQL, with fsync on.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::sys::signal::Signal;

use super::{Home, Server};
use crate::cli::local::Process;

/// A number for its socket; it listens at no port.
const PORT: &str = "5432";
const MISSING: &str = "PostgreSQL is missing: apt-get install postgresql (or take DEST=sqlite)";

/// Sets one up in `folder`, which must not exist, and starts it.
///
/// # Errors
/// PostgreSQL is missing, or what it says.
pub async fn postgres(folder: &Path) -> anyhow::Result<Server> {
    let bin = binaries().context(MISSING)?;
    let home = Home::create(folder, "PostgreSQL", &["postgres", "nobody"])?;
    let data = folder.join("data");
    let mut initdb = home.command(&bin.join("initdb"));
    // What is not synced is the empty database alone; the server syncs.
    initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
    initdb.args(["--no-sync", "-D"]).arg(&data);
    home.set_up("initdb", initdb).await?;
    let mut server = home.command(&bin.join("postgres"));
    server.arg("-D").arg(&data).arg("-k").arg(folder).args(["-p", PORT]);
    server.args(["-c", "listen_addresses=", "-c", "fsync=on", "-c", "shared_buffers=16MB"]);
    let process = Process::start("PostgreSQL", server, &folder.with_extension("log"))?;
    let at = folder.display();
    let url = format!("postgres:host={at} port={PORT} user=postgres dbname=postgres");
    // Without a checkpoint, for the folder goes with it, but in good order: its own
    // processes end, and its shared memory is given back.
    let mut server = Server { process, ends_by: Signal::SIGQUIT, url };
    // It writes its number first and its status last.
    let status = data.join("postmaster.pid");
    let ready = || fs::read_to_string(&status).unwrap_or_default().contains("ready");
    server.ready("PostgreSQL", ready).await?;
    Ok(server)
}

/// The newest one in the places of Debian and of Red Hat, or the one in the path.
fn binaries() -> Option<PathBuf> {
    let listed = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
    let debian = listed("/usr/lib/postgresql").map(|entry| entry.path().join("bin"));
    let red_hat = listed("/usr").map(|entry| entry.path().join("bin"));
    let red_hat = red_hat.filter(|bin| bin.to_string_lossy().contains("/pgsql-"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let version = |bin: &PathBuf| {
        let digits = bin.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
        digits.parse::<u32>().unwrap_or(0)
    };
    let packaged = debian.chain(red_hat).filter(|bin| bin.join("initdb").exists());
    let in_path = || std::env::split_paths(&path).find(|bin| bin.join("initdb").exists());
    packaged.max_by_key(version).or_else(in_path)
}
