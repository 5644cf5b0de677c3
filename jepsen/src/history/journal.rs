//! `history.jsonl`: written live, one event a line, and read back.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::op::{Kind, Op, Process};
use super::rules::Rules;

/// Writes the events of a run as they happen. An event is in the file when the call returns, so
/// a harness that dies leaves all that it saw. Whoever shares a journal reads the clock under the
/// same lock under which it appends, or time would fall.
#[derive(Debug)]
pub struct Journal<W: Write = File> {
    out: W,
    rules: Rules,
    /// Of each outstanding operation its name, arguments and node.
    outstanding: HashMap<u32, (String, Value, Option<String>)>,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// `Ok`, `Fail` or `Info`.
    pub kind: Kind,
    /// The results. Arguments that are not among them are added from the invocation.
    pub value: Value,
    /// Why it did not succeed.
    pub error: Option<String>,
    /// The node that answered, if it is another than the one that was asked.
    pub node: Option<String>,
    /// The term of the answer.
    pub term: Option<u64>,
    /// The log index of the answer.
    pub log_index: Option<u64>,
}

impl Completion {
    /// Of this kind with these results, and nothing else known.
    pub fn new(kind: Kind, value: Value) -> Completion {
        Completion { kind, value, error: None, node: None, term: None, log_index: None }
    }
}

impl Journal<File> {
    /// Begins a history at `path`.
    ///
    /// # Errors
    /// There is a file already, or none can be made.
    pub fn create(path: &Path) -> Result<Journal<File>> {
        let out = File::options().append(true).create_new(true).open(path);
        Ok(Journal::new(out.with_context(|| format!("cannot begin {}", path.display()))?))
    }
}

impl<W: Write> Journal<W> {
    /// Begins a history in `out`.
    pub fn new(out: W) -> Journal<W> {
        Journal { out, rules: Rules::default(), outstanding: HashMap::new() }
    }

    /// `process` begins `f` with these arguments at `time`.
    ///
    /// # Errors
    /// A broken rule, or the file cannot be written. Returns the event.
    pub fn invoke(
        &mut self,
        time: u64,
        process: u32,
        f: &str,
        value: Value,
        node: Option<&str>,
    ) -> Result<Op> {
        let process_of = Process::Client(process);
        let mut op = self.blank(time, process_of, Kind::Invoke, f);
        op.value = value;
        op.node = node.map(str::to_owned);
        self.append(&op)?;
        self.outstanding.insert(process, (op.f.clone(), op.value.clone(), op.node.clone()));
        Ok(op)
    }

    /// What `process` invoked is over at `time`.
    ///
    /// # Errors
    /// A broken rule, or the file cannot be written. Returns the event.
    pub fn complete(&mut self, time: u64, process: u32, end: Completion) -> Result<Op> {
        let (f, arguments, asked) =
            self.outstanding.remove(&process).context("a completion without an invocation")?;
        let mut op = self.blank(time, Process::Client(process), end.kind, &f);
        op.value = merged(arguments, end.value);
        op.error = end.error;
        op.node = end.node.or(asked);
        op.term = end.term;
        op.log_index = end.log_index;
        self.append(&op)?;
        Ok(op)
    }

    /// The nemesis began or ended `f` at `time`.
    ///
    /// # Errors
    /// A broken rule, or the file cannot be written. Returns the event.
    pub fn nemesis(&mut self, time: u64, f: &str, value: Value) -> Result<Op> {
        let mut op = self.blank(time, Process::Nemesis, Kind::Info, f);
        op.value = value;
        self.append(&op)?;
        Ok(op)
    }

    fn blank(&self, time: u64, process: Process, kind: Kind, f: &str) -> Op {
        Op {
            index: self.rules.next(),
            time,
            process,
            kind,
            f: f.to_owned(),
            value: Value::Null,
            error: None,
            node: None,
            term: None,
            log_index: None,
        }
    }

    fn append(&mut self, op: &Op) -> Result<()> {
        self.rules.admit(op)?;
        let mut line = serde_json::to_vec(op).context("an event has no form that JSON lacks")?;
        line.push(b'\n');
        self.out.write_all(&line).context("cannot write the history")?;
        self.out.flush().context("cannot write the history")
    }
}

/// The results, with the arguments that they do not name.
fn merged(arguments: Value, results: Value) -> Value {
    match (arguments, results) {
        (Value::Object(mut all), Value::Object(results)) => {
            all.extend(results);
            Value::Object(all)
        }
        (arguments, Value::Null) => arguments,
        (_, results) => results,
    }
}

