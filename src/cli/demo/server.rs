//! Servers for the workers to write to: real ones, from the system's packages, each in a
//! folder of its own and behind a Unix socket.

mod mariadb;
mod postgres;
mod redis;

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use tokio::process::Command;

use crate::cli::local::{PATIENCE, POLL, Process};
use crate::clock::Moment;
pub use mariadb::mariadb;
pub use postgres::postgres;
pub use redis::redis;

/// One that runs; it is ended when this is dropped.
pub struct Server {
    process: Process,
    /// In good order, and without the work that only a later start would need.
    ends_by: Signal,
    url: String,
}

impl Server {
    /// What [`open`](super::store::open) opens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until it is ready.
    async fn ready(&mut self, name: &str, ready: impl Fn() -> bool) -> anyhow::Result<()> {
        let until = Moment::now().plus(PATIENCE);
        while Moment::now() < until {
            self.process.check()?;
            if ready() {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
        anyhow::bail!("{name} is not ready after {} s", PATIENCE.as_secs())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.end(self.ends_by);
    }
}

/// A folder that is the server's own, and whose it is: as root these servers do not run.
struct Home<'a> {
    folder: &'a Path,
    user: Option<User>,
}

impl<'a> Home<'a> {
    /// In `folder`, which must not exist. `users` are those to take if this is root.
    fn create(folder: &'a Path, name: &str, users: &[&str]) -> anyhow::Result<Self> {
        let mut user = None;
        if geteuid().is_root() {
            for name in users {
                user = user.or(User::from_name(name)?);
            }
            anyhow::ensure!(
                user.is_some(),
                "{name} does not run as root, and there is no user {}",
                users.join(" or ")
            );
        }
        DirBuilder::new().mode(0o700).create(folder)?;
        if let Some(user) = &user {
            chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
        }
        Ok(Self { folder, user })
    }

    /// One of its programs.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command.current_dir(self.folder).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs one that sets it up.
    async fn set_up(&self, name: &str, mut command: Command) -> anyhow::Result<()> {
        let made = command.stderr(Stdio::piped()).kill_on_drop(true).output().await?;
        let told = String::from_utf8_lossy(&made.stderr);
        anyhow::ensure!(made.status.success(), "{name}: {}", told.trim().replace('\n', "; "));
        Ok(())
    }
}

/// The program, if it is in the path or where Debian and others keep servers.
fn program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/bin".into()]);
    places.map(|place| place.join(name)).find(|program| program.exists())
}

/// Whether somebody listens there.
fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}
