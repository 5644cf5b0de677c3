//! A real PostgreSQL, from the system's packages, in a folder of its own and behind a
//! Unix socket.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use tokio::process::Command;

use crate::cli::local::{PATIENCE, POLL, Process};
use crate::clock::Moment;

/// A number for its socket; it listens at no port.
const PORT: &str = "5432";
const MISSING: &str = "PostgreSQL is missing: apt-get install postgresql (or take DEST=sqlite)";

/// The server; it is stopped when this is dropped.
pub struct Postgres {
    process: Process,
    folder: PathBuf,
}

impl Postgres {
    /// Sets one up in `folder`, which must not exist, and starts it; with fsync on.
    ///
    /// # Errors
    /// PostgreSQL is missing, or what it says.
    pub async fn start(folder: &Path) -> anyhow::Result<Self> {
        let bin = binaries().context(MISSING)?;
        let user = unprivileged()?;
        DirBuilder::new().mode(0o700).create(folder)?;
        if let Some(user) = &user {
            chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        let command = |name: &str| {
            let mut command = Command::new(bin.join(name));
            if let Some(user) = &user {
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
            command
        };
        let (data, log) = (folder.join("data"), folder.with_extension("log"));
        let mut initdb = command("initdb");
        // What is not synced is the empty database alone; the server syncs.
        initdb.args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "-D"]).arg(&data);
        let made = initdb.stderr(Stdio::piped()).kill_on_drop(true).output().await?;
        let told = String::from_utf8_lossy(&made.stderr);
        anyhow::ensure!(made.status.success(), "initdb: {}", told.trim().replace('\n', "; "));
        let mut server = command("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(folder).args(["-p", PORT]);
        server.args(["-c", "listen_addresses=", "-c", "fsync=on", "-c", "shared_buffers=16MB"]);
        let process = Process::start("PostgreSQL", server, &log)?;
        let mut postgres = Self { process, folder: folder.to_owned() };
        postgres.ready(&data).await?;
        Ok(postgres)
    }

    /// Where to connect.
    pub fn url(&self) -> String {
        format!("host={} port={PORT} user=postgres dbname=postgres", self.folder.display())
    }

    /// The server writes its number first and its status last.
    async fn ready(&mut self, data: &Path) -> anyhow::Result<()> {
        let until = Moment::now().plus(PATIENCE);
        while Moment::now() < until {
            self.process.check()?;
            let status = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            if status.contains("ready") {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        anyhow::bail!("PostgreSQL is not ready after {} s", PATIENCE.as_secs())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Without a checkpoint, for the folder goes with it, but in good order: its own
        // processes end, and its shared memory is given back.
        self.process.end(Signal::SIGQUIT);
    }
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

/// As root PostgreSQL refuses to run: then the user to run it as.
fn unprivileged() -> anyhow::Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    anyhow::bail!("PostgreSQL does not run as root, and there is no user postgres or nobody")
}