/// The events of a history in order. The reading ends at the first broken rule with an error. A
/// last line without its end was being written when the harness died, and is left out.
pub fn read(input: impl BufRead) -> impl Iterator<Item = Result<Op>> {
    let mut rules = Rules::default();
    let mut lines = Lines { input, parsed: Vec::new().into_iter() };
    let mut broken = false;
    std::iter::from_fn(move || {
        if broken {
            return None;
        }
        let op = lines.next_op()?.and_then(|op| {
            rules.admit(&op)?;
            Ok(op)
        });
        broken = op.is_err();
        Some(op)
    })
}

/// Lines that are taken up together.
const LINES: usize = 16_384;
/// So many are worth a thread.
const LINES_MIN: usize = 1_024;

/// Reads many lines at a time, and parses them on all cores.
struct Lines<R> {
    input: R,
    parsed: std::vec::IntoIter<Result<Op>>,
}

impl<R: BufRead> Lines<R> {
    fn next_op(&mut self) -> Option<Result<Op>> {
        if let Some(op) = self.parsed.next() {
            return Some(op);
        }
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        while ends.len() < LINES {
            if let Err(error) = self.input.read_until(b'\n', &mut bytes) {
                return Some(Err(error).context("cannot read the history"));
            }
            if bytes.len() == ends.last().copied().unwrap_or(0) || !bytes.ends_with(b"\n") {
                break;
            }
            ends.push(bytes.len());
        }
        self.parsed = parse(&bytes, &ends).into_iter();
        self.parsed.next()
    }
}

/// Parses the lines that end at `ends`, in order.
fn parse(bytes: &[u8], ends: &[usize]) -> Vec<Result<Op>> {
    let begin = |at: usize| if at == 0 { 0 } else { ends[at - 1] };
    let lines = |from: usize, to: usize| {
        (from..to).map(|at| event(&bytes[begin(at)..ends[at]])).collect::<Vec<_>>()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = ends.len().div_ceil(cores).max(LINES_MIN);
    if ends.len() <= share {
        return lines(0, ends.len());
    }
    std::thread::scope(|scope| {
        let lines = &lines;
        let shares = (0..ends.len()).step_by(share);
        let threads: Vec<_> = shares
            .map(|from| scope.spawn(move || lines(from, ends.len().min(from + share))))
            .collect();
        let parsed = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        parsed.flatten().collect()
    })
}

fn event(line: &[u8]) -> Result<Op> {
    serde_json::from_slice(line)
        .with_context(|| format!("not an event: {}", String::from_utf8_lossy(line).trim_end()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ops(bytes: &[u8]) -> Vec<Op> {
        read(bytes).collect::<Result<_>>().unwrap()
    }

    #[test]
    fn what_was_written_is_read_and_a_completion_holds_the_arguments() {
        let mut bytes = Vec::new();
        let mut journal = Journal::new(&mut bytes);
        journal.invoke(1, 0, "acquire", json!({"resource": "mx/0"}), Some("n1")).unwrap();
        journal.nemesis(2, "pause", json!({"targets": ["n1"]})).unwrap();
        let end =
            Completion { log_index: Some(9), ..Completion::new(Kind::Ok, json!({"token": 7})) };
        let last = journal.complete(3, 0, end).unwrap();
        assert_eq!(last.value, json!({"resource": "mx/0", "token": 7}));
        assert_eq!((last.node.as_deref(), last.index), (Some("n1"), 2));
        let read = ops(&bytes);
        assert_eq!(read.len(), 3);
        assert_eq!(read[2], last);
    }

    #[test]
    fn a_journal_refuses_what_breaks_a_rule_and_writes_nothing_of_it() {
        let mut bytes = Vec::new();
        let mut journal = Journal::new(&mut bytes);
        journal.invoke(5, 0, "get", json!({}), None).unwrap();
        assert!(journal.invoke(5, 0, "get", json!({}), None).is_err(), "one is outstanding");
        assert!(journal.invoke(4, 1, "get", json!({}), None).is_err(), "time fell");
        journal.complete(6, 0, Completion::new(Kind::Info, Value::Null)).unwrap();
        assert!(journal.invoke(7, 0, "get", json!({}), None).is_err(), "it got info");
        assert!(journal.complete(7, 3, Completion::new(Kind::Ok, Value::Null)).is_err());
        assert_eq!(ops(&bytes).len(), 2);
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_a_broken_one_within_is_an_error() {
        let mut bytes = Vec::new();
        Journal::new(&mut bytes).invoke(5, 0, "get", json!({}), None).unwrap();
        let whole = bytes.clone();
        bytes.extend_from_slice(&whole[..20]);
        assert_eq!(ops(&bytes).len(), 1);
        bytes.push(b'\n');
        assert!(read(bytes.as_slice()).nth(1).unwrap().is_err());
    }

    #[test]
    fn a_journal_never_goes_on_in_a_file_of_another_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        Journal::create(&path).unwrap().nemesis(0, "start", json!({})).unwrap();
        assert!(Journal::create(&path).is_err());
    }
}
