//! The habits that no compiler checks: who may import whom, what stays in one place, how
//! long a file may be, and what each rung links. Reads `src/` as text and knows no types.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[path = "tidy/paths.rs"]
mod paths;

/// In files that start with one of `within` and with none of `outside`, no path contains one
/// of `never`, unless it contains one of `unless`.
struct Rule {
    within: &'static [&'static str],
    outside: &'static [&'static str],
    never: &'static [&'static str],
    unless: &'static [&'static str],
    why: &'static str,
}

const ALL: Rule = Rule { within: &[""], outside: &[], never: &[], unless: &[], why: "" };

#[rustfmt::skip]
const RULES: &[Rule] = &[
    // Who may import whom.
    Rule { within: &["locks/"], never: &["crate"], unless: &["crate::locks"],
        why: "the rules import nothing of the crate", ..ALL },
    Rule { within: &["leases"], never: &["crate"], unless: &["crate::locks", "crate::leases"],
        why: "leases import the rules only", ..ALL },
    Rule { within: &["feed/"], never: &["crate"], unless: &["crate::locks", "crate::feed"],
        why: "the feed imports the rules only", ..ALL },
    Rule { within: &["storage/"], never: &["crate::raft", "crate::leader", "crate::api"],
        why: "storage sees no raft, leader or api", ..ALL },
    Rule { within: &["api/"], never: &["crate::storage"],
        why: "the api sees no storage", ..ALL },
    Rule { within: &["fence"], never: &["crate"],
        unless: &["crate::fence", "crate::locks", "crate::wire", "crate::clock"],
        why: "a destination's side imports ids, wire and clock only", ..ALL },
    Rule { within: &["client/", "cli/", "console/"], outside: &["cli/serve", "cli/dev"],
        never: &["crate"],
        unless: &["crate::client", "crate::cli", "crate::console", "crate::wire", "crate::fence",
            "crate::clock", "crate::locks"],
        why: "client, cli and console have no door but the public API" },
    Rule { within: &["cli/serve", "cli/dev"],
        never: &["crate::storage", "crate::raft", "crate::leader", "crate::api"],
        why: "the commands that start a node go through crate::server", ..ALL },
    Rule { within: &["client/", "cli/", "console/"],
        never: &["crate::wire::storage", "crate::wire::peer", "crate::locks::table",
            "crate::locks::LockTable", "crate::locks::rows", "crate::locks::Row",
            "crate::locks::Change", "crate::locks::Command", "crate::locks::*"],
        why: "of the rules and the wire, outsiders see ids and the public API only", ..ALL },
    // What stays in one place.
    Rule { outside: &["raft_types.rs", "raft/", "storage/log", "storage/format"],
        never: &["openraft"],
        why: "openraft stays in raft_types, raft/, storage/log and storage/format", ..ALL },
    Rule { outside: &["storage/", "fence/rocksdb.rs", "fence/mod.rs"], never: &["rocksdb"],
        why: "RocksDB stays in storage/, and in the adapter to it", ..ALL },
    Rule { outside: &["clock.rs"],
        never: &["Instant::now", "SystemTime::now", "clock_gettime"],
        why: "clocks are read in clock.rs only; elsewhere time is an argument", ..ALL },
    // What the rules do without: order must not depend on a hash seed (I10).
    Rule { within: &["locks/", "leases"],
        never: &["HashMap", "HashSet", "RandomState"],
        why: "the order of a hash map is not a function of the log", ..ALL },
    Rule { within: &["locks/", "leases"],
        never: &["std::fs", "std::io", "std::net", "std::env", "std::thread", "std::process",
            "tokio", "rand"],
        why: "the rules do no IO, start nothing and draw nothing", ..ALL },
    // What nobody writes.
    Rule { never: &[".unwrap", "Option::unwrap", "Result::unwrap"],
        why: "expect(\"why it holds\") carries the proof, unwrap() none", ..ALL },
    Rule { never: &["dbg!", "todo!", "unimplemented!"],
        why: "left over from the workbench", ..ALL },
];

/// The length of a file, in lines.
const LINES_MAX: usize = 400;

/// Files that may be longer: path under `src/`, lines, and why.
const LONG: &[(&str, usize, &str)] = &[];

#[test]
fn the_source_keeps_the_habits() {
    let files = sources();
    assert!(files.len() > 5, "src/ holds the crate, found {} files", files.len());
    let found: Vec<String> = files.iter().flat_map(|(file, text)| check(file, text)).collect();
    assert!(found.is_empty(), "{} breaches:\n{}", found.len(), found.join("\n"));
}

