//! What the child process does until it is killed, and what its parent may conclude
//! from the lines it wrote: one before it asks for something, one when that was
//! acknowledged.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use openraft::storage::{RaftLogReader, RaftLogStorage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use ringfence::raft_types::{Entry, LogId};
use ringfence::storage::format::log_id;
use ringfence::storage::{LogStore, Storage};

use crate::kit::{append, applied, command, flushed, open, put, vote};

/// Rows of the story: entry `i` is applied by writing `i` to row `i % ROWS`.
pub const ROWS: u64 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// A vote for this term is about to be asked for; is on disk.
    Voting(u64),
    Voted(u64),
    /// Entries `first..=last` of a term.
    Appending(u64, u64, u64),
    Appended(u64, u64, u64),
    /// What is behind this index goes; up to this index goes.
    Truncating(u64),
    Purging(u64),
    /// Rows as of this index are asked for; are on disk.
    Applying(u64),
    Synced(u64),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Voting(a) => write!(f, "voting {a}"),
            Self::Voted(a) => write!(f, "voted {a}"),
            Self::Appending(a, b, c) => write!(f, "appending {a} {b} {c}"),
            Self::Appended(a, b, c) => write!(f, "appended {a} {b} {c}"),
            Self::Truncating(a) => write!(f, "truncating {a}"),
            Self::Purging(a) => write!(f, "purging {a}"),
            Self::Applying(a) => write!(f, "applying {a}"),
            Self::Synced(a) => write!(f, "synced {a}"),
        }
    }
}

impl FromStr for Line {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        match (kind, &numbers[..]) {
            ("voting", [a]) => Ok(Self::Voting(*a)),
            ("voted", [a]) => Ok(Self::Voted(*a)),
            ("appending", [a, b, c]) => Ok(Self::Appending(*a, *b, *c)),
            ("appended", [a, b, c]) => Ok(Self::Appended(*a, *b, *c)),
            ("truncating", [a]) => Ok(Self::Truncating(*a)),
            ("purging", [a]) => Ok(Self::Purging(*a)),
            ("applying", [a]) => Ok(Self::Applying(*a)),
            ("synced", [a]) => Ok(Self::Synced(*a)),
            _ => Err(format!("no line of the story: {line}")),
        }
    }
}

/// One write, so that a kill tears no line but the last.
fn say(line: Line) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).expect("the parent listens");
}

struct Child {
    storage: Storage,
    log: LogStore,
    random: StdRng,
    term: u64,
    next: u64,
    applied: u64,
    purged: u64,
}

/// Goes on with the folder until the process is killed.
pub async fn live(dir: &Path, seed: u64) {
    let storage = open(dir);
    let mut log = storage.log();
    let term = log.read_vote().await.expect("readable").map_or(0, |v| v.leader_id.term);
    let bounds = log.get_log_state().await.expect("readable");
    let (state, _) = storage.rows().load().expect("readable");
    let mut child = Child {
        next: bounds.last_log_id.map_or(0, |id| id.index + 1),
        applied: state.last_applied.map_or(0, |id| id.index),
        purged: bounds.last_purged_log_id.map_or(0, |id| id.index),
        random: StdRng::seed_from_u64(seed),
        storage,
        log,
        term,
    };
    child.new_term(false).await;
    loop {
        child.step().await;
    }
}

impl Child {
    async fn step(&mut self) {
        match self.random.random_range(0..20) {
            0 => self.new_term(true).await,
            1 if self.applied > self.purged + 50 => {
                self.purged = self.random.random_range(self.purged + 1..self.applied - 20);
                say(Line::Purging(self.purged));
                let id = self.id(self.purged).await;
                self.log.purge(id).await.expect("queued");
            }
            2 => {
                self.storage.rows().sync().await.expect("on disk");
                say(Line::Synced(self.applied));
            }
            _ => self.append().await,
        }
    }

    /// Entries, and at once the rows of all but the last few of them: rows that must
    /// not reach the disk before their entries.
    async fn append(&mut self) {
        let (first, last) = (self.next, self.next + self.random.random_range(0..4));
        let len = if self.random.random_range(0..50) == 0 { 70_000 } else { 60 };
        say(Line::Appending(self.term, first, last));
        let entries = (first..=last).map(|index| command(self.term, index, len)).collect();
        let flushing = append(&mut self.log, entries).await;
        self.next = last + 1;
        let until = last.saturating_sub(3);
        if until > self.applied {
            say(Line::Applying(until));
            for index in self.applied + 1..=until {
                let row = put(&format!("{:02}", index % ROWS), &index.to_string());
                let id = self.id(index).await;
                self.storage.rows().write_behind(vec![row], applied(id.leader_id.term, index));
            }
            self.applied = until;
        }
        let term = self.term;
        let acknowledged = async move {
            flushed(flushing).await.expect("on disk");
            say(Line::Appended(term, first, last));
        };
        if self.random.random_range(0..3) == 0 {
            acknowledged.await;
        } else {
            tokio::spawn(acknowledged);
        }
    }

    /// A vote, then perhaps a shorter log, then the first entry of the term: asked
    /// for one right after the other, which must be their order on disk.
    async fn new_term(&mut self, truncate: bool) {
        self.term += 1;
        say(Line::Voting(self.term));
        let vote = vote(self.term);
        let mut voter = self.log.clone();
        let voting = async {
            voter.save_vote(&vote).await.expect("on disk");
            say(Line::Voted(vote.leader_id.term));
        };
        let keep = self.random.random_range(self.applied..self.next.max(self.applied + 1));
        let appending = async {
            if truncate && keep + 1 < self.next {
                say(Line::Truncating(keep));
                let id = Self::id_in(&mut self.log, keep).await;
                self.log.truncate_after(Some(id)).await.expect("queued");
                self.next = keep + 1;
            }
            say(Line::Appending(vote.leader_id.term, self.next, self.next));
            let entry = command(vote.leader_id.term, self.next, 30);
            let flushing = append(&mut self.log, vec![entry]).await;
            flushed(flushing).await.expect("on disk");
            say(Line::Appended(vote.leader_id.term, self.next, self.next));
            self.next += 1;
        };
        // Polled in this order: the vote is asked for first.
        tokio::join!(biased; voting, appending);
    }

