//! The history as many tasks write it: one clock, read under the lock of the journal.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};

use crate::history::{Completion, Journal, Kind};

/// The clock of the harness, and the journal.
#[derive(Debug)]
pub struct Book {
    begun: Instant,
    journal: Mutex<Journal>,
    processes: AtomicU32,
    tally: Mutex<Tally>,
}

/// How many operations have ended in which way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Took effect.
    pub ok: u64,
    /// Had no effect.
    pub fail: u64,
    /// Unknown.
    pub info: u64,
}

impl Book {
    /// Begins `history.jsonl` in this folder.
    ///
    /// # Errors
    /// As [`Journal::create`].
    pub fn begin(folder: &Path) -> Result<Book> {
        Ok(Book {
            begun: Instant::now(),
            journal: Mutex::new(Journal::create(&folder.join("history.jsonl"))?),
            processes: AtomicU32::new(0),
            tally: Mutex::default(),
        })
    }

    /// Nanoseconds since the run began.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).expect("584 years")
    }

    /// A number that no process has had.
    pub fn process(&self) -> u32 {
        self.processes.fetch_add(1, Ordering::Relaxed)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An operation begins.
    ///
    /// # Errors
    /// As [`Journal::invoke`].
    pub fn invoke(&self, process: u32, f: &str, args: Value, node: Option<&str>) -> Result<()> {
        let mut journal = self.journal();
        journal.invoke(self.now(), process, f, args, node).map(drop)
    }

    /// An operation is over.
    ///
    /// # Errors
    /// As [`Journal::complete`].
    pub fn complete(&self, process: u32, end: Completion) -> Result<()> {
        let kind = end.kind;
        let mut journal = self.journal();
        journal.complete(self.now(), process, end)?;
        drop(journal);
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        match kind {
            Kind::Ok | Kind::Invoke => tally.ok += 1,
            Kind::Fail => tally.fail += 1,
            Kind::Info => tally.info += 1,
        }
        Ok(())
    }

    /// The nemesis begins or ends `f`.
    ///
    /// # Errors
    /// As [`Journal::nemesis`].
    pub fn nemesis(&self, f: &str, value: Value) -> Result<()> {
        let mut journal = self.journal();
        journal.nemesis(self.now(), f, value).map(drop)
    }

    /// A pair of events at one time, for what has no length.
    ///
    /// # Errors
    /// As [`Journal::nemesis`].
    pub fn mark(&self, f: &str, value: Value) -> Result<()> {
        self.nemesis(f, json!({}))?;
        self.nemesis(f, value)
    }

    /// What has ended so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
