//! What came out, in words: entries and the whole table.

use std::collections::{BTreeMap, BTreeSet};

use ringfence::locks::{
    Effects, Event, GrantRow, Happened, LockTable, Millis, Mode, Phase, ResourceName, ResourceView,
    Row, RowKey, SessionId, WaitId, WaitRow,
};

use crate::happened::{fact, happened, is_told};
use crate::names::Names;
use crate::outcomes::outcome;

/// One entry: its outcome, beside it the resources that it touched, and below what
/// else happened.
pub fn entry(
    names: &Names,
    table: &LockTable,
    who: &str,
    effects: &Effects,
    with_facts: bool,
) -> Vec<String> {
    let at = table.position();
    let told = outcome(names, &effects.outcome);
    let mut first = format!("@{} {who}{}{told}", at.index, if who.is_empty() { "" } else { " " });
    let touched = effects.events.iter().flat_map(|event| touched(&event.what));
    let touched: BTreeSet<_> = touched.cloned().collect();
    if !touched.is_empty() {
        let queues: Vec<_> = touched.iter().map(|name| queue(names, table, name)).collect();
        first = format!("{first:<39} {}", queues.join("; "));
    }
    let mut lines = vec![first];
    let others = effects.events.iter().filter(|event| !is_told(&effects.outcome, &event.what));
    let told = |event: &Event| format!("   {}", happened(names, &event.what));
    lines.extend(in_short(others.collect(), "   ", told));
    if with_facts {
        let told = |told| format!("   ! {}", fact(names, told));
        lines.extend(in_short(effects.facts.iter().collect(), "   ! ", told));
    }
    lines
}

/// Each as `told`, but of many only the first two and the last.
fn in_short<T>(all: Vec<T>, indent: &str, told: impl Fn(T) -> String) -> Vec<String> {
    const TOLD_MAX: usize = 20;
    let count = all.len();
    let many = count > TOLD_MAX;
    let mut lines = Vec::new();
    for (n, one) in all.into_iter().enumerate() {
        if many && n == 2 {
            lines.push(format!("{indent}... {} more", count - 3));
        }
        if !many || n < 2 || n + 1 == count {
            lines.push(told(one));
        }
    }
    lines
}

/// Everything live: sessions, then resources.
pub fn table(names: &Names, table: &LockTable) -> Vec<String> {
    let sessions = table.sessions_after(SessionId(0)).map(|session| {
        let (row, changed) = (session.row, session.changed_at);
        let (name, ttl) = (names.of(row.session), time(row.ttl));
        let labels: Vec<_> = row.labels.iter().map(|(k, v)| format!(" {k}={v}")).collect();
        let (term, index) = (row.seen.term, row.seen.index);
        let seen = format!("seen in term {term} at {index}, changed at {changed}");
        format!("{name} ttl={ttl} {seen}{}", labels.concat())
    });
    let resources = table.resources_with_prefix("", None).map(|r| queue(names, table, r.name));
    let end = format!("highest token {}, {} rows", table.token(), table.rows().count());
    sessions.chain(resources).chain([end]).collect()
}

/// What is kept of a session's requests, as the store has it.
pub fn requests(names: &Names, session: SessionId, rows: &BTreeMap<RowKey, Row>) -> Vec<String> {
    let name = names.of(session);
    let mut lines = Vec::new();
    for row in rows.values() {
        match row {
            Row::Window(row) if row.session == session => {
                let finished = row.finished.iter().map(|(first, last)| format!(" {first}-{last}"));
                let finished: String = finished.collect();
                let finished = if finished.is_empty() { " none" } else { &finished };
                lines.push(format!("{name} floor {}, answered{finished}", row.floor));
            }
            Row::Outcome(row) if row.session == session => {
                let told = outcome(names, &row.outcome);
                lines.push(format!("{name}/{} {told}", row.request));
            }
            Row::Wait(row) if row.wait.session == session => {
                lines.push(format!("{} waits up to {}", wait(names, row.wait), time(row.deadline)));
            }
            Row::Meta(_) | Row::Session(_) | Row::Grant(_) => {}
            Row::Window(_) | Row::Outcome(_) | Row::Wait(_) => {}
            Row::Closure(_) | Row::Frozen(_) | Row::Resized(_) => {}
        }
    }
    if lines.is_empty() { vec![format!("{name} keeps nothing")] } else { lines }
}

