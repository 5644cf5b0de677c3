//! A real Redis from Debian's package, in a temporary folder with a Unix socket.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

/// One server; stopped, and its folder removed, when dropped.
pub struct Redis {
    dir: TempDir,
    settings: Vec<&'static str>,
    server: Option<Child>,
}

impl Redis {
    /// Starts one that syncs every write to the disk.
    pub fn start() -> Self {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts one with these settings and no snapshots.
    pub fn start_with(settings: &[&'static str]) -> Self {
        let dir = tempfile::tempdir().expect("the temporary folder is writable");
        let mut redis = Self { dir, settings: settings.to_vec(), server: None };
        redis.restart();
        redis
    }

    /// Where to connect.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
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
        let log = self.dir.path().join("log");
        let open = || File::options().create(true).append(true).open(&log);
        let mut server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(self.dir.path())
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(open().expect("the folder is ours"))
            .stderr(open().expect("the folder is ours"))
            .spawn()
            .expect("Redis is missing: apt-get install redis-server");
        let deadline = Instant::now() + PATIENCE;
        while !self.answers() {
            let ended = server.try_wait().expect("the server is a child of ours");
            let said = || fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "Redis did not start: {}", said());
            assert!(Instant::now() < deadline, "Redis is not ready after a minute: {}", said());
            std::thread::sleep(Duration::from_millis(10));
        }
        self.server = Some(server);
    }

    /// Not before it has read its files again.
    fn answers(&self) -> bool {
        let mut answer = [0; 7];
        UnixStream::connect(self.socket())
            .and_then(|mut server| {
                server.write_all(b"PING\r\n")?;
                server.read_exact(&mut answer)
            })
            .is_ok_and(|()| &answer == b"+PONG\r\n")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
