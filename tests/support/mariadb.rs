//! A real MariaDB from Debian's package, in a temporary folder with a Unix socket.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// Keeps a server small. Its syncs are those that it would make anyway.
const SMALL: [&str; 4] = [
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=8M",
    "--max-connections=60",
    "--performance-schema=OFF",
];

/// One server; stopped, and its folder removed, when dropped.
pub struct Mariadb {
    dir: TempDir,
    user: Option<(u32, u32)>,
    settings: Vec<&'static str>,
    server: Option<Child>,
    names: AtomicU32,
}

impl Mariadb {
    /// Sets up a server that syncs its log at every commit, and starts it.
    pub fn start() -> Self {
        Self::start_with(&["--innodb-flush-log-at-trx-commit=1"])
    }

    /// Starts one with these settings.
    pub fn start_with(settings: &[&'static str]) -> Self {
        let (dir, user) = (tempfile::tempdir().expect("it is writable"), unprivileged());
        if let Some((uid, gid)) = user {
            chown(dir.path(), Some(uid), Some(gid)).expect("root may give its folders away");
        }
        let settings = settings.to_vec();
        let mut mariadb = Self { dir, user, settings, server: None, names: AtomicU32::new(0) };
        let set_up = mariadb
            .command("/usr/bin/mariadb-install-db")
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg("--skip-name-resolve")
            .args(SMALL)
            .status()
            .expect("MariaDB is missing: apt-get install mariadb-server");
        assert!(set_up.success(), "mariadb-install-db failed: {}", mariadb.log());
        mariadb.restart();
        mariadb
    }

    /// The server that the tests which run now have in common.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Mariadb>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Self::start());
            *shared = Arc::downgrade(&started);
            started
        })
    }

    /// Where to connect.
    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@localhost/{database}?socket={}", self.socket().display())
    }

    /// Creates an empty database and returns its name.
    pub fn create_database(&self) -> String {
        let name = format!("t{}", self.names.fetch_add(1, Ordering::Relaxed));
        self.client("", &format!("CREATE DATABASE {name}"));
        name
    }

    /// Runs SQL through the client `mariadb`, as a person would.
    pub fn client(&self, database: &str, sql: &str) {
        let ran = Command::new("mariadb")
            .args(["--no-defaults", "--user=root", "--socket"])
            .arg(self.socket())
            .args(["--execute", sql, database])
            .output()
            .expect("the client is missing: apt-get install mariadb-client");
        assert!(ran.status.success(), "{sql}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// SIGKILL, as a power cut would be to it.
    pub fn kill(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        server.kill().expect("the server runs");
        server.wait().expect("the server is a child of ours");
    }

    /// Starts the server again on the same folder and waits until it is ready.
    pub fn restart(&mut self) {
        assert!(self.server.is_none(), "the server runs already");
        let mut server = self
            .command("/usr/sbin/mariadbd")
            .args(["--skip-networking", "--socket"])
            .arg(self.socket())
            .arg("--pid-file")
            .arg(self.dir.path().join("pid"))
            .args(SMALL)
            .args(&self.settings)
            .spawn()
            .expect("MariaDB is missing: apt-get install mariadb-server");
        let deadline = Instant::now() + PATIENCE;
        while !self.answers() {
            let ended = server.try_wait().expect("the server is a child of ours");
            assert!(ended.is_none(), "MariaDB did not start: {}", self.log());
            assert!(Instant::now() < deadline, "MariaDB is not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        self.server = Some(server);
    }

    /// It greets with the version of its protocol, which is 10; an error has 255 there.
    fn answers(&self) -> bool {
        let mut greeting = [0; 5];
        UnixStream::connect(self.socket())
            .and_then(|mut server| server.read_exact(&mut greeting))
            .is_ok_and(|()| greeting[4] == 10)
    }

    /// A program of the server's, on its folder and as its user.
    fn command(&self, program: &str) -> Command {
        let log = self.dir.path().join("log");
        let open = || File::options().create(true).append(true).open(&log);
        let mut command = Command::new(program);
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
            .arg("--no-defaults")
            // The set-up is a script, which knows this form only.
            .arg(format!("--datadir={}", self.dir.path().join("data").display()))
            .current_dir(self.dir.path())
            // Servers that start at once would take each other's temporary tables.
            .env("TMPDIR", self.dir.path())
            .stdin(Stdio::null())
            .stdout(open().expect("the folder is ours"))
            .stderr(open().expect("the folder is ours"));
        command
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// As root MariaDB refuses to run: then the user and group to run it as.
fn unprivileged() -> Option<(u32, u32)> {
    let status = fs::read_to_string("/proc/self/status").expect("Linux describes this process");
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    if uid.and_then(|ids| ids.split_whitespace().nth(1)) != Some("0") {
        return None;
    }
    let users = fs::read_to_string(Path::new("/etc/passwd")).expect("a Unix has users");
    let ids = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|id| id.parse().ok());
        Some((fields.next()??, fields.next()??))
    };
    Some(ids("mysql").or_else(|| ids("nobody")).expect("Debian has the user nobody"))
}
