//! What a command has left behind: processes it started, files it made.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// In the environment of everything that the command starts.
const MARK: &str = "STARTED_BY_TEST";

/// The command, with a temporary folder and a mark that are this test's own.
pub fn ringfence(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence"));
    command.args(arguments).env_remove("DEST");
    command.env("TMPDIR", folder).env(MARK, folder).stdin(Stdio::null());
    command
}

/// A folder that a server running as another user can get to.
pub fn folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).expect("ours");
    folder
}

/// What it started and has left running; a zombie runs no more.
pub fn left(folder: &Path) -> Vec<String> {
    let mark = format!("{MARK}={}\0", folder.display());
    let processes = fs::read_dir("/proc").expect("Linux lists its processes").flatten();
    let ours = processes.filter(|process| {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        let marked = String::from_utf8_lossy(&environment).contains(&mark);
        // PostgreSQL writes over its environment.
        let inside = fs::read_link(process.path().join("cwd"));
        marked || inside.is_ok_and(|cwd| cwd.starts_with(folder))
    });
    let line = |path: &Path| fs::read_to_string(path.join("cmdline")).unwrap_or_default();
    ours.map(|process| line(&process.path()).replace('\0', " ")).collect()
}

/// Neither processes nor files.
pub fn nothing_is_left(folder: &Path) {
    assert_eq!(left(folder), [""; 0], "processes");
    let files: Vec<_> = fs::read_dir(folder).expect("ours").flatten().collect();
    assert!(files.is_empty(), "files: {files:?}");
}

/// No processes, though not necessarily this very moment.
pub fn all_end(folder: &Path) {
    let until = Instant::now() + PATIENCE;
    while !left(folder).is_empty() {
        assert!(Instant::now() < until, "left running: {:#?}", left(folder));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a process wrote.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
