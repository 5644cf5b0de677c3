//! MariaDB, with its log synced at every commit.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use nix::sys::signal::Signal;

use super::{Home, Server, listens, program};
use crate::cli::local::Process;

const MISSING: &str = "MariaDB is missing: apt-get install mariadb-server (or take DEST=sqlite)";

/// Sets one up in `folder`, which must not exist, and starts it.
///
/// # Errors
/// MariaDB is missing, or what it says.
pub async fn mariadb(folder: &Path) -> anyhow::Result<Server> {
    let binary = program("mariadbd").context(MISSING)?;
    let install = program("mariadb-install-db").context(MISSING)?;
    let home = Home::create(folder, "MariaDB", &["mysql", "nobody"])?;
    let (data, socket) = (folder.join("data"), folder.join("socket"));
    let mut made = home.command(&install);
    made.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-name-resolve"]);
    // The set-up is a script, which knows this form only.
    let datadir = format!("--datadir={}", data.display());
    // What TMPDIR names may not be the server's to write to.
    let tmpdir = format!("--tmpdir={}", folder.display());
    made.args([&*datadir, &*tmpdir, "--skip-test-db"]);
    home.set_up("mariadb-install-db", made).await?;
    let start = folder.join("start.sql");
    std::fs::write(&start, "CREATE DATABASE IF NOT EXISTS demo;\n")?;
    std::fs::set_permissions(&start, Permissions::from_mode(0o644))?;
    let mut server = home.command(&binary);
    server.args(["--no-defaults", "--skip-networking", "--innodb-buffer-pool-size=16M"]);
    server.args(["--innodb-flush-log-at-trx-commit=1", "--performance-schema=OFF"]);
    server.args([&datadir, &tmpdir]).arg("--socket").arg(&socket);
    server.arg("--init-file").arg(&start);
    server.arg("--pid-file").arg(folder.join("pid"));
    let process = Process::start("MariaDB", server, &folder.with_extension("log"))?;
    let url = format!("mariadb:mysql://root@localhost/demo?socket={}", socket.display());
    let mut server = Server { process, ends_by: Signal::SIGTERM, url };
    server.ready("MariaDB", || listens(&socket)).await?;
    Ok(server)
}
