//! W2: fencing at a real destination.
//!
//! Reads `dest-ledger.jsonl`, `write` (resource, token, element), and which tokens were granted
//! to whom, by `acquire` and by the audit feed.

use std::collections::HashMap;

use super::evidence::{Entry, EventKind, Name, Reason, Session};
use super::{Checker, Run, Verdict, session};

/// W2: the rule of the fence at every entry in the order of the destination; tokens that were
/// granted, to the one who uses them; what was acknowledged is there, once; counters that were
/// read and written back lost nothing.
pub struct Ledger;

impl Checker for Ledger {
    fn name(&self) -> &'static str {
        "ledger"
    }

    fn check(&self, run: &Run, verdict: &mut Verdict) {
        let Some(ledger) = &run.evidence.ledger else {
            if !run.evidence.writes.is_empty() {
                verdict.doubt("there were writes, and there is no ledger".to_owned());
            }
            return;
        };
        let mut at: HashMap<Name, u64> = HashMap::new();
        let told: HashMap<Name, u64> =
            run.evidence.writes.iter().map(|write| (write.element, write.at.ret)).collect();
        let mut marks = Marks::default();
        let mut counters: HashMap<(Name, Name), (u64, u64)> = HashMap::new();
        for entry in ledger {
            verdict.add("entries", 1);
            in_order(run, &mut at, entry, verdict);
            let op = entry.element.and_then(|element| told.get(&element)).copied();
            let ops: Vec<u64> = op.into_iter().collect();
            for what in marks.judge(entry) {
                verdict.convict(run.name(entry.resource), &ops, what);
            }
            if let Some(what) = counted(&mut counters, entry) {
                verdict.convict(run.name(entry.resource), &ops, what);
            }
        }
        of_the_granted(run, ledger, &told, verdict);
        acknowledged(run, ledger, verdict);
    }
}

fn in_order(run: &Run, at: &mut HashMap<Name, u64>, entry: &Entry, verdict: &mut Verdict) {
    let last = at.insert(entry.dest, entry.seq);
    if last.is_some_and(|last| last >= entry.seq) {
        let dest = run.name(entry.dest);
        verdict.doubt(format!("the ledger of {dest} is out of order at {}", entry.seq));
    }
}

/// The marks that a destination must have, by its ledger.
#[derive(Default)]
struct Marks {
    resources: HashMap<(Name, Name), u64>,
    slots: HashMap<(Name, Name, u32), u64>,
}

impl Marks {
    /// What the entry broke, and the marks go up.
    fn judge(&mut self, entry: &Entry) -> Vec<String> {
        let key = (entry.dest, entry.resource);
        let mark = self.resources.entry(key).or_default();
        let mut below = *mark;
        if let Some(slot) = entry.slot {
            let slot = self.slots.entry((key.0, key.1, slot)).or_default();
            below = below.max(*slot);
            if entry.accepted {
                *slot = entry.token.max(*slot);
            }
        }
        let (seq, token) = (entry.seq, entry.token);
        let mut broken = Vec::new();
        if entry.accepted && token < below {
            broken.push(format!("entry {seq} accepts token {token} below the mark {below}"));
        }
        if entry.accepted && entry.floor > token {
            let floor = entry.floor;
            broken.push(format!("entry {seq} accepts the floor {floor} above token {token}"));
        }
        if !entry.accepted && entry.reason == Reason::Fenced && token >= below {
            broken.push(format!("entry {seq} refuses token {token} at the mark {below}"));
        }
        if entry.accepted {
            *mark = entry.floor.max(*mark);
        }
        broken
    }
}

/// A counter that was read and written back under the lock goes up by one.
fn counted(counters: &mut HashMap<(Name, Name), (u64, u64)>, entry: &Entry) -> Option<String> {
    let counter = entry.counter.filter(|_| entry.accepted)?;
    let last = counters.insert((entry.dest, entry.resource), (counter, entry.seq));
    let (before, at) = last.unwrap_or((0, 0));
    (counter != before + 1).then(|| {
        format!(
            "entry {} stores {counter} after {before} in entry {at}: an update was lost",
            entry.seq
        )
    })
}

/// Every token was granted, on that resource, to that session.
fn of_the_granted(run: &Run, ledger: &[Entry], told: &HashMap<Name, u64>, verdict: &mut Verdict) {
    let mut known: HashMap<(Name, u64), Session> = HashMap::new();
    for tenure in &run.facts.tenures {
        known.entry((tenure.resource, tenure.token)).or_insert(tenure.session);
    }
    let complete = run
        .evidence
        .audit
        .as_ref()
        .is_some_and(|audit| audit.iter().all(|event| event.kind != EventKind::Gap));
    for entry in ledger.iter().filter(|entry| entry.accepted && entry.element.is_some()) {
        let by = session(entry.session);
        let op = entry.element.and_then(|element| told.get(&element)).copied();
        let ops: Vec<u64> = op.into_iter().collect();
        match known.get(&(entry.resource, entry.token)) {
            Some(owner) if *owner != entry.session => {
                let owner = session(*owner);
                let what = format!("token {} of {owner} was used by {by}", entry.token);
                verdict.convict(run.name(entry.resource), &ops, what);
            }
            Some(_) => {}
            None if complete => {
                let what = format!("token {}, used by {by}, was never granted", entry.token);
                verdict.convict(run.name(entry.resource), &ops, what);
            }
            None => verdict.add("tokens that nobody knows", 1),
        }
    }
}

/// What was acknowledged is in the ledger, and nothing is there twice.
fn acknowledged(run: &Run, ledger: &[Entry], verdict: &mut Verdict) {
    let mut times: HashMap<Name, u64> = HashMap::new();
    for element in ledger.iter().filter(|entry| entry.accepted).filter_map(|e| e.element) {
        *times.entry(element).or_default() += 1;
    }
    let mut asked: HashMap<Name, u64> = HashMap::new();
    for write in &run.evidence.writes {
        *asked.entry(write.element).or_default() += 1;
    }
    for write in &run.evidence.writes {
        let name = run.name(write.element);
        let count = times.get(&write.element).copied().unwrap_or(0);
        if write.at.ok() && count == 0 {
            let what = format!("the acknowledged element {name} is missing");
            verdict.convict(run.name(write.resource), &[write.at.inv, write.at.ret], what);
        }
        if count > asked[&write.element] {
            let what = format!("the element {name} is there {count} times");
            verdict.convict(run.name(write.resource), &[write.at.inv, write.at.ret], what);
        }
        if write.at.kind == crate::history::Kind::Fail && asked[&write.element] == 1 && count > 0 {
            let what = format!("the refused element {name} is there");
            verdict.convict(run.name(write.resource), &[write.at.inv, write.at.ret], what);
        }
    }
}