/// `printer: a#1 < b < c`: who holds it under which token, and who waits, in order; then
/// what else is known of it.
fn queue(names: &Names, table: &LockTable, name: &ResourceName) -> String {
    let Some(resource) = table.resource(name) else { return format!("{name}: free") };
    let holders = in_short(resource.holders().collect(), "", |g| holder(names, g));
    let holders = if holders.is_empty() { "free".into() } else { holders.join("+") };
    let waiters = |w| format!(" < {}", waiter(names, w));
    let waiters = in_short(resource.waiters().collect(), " < ", waiters).concat();
    format!("{name}: {holders}{waiters}{}", marks(&resource))
}

/// `a#1`, and in brackets what is not plain: `a#7(slot 0, floor 5, barrier 30s)`.
fn holder(names: &Names, grant: &GrantRow) -> String {
    let mut more = Vec::new();
    if grant.mode == Mode::Shared {
        more.push("shared".to_owned());
    }
    more.extend(grant.slot.map(|slot| format!("slot {slot}")));
    if grant.floor != grant.token {
        more.push(format!("floor {}", grant.floor));
    }
    if let Phase::Barrier { deadline } = grant.phase {
        more.push(format!("barrier {}", time(deadline)));
    }
    if !grant.value.as_bytes().is_empty() {
        more.push(format!("value {:?}", grant.value));
    }
    if let Some(asked) = &grant.asked {
        more.push(format!("asked by {} within {}", asked.note.actor, time(asked.within)));
    }
    let more = if more.is_empty() { String::new() } else { format!("({})", more.join(", ")) };
    format!("{}#{}{more}", names.of(grant.wait.session), grant.token)
}

fn waiter(names: &Names, wait: &WaitRow) -> String {
    let mode = match wait.mode {
        Mode::Exclusive => String::new(),
        Mode::Shared | Mode::Slots { .. } => format!("({})", wait.mode),
    };
    format!("{}{mode}", names.of(wait.wait.session))
}

fn marks(resource: &ResourceView<'_>) -> String {
    let mut marks = String::new();
    if let Some(frozen) = resource.frozen() {
        marks.push_str(&format!(" | frozen#{}", frozen.token));
    }
    for closure in resource.closures() {
        let slot = closure.slot.map(|slot| format!(" slot {slot}")).unwrap_or_default();
        marks.push_str(&format!(" | closed#{}{slot} {}", closure.token, time(closure.delay)));
    }
    if let (Some(resized), Some(slots)) = (resource.resized(), resource.slots()) {
        marks.push_str(&format!(" | {slots} slots#{}", resized.token));
    }
    marks
}

fn touched(what: &Happened) -> &[ResourceName] {
    match what {
        Happened::Opened { .. } | Happened::Ended { .. } => &[],
        Happened::Queued { names, .. }
        | Happened::Granted { names, .. }
        | Happened::Activated { names, .. }
        | Happened::ValueChanged { names, .. }
        | Happened::Asked { names, .. }
        | Happened::GrantEnded { names, .. }
        | Happened::Reopened { names, .. }
        | Happened::LeftQueue { names, .. } => names,
        Happened::Frozen { name, .. }
        | Happened::Thawed { name, .. }
        | Happened::Resized { name, .. } => std::slice::from_ref(name),
    }
}

pub fn wait(names: &Names, wait: WaitId) -> String {
    format!("{}/{}", names.of(wait.session), wait.request)
}

pub fn time(length: Millis) -> String {
    match length.0 {
        ms if ms > 0 && ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}
