//! A real PostgreSQL, and a real PgBouncer before it, from Debian's packages, in
//! a temporary folder with a Unix socket. Needs the standard library only.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

const PORT: u16 = 5432;
const PATIENCE: Duration = Duration::from_secs(60);

/// One server; stopped, and its folder removed, when dropped.
pub struct Postgres {
    dir: PathBuf,
    bin: PathBuf,
    user: Option<(u32, u32)>,
    server: Option<Child>,
    names: AtomicU32,
}

impl Postgres {
    /// Sets up a cluster with fsync on and starts it.
    pub fn start() -> Self {
        let (bin, user) = (binaries(), unprivileged());
        let dir = folder(user);
        let mut postgres = Self { dir, bin, user, server: None, names: AtomicU32::new(0) };
        // --no-sync is about the empty cluster alone; the server syncs.
        let initdb = postgres
            .command("initdb")
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"])
            .args(["--no-sync", "-D"])
            .arg(postgres.dir.join("data"))
            .status()
            .expect("initdb is one of the binaries that were found");
        assert!(initdb.success(), "initdb failed: {}", postgres.log());
        postgres.restart();
        postgres
    }

    /// The server that the tests which run now have in common.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Self::start());
            *shared = Arc::downgrade(&started);
            started
        })
    }

    /// Where to connect.
    pub fn url(&self, database: &str) -> String {
        format!("host={} port={PORT} user=postgres dbname={database}", self.dir.display())
    }

    /// Creates an empty database and returns its name.
    pub fn create_database(&self) -> String {
        let name = format!("t{}", self.names.fetch_add(1, Ordering::Relaxed));
        let created = self
            .command("createdb")
            .args(["--host", &self.dir.display().to_string(), "--username=postgres", &name])
            .status()
            .expect("createdb is one of the binaries that were found");
        assert!(created.success(), "createdb failed: {}", self.log());
        name
    }

    /// Runs SQL with `psql`, as people do: what it printed, or what went wrong.
    pub fn psql(&self, database: &str, sql: &str) -> Result<String, String> {
        let ran = self
            .command("psql")
            .args(["--host", &self.dir.display().to_string(), "--username=postgres"])
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set=ON_ERROR_STOP=1", "--dbname", database, "--command", sql])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .expect("psql is one of the binaries that were found");
        let [out, err] = [ran.stdout, ran.stderr].map(|told| String::from_utf8_lossy(&told).into());
        if ran.status.success() { Ok(out) } else { Err(err) }
    }

    /// SIGKILL to the postmaster and all its processes, as a power cut would be
    /// to them.
    pub fn kill(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        let id = server.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
            .expect("Linux lists the children of a process");
        server.kill().expect("the postmaster runs");
        server.wait().expect("the postmaster is a child of ours");
        for child in children.split_whitespace() {
            signal("KILL", child);
        }
        let gone = |child: &str| {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_none_or(|rest| !rest.starts_with(" ") || rest.starts_with(" Z"))
        };
        wait_until("the killed processes are gone", || children.split_whitespace().all(gone));
    }

    /// Starts the server again on the same folder and waits until it is ready.
    pub fn restart(&mut self) {
        assert!(self.server.is_none(), "the server runs already");
        let data = self.dir.join("data");
        let server = self
            .command("postgres")
            .arg("-D")
            .arg(&data)
            .args(["-k", &self.dir.display().to_string(), "-p", &PORT.to_string()])
            .args(["-c", "listen_addresses=", "-c", "fsync=on", "-c", "shared_buffers=16MB"])
            .args(["-c", "max_connections=60", "-c", "deadlock_timeout=100ms"])
            .spawn()
            .expect("postgres is one of the binaries that were found");
        let id = server.id().to_string();
        self.server = Some(server);
        // The postmaster writes its pid first and its status last.
        wait_until("PostgreSQL is ready", || {
            let server = self.server.as_mut().expect("just started");
            let ended = server.try_wait().expect("the postmaster is a child of ours");
            assert!(ended.is_none(), "PostgreSQL did not start: {}", self.log());
            let status = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            status.starts_with(&id) && status.contains("ready")
        });
    }

    /// Puts a PgBouncer in transaction mode before the server, with `pool`
    /// server connections for each database.
    pub fn pgbouncer(&self, pool: u32) -> Pgbouncer {
        let dir = folder(self.user);
        let ini = format!(
            "[databases]\n* = host={} port={PORT} user=postgres\n[pgbouncer]\nlisten_addr =\n\
             listen_port = {PORT}\nunix_socket_dir = {}\npool_mode = transaction\n\
             auth_type = any\ndefault_pool_size = {pool}\n",
            self.dir.display(),
            dir.display()
        );
        fs::write(dir.join("pgbouncer.ini"), ini).expect("the folder is ours");
        let process = privileges(Command::new("/usr/sbin/pgbouncer"), self.user)
            .arg(dir.join("pgbouncer.ini"))
            .stdout(Stdio::null())
            .stderr(File::create(dir.join("log")).expect("the folder is ours"))
            .spawn()
            .expect("PgBouncer is missing: apt-get install pgbouncer");
        let bouncer = Pgbouncer { dir, process };
        let socket = bouncer.dir.join(format!(".s.PGSQL.{PORT}"));
        wait_until("PgBouncer is ready", || UnixStream::connect(&socket).is_ok());
        bouncer
    }

    fn command(&self, name: &str) -> Command {
        let log = self.dir.join("log");
        let open = || File::options().create(true).append(true).open(&log);
        let mut command = privileges(Command::new(self.bin.join(name)), self.user);
        command
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(open().expect("the folder is ours"))
            .stderr(open().expect("the folder is ours"));
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            signal("QUIT", &server.id().to_string());
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// One pooler; stopped, and its folder removed, when dropped.
pub struct Pgbouncer {
    dir: PathBuf,
    process: Child,
}

impl Pgbouncer {
    /// Where to connect.
    pub fn url(&self, database: &str) -> String {
        format!("host={} port={PORT} user=postgres dbname={database}", self.dir.display())
    }
}

impl Drop for Pgbouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The newest PostgreSQL that Debian's packages have put here.
fn binaries() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| number(path));
    let bin = newest.map(|version| version.join("bin")).filter(|bin| bin.join("initdb").exists());
    bin.expect("PostgreSQL is missing: apt-get install postgresql")
}

