//! Redis expires keys by the wall clock of its machine, which can be stepped.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::redlock::Redlock;
use super::{LONG, Redis, until};

/// A server whose wall clock the test can step; no other clock is touched.
struct Stepped {
    dir: TempDir,
    server: Child,
}

impl Stepped {
    async fn start(shim: &Path) -> Self {
        let dir = tempfile::tempdir().expect("the temporary folder is writable");
        let server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(dir.path().join("redis.sock"))
            .arg("--dir")
            .arg(dir.path())
            .env("LD_PRELOAD", shim)
            .env("WALL_CLOCK_SHIFT", dir.path().join("shift"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("Redis is missing: apt-get install redis-server");
        let stepped = Self { dir, server };
        let client = redis::Client::open(stepped.url()).expect("it is an address");
        let ready = async || client.get_multiplexed_async_connection().await.is_ok().then_some(());
        until("it is ready", ready).await;
        stepped
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", self.dir.path().join("redis.sock").display())
    }

    /// Forward, as when an administrator, or a time service, sets a clock that was behind.
    fn step(&self, seconds: u32) {
        // Replaced in one step: the server sees the old time or the new.
        let (file, fresh) = (self.dir.path().join("shift"), self.dir.path().join("fresh"));
        let written = std::fs::write(&fresh, seconds.to_string());
        written.and_then(|()| std::fs::rename(&fresh, &file)).expect("the folder is ours");
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ended = self.server.kill();
        let _reaped = self.server.wait();
    }
}

/// Compiles the shim with the C compiler that everything here is built with.
fn shim(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/wall_clock.c");
    let library = folder.join("wall_clock.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]);
    assert!(command.status().is_ok_and(|status| status.success()), "the C compiler works");
    library
}

#[tokio::test]
async fn stepped_wall_clocks_on_a_majority_let_a_second_redlock_holder_in() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let shim = shim(folder.path());
    let steady = [Redis::start_with(&[]), Redis::start_with(&[])];
    let mut stepped = Vec::new();
    for _ in 0..3 {
        stepped.push(Stepped::start(&shim).await);
    }
    let urls = steady.iter().map(Redis::url).chain(stepped.iter().map(Stepped::url));
    let redlock = Redlock::of(urls);
    let a = redlock.acquire(LONG).await.expect("free");
    assert!(redlock.acquire(LONG).await.is_none(), "A has it");
    for server in &stepped {
        server.step(3_600);
    }
    let b = redlock.acquire(LONG).await;
    assert!(b.is_some(), "on the three whose clock says that A's time is up");
    assert!(!a.validity().is_zero(), "A counts on minutes more");
}