#[test]
fn every_exception_to_the_length_of_a_file_is_still_needed() {
    let files = sources();
    for (file, _, why) in LONG {
        let lines = files.iter().find(|(name, _)| name == file).map(|(_, text)| lines(text));
        assert!(lines > Some(LINES_MAX), "LONG names src/{file} ({why}), which is {lines:?} long");
    }
}

/// What is planted, where, and the breach that must come of it: its line and a piece of its why.
const PLANTED: &[(&str, &str, usize, &str)] = &[
    ("locks/table.rs", "use super::*;\nuse crate::wire::v1;\n", 2, "nothing of the crate"),
    ("locks/table.rs", "use super::super::leases::Leases;\n", 1, "nothing of the crate"),
    ("locks/mod.rs", "mod tests {\n    use super::super::wire;\n}\n", 2, "nothing of the crate"),
    ("leases.rs", "fn f() {\n    super::raft::g();\n}\n", 2, "the rules only"),
    ("feed/mod.rs", "use crate::leases::Moment;\n", 1, "the feed imports the rules only"),
    ("storage/log.rs", "use crate::{locks, raft::Replica};\n", 1, "no raft, leader or api"),
    ("api/locks.rs", "use crate::{\n    storage::Db,\n};\n", 2, "sees no storage"),
    ("fence/rule.rs", "use crate::client::Guard;\n", 1, "destination's side"),
    ("client/session.rs", "use crate::raft_types::LogId;\n", 1, "no door but the public API"),
    ("cli/lock.rs", "fn f() { ringfence::server::run() }\n", 1, "no door but the public API"),
    ("cli/serve.rs", "use ringfence::storage::open;\n", 1, "go through crate::server"),
    ("client/guard.rs", "use crate::locks::{Token, LockTable};\n", 1, "ids and the public API"),
    ("client/guard.rs", "use crate::locks::*;\n", 1, "ids and the public API"),
    ("client/guard.rs", "use crate::wire::storage as s;\n", 1, "ids and the public API"),
    ("leader/term.rs", "type R = openraft::Raft<T>;\n", 1, "openraft stays"),
    ("storage/rows.rs", "use openraft as o;\n", 1, "openraft stays"),
    ("raft/machine.rs", "use rocksdb::{DB as D};\n", 1, "RocksDB stays"),
    ("leader/expiry.rs", "let a = 1;\nlet now = tokio::time::Instant::now();\n", 2, "clock.rs"),
    ("client/guard.rs", "let t = std::time::SystemTime::now();\n", 1, "clock.rs"),
    ("api/mod.rs", "use rustix::time::{ClockId, clock_gettime};\n", 1, "clock.rs"),
    ("locks/queue.rs", "use std::collections::{BTreeMap, HashMap as M};\n", 1, "hash map"),
    ("leases.rs", "let a: std::collections::HashSet<u8>;\n", 1, "hash map"),
    ("locks/image.rs", "use std::{fs::File, sync::Arc};\n", 1, "no IO"),
    ("wire/mod.rs", "let a = b\n    .unwrap();\n", 2, "carries the proof"),
    ("wire/mod.rs", "let a = b.map(Option::unwrap);\n", 1, "carries the proof"),
    ("server.rs", "match a { _ => todo!(), }\n", 1, "workbench"),
    ("server.rs", "let a = 1;\n// TO\u{44}O: b\n", 2, "an issue"),
    ("server.rs", "let a = 1; \n", 1, "ends in a blank"),
];

#[test]
fn a_planted_breach_is_convicted_on_its_line_and_every_rule_convicts() {
    let mut unproven: Vec<&str> = RULES.iter().map(|rule| rule.why).collect();
    for (file, text, line, why) in PLANTED {
        let found = check(file, text);
        let [breach] = found.as_slice() else { panic!("{file}: {text:?} gave {found:?}") };
        assert!(breach.starts_with(&format!("src/{file}:{line}: ")), "{text:?} gave {breach}");
        assert!(breach.contains(why), "{text:?} gave {breach}");
        unproven.retain(|rule| !breach.ends_with(rule));
    }
    assert!(unproven.is_empty(), "nothing planted breaks: {unproven:?}");
}

#[test]
fn a_file_one_line_too_long_is_convicted() {
    assert_eq!(check("server.rs", &"\n".repeat(LINES_MAX)), [""; 0]);
    let found = check("server.rs", &"\n".repeat(LINES_MAX + 1));
    assert_eq!(found, ["src/server.rs:401: a file ends by line 400"]);
}

