//! Help, completions and SQL.

use std::path::Path;
use std::process::Command;

use crate::run::{done, ringfence};

/// Compares what is printed with the golden file.
fn golden(name: &str, arguments: &[&str]) {
    let ended = done(ringfence(arguments));
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{arguments:?}");
    compare(name, &ended.out);
}

/// Compares a text with the golden file; `BLESS=1` writes it.
pub fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap();
    assert!(text == want, "{name}: run with BLESS=1 and look\n{text}");
}

#[test]
fn the_help_teaches_what_it_taught() {
    golden("help.txt", &["--help"]);
    golden("lock.txt", &["lock", "--help"]);
    golden("check.txt", &["check", "--help"]);
    golden("status.txt", &["status", "--help"]);
    golden("elect.txt", &["elect", "--help"]);
    golden("watch.txt", &["watch", "--help"]);
    golden("revoke.txt", &["revoke", "--help"]);
}

#[test]
fn every_command_has_help_that_fits_a_terminal() {
    let listed = done(ringfence(&["--help"])).out;
    let commands = listed.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.contains(&"lock") && !commands.contains(&"warden"), "{commands:?}");
    for command in commands {
        for help in ["-h", "--help"] {
            let text = done(ringfence(&[command, help])).out;
            let wide = text.lines().find(|line| line.chars().count() > 100);
            assert_eq!(wide, None, "{command}");
            assert!(text.contains("Usage: ringfence"), "{command}");
        }
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = env!("CARGO_PKG_VERSION");
    let said = format!("ringfence {version}\n");
    assert_eq!(done(ringfence(&["version"])).out, said);
    assert_eq!(done(ringfence(&["--version"])).out, said);
    let json = done(ringfence(&["version", "-o", "json"])).out;
    assert_eq!(json, format!("{{\n  \"version\": \"{version}\"\n}}\n"));
}

#[test]
fn completions_are_a_script_of_the_shell() {
    let script = done(ringfence(&["completions", "bash"]));
    assert_eq!(script.code, 0);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ringfence");
    std::fs::write(&file, &script.out).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&file).status().unwrap().success());
    for shell in ["bash", "zsh", "fish"] {
        let script = done(ringfence(&["completions", shell])).out;
        assert!(script.contains("sessions") && script.contains("revoke-after"), "{shell}");
        assert!(!script.contains("warden"), "{shell} completes what is not for people");
    }
}

#[test]
fn the_sql_is_what_the_library_installs() {
    let postgres = done(ringfence(&["fence", "sql"])).out;
    assert_eq!(postgres, ringfence::fence::postgres::SCHEMA_SQL);
    let mysql = done(ringfence(&["fence", "sql", "--mysql"])).out;
    assert_eq!(mysql, ringfence::fence::mysql::SCHEMA_SQL);
    let sqlite = done(ringfence(&["fence", "sql", "--sqlite"])).out;
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute_batch(&sqlite).unwrap();
    ringfence::fence::sqlite::install(&connection).unwrap();
    let marks: u32 =
        connection.query_row("SELECT count(*) FROM ringfence_marks", [], |row| row.get(0)).unwrap();
    assert_eq!(marks, 0);
}
