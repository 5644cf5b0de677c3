//! Stories of the rules, as text: every `*.script` beside this file.
//!
//! A block of commands, a line `---`, and what comes out; blank lines between
//! blocks, `#` before a remark. One command is one entry of the log, and after each
//! the whole table is checked, with its rows and a table restarted from them.
//!
//! `UPDATE_SCRIPTS=1 cargo test --test scripts` writes what comes out into the
//! files: read the difference line by line before it is committed.
//!
//! | command | entry |
//! | --- | --- |
//! | `bootstrap floor=9 sessions_max=2 …` | names the authority |
//! | `open a ttl=10s host=x` | owner a opens; its first session is called a, its next `a'` |
//! | `close a`, `ttl a 20s` | |
//! | `seen a b`, `expire a b seen=3` | what the leader says of sessions |
//! | `acquire a x y wait=30s` | a claim on all these names; without `wait` it is a try |
//! | `acquire a x shared`, `acquire a x slots=3` | in another mode |
//! | `… delay=5s strict=30s value=here` | its lock delay, its barrier, its value |
//! | `confirm a x#1`, `value a x#1 there` | what its holder does with a grant |
//! | `cancel a 3`, `release a x#1` | by request id; by name and token |
//! | `revoke x#1`, `freeze x`, `thaw x#4`, `resize x 2`, `ask x#1 within=5s` | an administrator |
//! | `expire-waits a/3 b/1` | by session and request id |
//! | `expire-barriers 1 2`, `end-closures 1 2` | by token |
//! | `settle` | what the leader proposes for grants that were left over |
//! | `blank` | an entry without a command |
//!
//! Requests take the session's next id; `id=`, `oldest=` (1 if not said),
//! `answered=2,4`, `owner=b` and `session=77` say otherwise; an administrator is called
//! ops and gives no reason but for `by=` and `why=`. No entries are: `term 2`
//! for those that follow, `restart` from the stored rows, `show facts`,
//! `show requests a`, `show all`, and `repeat 100 …`, which tells only the last; `%` in
//! it is the number of the time.

#[path = "../checked/mod.rs"]
mod checked;
mod commands;
mod diff;
mod happened;
mod names;
mod outcomes;
mod parse;
mod stage;
mod story;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use stage::Stage;
use story::Story;

#[test]
fn every_script_comes_out_as_written() {
    let update = std::env::var_os("UPDATE_SCRIPTS").is_some();
    let scripts = scripts();
    assert!(scripts.len() > 10, "only {} scripts beside this file", scripts.len());
    let mut differences = Vec::new();
    for path in scripts {
        let text = fs::read_to_string(&path).expect("a script is a readable text");
        let played = play(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if update {
            fs::write(&path, played).expect("the scripts can be written");
        } else if played != text {
            differences.push(format!("{}:\n{}", path.display(), diff::lines(&text, &played)));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn a_difference_is_told_by_its_lines() {
    assert_eq!(
        diff::lines("a\nb\nc\n", "a\nx\nc\nd\n"),
        "   1   a\n   2 - b\n   2 + x\n   3   c\n   4 + d\n"
    );
}

#[test]
fn a_script_that_makes_no_sense_is_refused_with_its_line() {
    let cases = [
        ("open a\n", "line 1: no `---` follows"),
        ("\nfly a\n---\n", "line 2: no such command: fly"),
        ("open a ttl=10\n---\n", "line 1: not a time: 10"),
        ("acquire a x\n---\n", "line 1: nobody is called a"),
    ];
    for (text, refusal) in cases {
        assert_eq!(play(text), Err(refusal.to_owned()));
    }
}

/// The script with what comes out of it.
fn play(text: &str) -> Result<String, String> {
    let mut story = Story::read(text)?;
    let mut stage = Stage::new();
    for block in &mut story.blocks {
        let mut output = Vec::new();
        for (line, command) in block.commands() {
            output.extend(stage.perform(command).map_err(|e| format!("line {line}: {e}"))?);
        }
        block.output = output;
    }
    stage.close()?;
    Ok(story.to_string())
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = fs::read_dir(folder).expect("the scripts stand beside this file");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut paths: Vec<_> =
        paths.filter(|p| p.extension().is_some_and(|e| e == "script")).collect();
    paths.sort();
    paths
}