#[test]
fn comments_literals_and_neighbours_are_acquitted() {
    let innocent: &[(&str, &str)] = &[
        ("locks/ids.rs", "//! See [`crate::raft`] and HashMap.\n/* rocksdb /* dbg!() */ */\n"),
        ("locks/ids.rs", "const A: &str = \"crate::raft \\\" HashMap\";\nuse super::effect;\n"),
        ("locks/ids.rs", "const A: &str = r#\"\" todo!() \"#;\nconst B: char = '\"';\n"),
        ("locks/ids.rs", "pub(crate) fn f<'a>(x: &'a u8) -> char { '\\'' }\npub(super) mod a {}\n"),
        ("locks/mod.rs", "mod tests {\n    use super::*;\n    use crate::locks::Token;\n}\n"),
        ("storage/log_reader.rs", "use openraft::RaftLogReader;\nuse rocksdb::DB;\n"),
        ("storage/rows.rs", "use crate::raft_types::LogId;\nuse crate::wire::storage;\n"),
        ("leader/term.rs", "tokio::time::sleep(a).await;\nlet b = a.unwrap_or_default();\n"),
        ("clock.rs", "let a = Instant::now();\n"),
        ("client/a.rs", "use crate::locks::{ResourceName, Token};\nif a != b {}\n"),
        ("cli/serve.rs", "use ringfence::server;\n"),
    ];
    for (file, text) in innocent {
        assert_eq!(check(file, text), [""; 0], "{file}: {text}");
    }
}

#[test]
fn the_bare_rung_links_no_async_io_or_random() {
    let tree = linked(&["--no-default-features"]);
    assert!(tree.contains(&"serde".to_owned()), "{tree:?}");
    let without = ["tokio", "mio", "tonic", "prost", "rand", "getrandom", "rustix", "libc"];
    assert_eq!(tree.iter().find(|name| without.contains(&name.as_str())), None);
}

#[test]
fn the_client_rung_links_no_engine() {
    let tree = linked(&["--no-default-features", "--features", "client"]);
    assert!(tree.contains(&"tokio".to_owned()), "{tree:?}");
    let without = ["openraft", "rocksdb", "librocksdb-sys", "clap", "toml"];
    assert_eq!(tree.iter().find(|name| without.contains(&name.as_str())), None);
}

/// The breaches in one file, each as `path:line: why`.
fn check(file: &str, text: &str) -> Vec<String> {
    let mut found = vec![];
    let mut convict = |line: usize, why: &str| found.push(format!("src/{file}:{line}: {why}"));
    for named in paths::named(file, text) {
        for rule in RULES.iter().filter(|rule| rule.binds(file)) {
            if rule.forbids(&named.path) {
                convict(named.line, &format!("{}: {}", named.path, rule.why));
            }
        }
    }
    let unfinished = [concat!("TO", "DO"), concat!("FIX", "ME")];
    for (number, line) in text.lines().enumerate() {
        if unfinished.iter().any(|word| line.contains(word)) {
            convict(number + 1, "what is left to do is an issue, not a comment");
        }
        if line.ends_with(char::is_whitespace) {
            convict(number + 1, "the line ends in a blank");
        }
    }
    let most = LONG.iter().find(|(name, ..)| *name == file).map_or(LINES_MAX, |long| long.1);
    if lines(text) > most {
        convict(most + 1, &format!("a file ends by line {most}"));
    }
    found
}

impl Rule {
    fn binds(&self, file: &str) -> bool {
        let under = |starts: &[&str]| starts.iter().any(|start| file.starts_with(start));
        under(self.within) && !under(self.outside)
    }

    fn forbids(&self, path: &str) -> bool {
        let path = format!("::{path}::");
        let holds = |parts: &[&str]| parts.iter().any(|part| path.contains(&format!("::{part}::")));
        holds(self.never) && !holds(self.unless)
    }
}

fn lines(text: &str) -> usize {
    text.lines().count()
}

/// Every Rust file under `src/`, with its path from there, in order.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut files) = (vec![root.clone()], vec![]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of src/ can be listed") {
            let path = entry.expect("an entry of src/ can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).expect("a source file is UTF-8");
                let name = path.strip_prefix(&root).expect("it was found under src/");
                files.push((name.to_string_lossy().replace('\\', "/"), text));
            }
        }
    }
    files.sort();
    files
}

/// The names of the crates that a rung links on this machine, as cargo tells them.
fn linked(rung: &[&str]) -> Vec<String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--locked", "--offline", "-e", "normal", "--prefix", "none"])
        .args(rung)
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "cargo tree {rung:?} (if crates are missing: cargo fetch --locked): {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}
