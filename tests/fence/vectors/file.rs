//! A directory; the process that is killed is the destination, at each of its steps.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use ringfence::fence::{Fence, FenceError, file::Marks};
use ringfence::locks::{ClusterId, ResourceName, Token};
use tempfile::TempDir;

use super::{Client, Crash, Destination, PATIENCE, Vectors};
use crate::steps::{Another, Shim, role};

struct Directory(TempDir);

struct Writer(Marks, std::path::PathBuf);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary folder is writable"))
    }
}

impl Writer {
    fn open(directory: &Path) -> Self {
        let marks = Marks::new(directory).within(PATIENCE);
        marks.install().expect("the folder is ours");
        Self(marks, directory.join("ledger"))
    }
}

impl Destination for Directory {
    type Client = Writer;

    async fn client(&self) -> Writer {
        Writer::open(self.0.path())
    }
}

impl Client for Writer {
    async fn write(&mut self, fences: &[Fence], line: &str) -> Result<(), FenceError> {
        self.0.replace_with("ledger", fences, |file| {
            match File::open(&self.1) {
                Ok(mut old) => drop(io::copy(&mut old, file)?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            writeln!(file, "{line}")
        })
    }

    async fn raise(&mut self, fences: &[Fence]) -> Result<(), FenceError> {
        self.0.raise(fences)
    }

    async fn mark(&mut self, resource: &ResourceName, slot: Option<u32>) -> Option<Token> {
        self.0.mark(resource, slot).expect("installed")
    }

    async fn adopt(&mut self, from: ClusterId, to: ClusterId) {
        assert!(self.0.adopt(from, to).expect("installed") > 0);
    }

    async fn ledger(&mut self) -> Vec<String> {
        let lines = fs::read_to_string(&self.1).unwrap_or_default();
        lines.lines().map(str::to_owned).collect()
    }
}

#[test]
fn files_pass_every_vector() {
    super::tells_every_case(&Directory::new());
}

#[test]
fn sixteen_writers_never_take_a_directory_back() {
    super::sixteen_writers_never_take_it_back(&Directory::new());
}

/// Offers the last one of a crash case with this number, after `first`, which tells the shim.
fn the_last(case: &str, first: &str, directory: &Path) {
    let crash = &Vectors::read().crash[case.parse::<usize>().expect("a case")];
    let mut writer = Writer::open(directory);
    let fences = crash.last.offer.fences().expect("well-formed");
    // The file is not there: what matters is that somebody is told.
    let _ = fs::remove_file(first);
    let line = crash.line(crash.before.len());
    let answer = super::runtime().block_on(async {
        match crash.last.op {
            super::Op::Raise => writer.raise(&fences).await,
            super::Op::Write | super::Op::ReadMark | super::Op::Adopt => {
                writer.write(&fences, &line).await
            }
        }
    });
    match answer {
        Ok(()) | Err(FenceError::Stale { .. }) => println!("\n> answered"),
        Err(FenceError::Store(_)) => println!("\n> failed"),
        Err(other) => panic!("{other}"),
    }
    // Waits to be killed.
    let _ = io::stdin().read(&mut [0]);
}

/// Runs the case in a process that is killed, or whose call fails, at each step in turn until
/// it gets through. The store is then in one of the states that a crash may leave.
fn at_every_step(test: &str, what: &str) {
    let shim = Shim::new();
    for (case, crash) in Vectors::read().crash.iter().enumerate() {
        for step in 1.. {
            let directory = Directory::new();
            super::runtime().block_on(super::before(&mut Writer::open(directory.0.path()), crash));
            let role = format!("{case} {what}-at/{step}");
            let mut process = Another::start(test, &role, directory.0.path(), Some(&shim));
            let said = process.said();
            process.kill();
            let answered = said.as_deref() == Some("answered");
            if answered || !crash.answered {
                super::runtime().block_on(is_whole(&directory, crash, answered));
            }
            if answered {
                assert!(step > 9 || refused(crash), "{}: {step} steps only", crash.name);
                break;
            }
            assert_eq!(said.is_none(), what == "kill", "{}: {said:?}", crash.name);
        }
    }
}

fn refused(crash: &Crash) -> bool {
    crash.last.verdict != Some(super::Verdict::Accept)
}

async fn is_whole(directory: &Directory, crash: &Crash, answered: bool) {
    let mut writer = directory.client().await;
    if answered && !refused(crash) {
        let line = crash.line(crash.before.len());
        let there = writer.ledger().await.contains(&line);
        assert_eq!(there, crash.last.op == super::Op::Write, "{}", crash.name);
    }
    super::is_as_the_crash_may_leave_it(&mut writer, crash).await;
}

#[test]
fn a_directory_is_as_every_crash_may_leave_it_killed_at_every_step() {
    if let Some((role, directory)) = role() {
        let (case, first) = role.split_once(' ').expect("two words");
        return the_last(case, first, &directory);
    }
    let test = "a_directory_is_as_every_crash_may_leave_it_killed_at_every_step";
    at_every_step(&format!("vectors::file::{test}"), "kill");
}

#[test]
fn a_full_disk_at_any_step_leaves_a_write_and_its_marks_together() {
    if let Some((role, directory)) = role() {
        let (case, first) = role.split_once(' ').expect("two words");
        return the_last(case, first, &directory);
    }
    let test = "a_full_disk_at_any_step_leaves_a_write_and_its_marks_together";
    at_every_step(&format!("vectors::file::{test}"), "fail");
}
