//! Processes that end, or fail, at a step on the file system.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// The C shim that ends or fails a process at one of its steps.
pub struct Shim(TempDir);

impl Shim {
    /// Compiles it with the C compiler that the server is built with.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fence/steps.c");
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = Command::new(compiler)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&folder.path().join("steps.so"), &source])
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "the C compiler works");
        Self(folder)
    }

    /// The steps so far, one a line.
    #[cfg(feature = "file")]
    pub fn told(&self) -> String {
        std::fs::read_to_string(self.0.path().join("steps")).expect("it has told them")
    }
}

/// One test of this binary again, as another process that was told its role.
pub struct Another(Child, BufReader<ChildStdout>);

impl Another {
    /// Starts it, under the shim if there is one.
    pub fn start(test: &str, role: &str, directory: &Path, shim: Option<&Shim>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env("RINGFENCE_TEST_ROLE", role)
            .env("RINGFENCE_TEST_DIR", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(Shim(folder)) = shim {
            command.env("LD_PRELOAD", folder.path().join("steps.so"));
            command.env("STEPS", folder.path().join("steps"));
        }
        let mut child = command.spawn().expect("this binary runs");
        let stdout = child.stdout.take().expect("it is piped");
        Self(child, BufReader::new(stdout))
    }

    /// The next thing it says; none if it ends without.
    pub fn said(&mut self) -> Option<String> {
        let lines = (&mut self.1).lines().map_while(Result::ok);
        let mut said = lines.filter_map(|l| l.strip_prefix("> ").map(str::to_owned));
        said.next()
    }

    /// Ends it with SIGKILL, if it has not ended.
    pub fn kill(&mut self) {
        self.0.kill().expect("it is a child of ours");
        self.0.wait().expect("it is a child of ours");
    }
}

/// In another process: what it was told.
pub fn role() -> Option<(String, PathBuf)> {
    let directory = std::env::var_os("RINGFENCE_TEST_DIR")?;
    Some((std::env::var("RINGFENCE_TEST_ROLE").ok()?, directory.into()))
}