/// As root PostgreSQL refuses to run: then the user and group to run it as.
fn unprivileged() -> Option<(u32, u32)> {
    let status = fs::read_to_string("/proc/self/status").expect("Linux describes this process");
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    if uid.and_then(|ids| ids.split_whitespace().nth(1)) != Some("0") {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a Unix has users");
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|id| id.parse().ok());
        Some((fields.next()??, fields.next()??))
    };
    Some(ids("postgres").or_else(|| ids("nobody")).expect("Debian has the user nobody"))
}

fn privileges(mut command: Command, user: Option<(u32, u32)>) -> Command {
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

/// A new folder of that user's. Short, for a socket's path has 107 bytes.
fn folder(user: Option<(u32, u32)>) -> PathBuf {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let now = std::time::UNIX_EPOCH.elapsed().expect("it is after 1970").as_millis();
    let name = format!("ringfence-pg-{}-{number}-{now}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    fs::DirBuilder::new().mode(0o700).create(&dir).expect("the temporary folder is writable");
    if let Some((uid, gid)) = user {
        chown(&dir, Some(uid), Some(gid)).expect("root may give its folders away");
    }
    dir
}

/// The shell's own `kill`, which every system has.
fn signal(name: &str, pid: &str) {
    let _ = Command::new("sh")
        .args(["-c", &format!("kill -{name} {pid}")])
        .stderr(Stdio::null())
        .status();
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited a minute in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