    async fn id(&mut self, index: u64) -> LogId {
        Self::id_in(&mut self.log, index).await
    }

    async fn id_in(log: &mut LogStore, index: u64) -> LogId {
        log.try_get_log_entries(index..=index).await.expect("readable")[0].log_id
    }
}

/// What the folder must and may hold after what was said.
#[derive(Debug, Default)]
pub struct Said {
    voting: u64,
    voted: u64,
    /// Acknowledged and not asked to go: index to term.
    must: BTreeMap<u64, u64>,
    /// Asked for and not asked to go: index to term.
    live: BTreeMap<u64, u64>,
    /// Ever asked for: term, first, last.
    may: Vec<(u64, u64, u64)>,
    purging: u64,
    applying: u64,
    synced: u64,
}

impl Said {
    /// What a folder opened between two lives holds must be there from then on.
    pub async fn found(&mut self, storage: &Storage) {
        let mut log = storage.log();
        self.must.clear();
        self.live.clear();
        for entry in log.try_get_log_entries(..).await.expect("readable") {
            self.must.insert(entry.log_id.index, entry.log_id.leader_id.term);
        }
        self.live = self.must.clone();
        let (state, _) = storage.rows().load().expect("readable");
        self.synced = state.last_applied.map_or(0, |id| id.index);
        self.voted = log.read_vote().await.expect("readable").map_or(0, |v| v.leader_id.term);
    }

    pub fn hear(&mut self, line: Line) {
        match line {
            Line::Voting(term) => self.voting = term,
            Line::Voted(term) => self.voted = term,
            Line::Appending(term, first, last) => {
                self.may.push((term, first, last));
                self.live.extend((first..=last).map(|index| (index, term)));
            }
            Line::Appended(term, first, last) => {
                // A late callback speaks of entries that may be gone since.
                let live = (first..=last).filter(|index| self.live.get(index) == Some(&term));
                self.must.extend(live.map(|index| (index, term)));
            }
            Line::Truncating(keep) => {
                self.live.split_off(&(keep + 1));
                self.must.split_off(&(keep + 1));
            }
            Line::Purging(upto) => self.purging = upto,
            Line::Applying(index) => self.applying = index,
            Line::Synced(index) => self.synced = index,
        }
    }

    /// Nothing acknowledged is missing, nothing is there that was not asked for, and
    /// nothing came to the disk before what was asked for earlier.
    pub async fn check(&self, storage: &Storage) {
        let mut log = storage.log();
        let vote = log.read_vote().await.expect("readable").map_or(0, |v| v.leader_id.term);
        assert!((self.voted..=self.voting.max(self.voted)).contains(&vote), "{vote} {self:?}");
        let state = log.get_log_state().await.expect("readable");
        let purged = state.last_purged_log_id.map_or(0, |id| id.index);
        assert!(purged <= self.purging, "purged {purged}, asked for {}", self.purging);
        let entries = log.try_get_log_entries(..).await.expect("readable");
        let terms: BTreeMap<u64, u64> =
            entries.iter().map(|e| (e.log_id.index, e.log_id.leader_id.term)).collect();
        for (index, term) in self.must.range(purged + 1..) {
            assert_eq!(terms.get(index), Some(term), "acknowledged entry {index}");
        }
        for entry in &entries {
            self.check_entry(entry);
        }
        let last = state.last_log_id.unwrap_or_else(|| log_id(0, 0));
        assert!(last.leader_id.term <= vote, "entry {last} of a term above the vote {vote}");
        self.check_rows(storage, last);
    }

    fn check_entry(&self, entry: &Entry) {
        let LogId { leader_id, index } = entry.log_id;
        let before = self.must.get(&index) == Some(&leader_id.term);
        let asked = |m: &&(u64, u64, u64)| m.0 == leader_id.term && (m.1..=m.2).contains(&index);
        assert!(before || self.may.iter().any(|m| asked(&m)), "{} unasked for", entry.log_id);
        let same =
            [30, 60, 70_000].iter().any(|len| *entry == command(leader_id.term, index, *len));
        assert!(same, "entry {} has other content", entry.log_id);
    }

    fn check_rows(&self, storage: &Storage, last: LogId) {
        let (state, rows) = storage.rows().load().expect("readable");
        let applied = state.last_applied.unwrap_or_else(|| log_id(0, 0)).index;
        assert!(applied <= last.index, "rows of {applied} outran the log, which ends at {last}");
        assert!(applied >= self.synced, "{applied} {self:?}");
        assert!(applied <= self.applying.max(self.synced), "{applied} {self:?}");
        assert_eq!(rows.len() as u64, applied.min(ROWS), "rows as of {applied}");
        for (key, value) in rows {
            let number = |bytes: &[u8]| -> u64 {
                std::str::from_utf8(bytes).expect("digits").parse().expect("a number")
            };
            let (row, value) = (number(&key), number(&value));
            let newest = (applied.saturating_sub(ROWS - 1)..=applied).find(|i| i % ROWS == row);
            assert_eq!(Some(value), newest, "row {row} as of {applied}");
        }
    }
}
