//! What came out, in words.

use std::collections::{BTreeMap, BTreeSet};

use ringfence::locks::{
    Done, Effects, EndCause, Fact, GrantEndCause, Happened, LeaveCause, Limit, LockTable, Millis,
    Outcome, Refusal, ResourceName, Row, RowKey, SessionId, WaitId,
};

use crate::names::Names;

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
    let told = outcome(&effects.outcome);
    let mut first = format!("@{} {who}{}{told}", at.index, if who.is_empty() { "" } else { " " });
    let touched = effects.events.iter().flat_map(|event| touched(&event.what));
    let touched: BTreeSet<_> = touched.cloned().collect();
    if !touched.is_empty() {
        let queues: Vec<_> = touched.iter().map(|name| queue(names, table, name)).collect();
        first = format!("{first:<39} {}", queues.join("; "));
    }
    let mut lines = vec![first];
    let others = effects.events.iter().filter(|event| !is_told(&effects.outcome, &event.what));
    lines.extend(others.map(|event| format!("   {}", happened(names, &event.what))));
    if with_facts {
        lines.extend(effects.facts.iter().map(|told| format!("   ! {}", fact(names, told))));
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
                let told = outcome(&row.outcome);
                lines.push(format!("{name}/{} {told}", row.request));
            }
            Row::Wait(row) if row.wait.session == session => {
                lines.push(format!("{} waits up to {}", wait(names, row.wait), time(row.deadline)));
            }
            Row::Meta(_) | Row::Session(_) | Row::Grant(_) => {}
            Row::Window(_) | Row::Outcome(_) | Row::Wait(_) => {}
        }
    }
    if lines.is_empty() { vec![format!("{name} keeps nothing")] } else { lines }
}

fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Ok(done) => self::done(done),
        Err(refusal) => format!("refused {}", self::refusal(refusal)),
    }
}

fn done(done: &Done) -> String {
    match done {
        Done::Nothing => "ok".into(),
        Done::Opened { ttl, created: true, .. } => format!("opened ttl={}", time(*ttl)),
        Done::Opened { ttl, created: false, .. } => format!("is open ttl={}", time(*ttl)),
        Done::Closed => "closed".into(),
        Done::TtlSet { ttl } => format!("set ttl={}", time(*ttl)),
        Done::Granted { token } => format!("granted token={token}"),
        Done::Queued { ahead } => format!("queued behind {ahead}"),
        Done::Released { at } => format!("released at {at}"),
        Done::CancelledTarget => "cancelled".into(),
    }
}

/// By the names of section 11 of the contract.
fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::SessionExpired => "SESSION_EXPIRED".into(),
        Refusal::SessionUnknown => "SESSION_UNKNOWN".into(),
        Refusal::NotBootstrapped => "NOT_BOOTSTRAPPED".into(),
        Refusal::StaleRequest => "STALE_REQUEST".into(),
        Refusal::WindowFull => "WINDOW_FULL".into(),
        Refusal::RequestChanged => "INVALID_ARGUMENT request_id".into(),
        Refusal::Busy { holder: Some(token), waiting } => {
            format!("BUSY token={token} waiting={waiting}")
        }
        Refusal::Busy { holder: None, waiting } => format!("BUSY waiting={waiting}"),
        Refusal::AlreadyHeld { resource, token, mode } => {
            format!("ALREADY_HELD {resource}#{token} {mode:?}")
        }
        Refusal::AlreadyWaiting { resource, request } => {
            format!("ALREADY_WAITING {resource} id={request}")
        }
        Refusal::GrantEnded { token } => format!("GRANT_ENDED token={token}"),
        Refusal::Cancelled => "CANCELLED".into(),
        Refusal::WaitTimeout => "WAIT_TIMEOUT".into(),
        Refusal::NotHeld => "NOT_HELD".into(),
        Refusal::QueueFull { max } => format!("QUEUE_FULL max={max}"),
        Refusal::LimitReached { limit, max } => {
            let limit = match limit {
                Limit::Sessions => "sessions",
                Limit::PlacesPerSession => "places",
                Limit::Tokens => "tokens",
            };
            format!("LIMIT_REACHED {limit} max={max}")
        }
        Refusal::TtlOutOfBounds { min, max } => {
            format!("INVALID_ARGUMENT ttl {} to {}", time(*min), time(*max))
        }
    }
}

/// Whether the outcome has told this already.
fn is_told(outcome: &Outcome, what: &Happened) -> bool {
    match (outcome, what) {
        (Ok(Done::Opened { session: told, .. }), Happened::Opened { session }) => told == session,
        (Ok(Done::Granted { token: told }), Happened::Granted { token, .. }) => told == token,
        (Ok(Done::Queued { .. }), Happened::Queued { .. })
        | (Ok(Done::Closed), Happened::Ended { .. }) => true,
        (Ok(Done::Released { at: _ }), Happened::GrantEnded { cause, .. }) => {
            *cause == GrantEndCause::Released
        }
        _ => false,
    }
}

fn happened(names: &Names, what: &Happened) -> String {
    match what {
        Happened::Opened { session } => format!("{} opened", names.of(*session)),
        Happened::Ended { session, cause } => format!("{} {}", names.of(*session), ended(*cause)),
        Happened::Queued { wait: id, .. } => format!("{} queued", wait(names, *id)),
        Happened::Granted { wait: id, token, .. } => {
            format!("{} granted token={token}", wait(names, *id))
        }
        Happened::GrantEnded { wait: id, token, cause, .. } => {
            let cause = match cause {
                GrantEndCause::Released => "released",
                GrantEndCause::Session(cause) => ended(*cause),
            };
            format!("{} ended token={token}: {cause}", wait(names, *id))
        }
        Happened::LeftQueue { wait: id, cause, .. } => {
            let cause = match cause {
                LeaveCause::Cancelled => "cancelled",
                LeaveCause::TimedOut => "timed out",
                LeaveCause::Session(cause) => ended(*cause),
            };
            format!("{} left the queue: {cause}", wait(names, *id))
        }
    }
}

fn fact(names: &Names, fact: &Fact) -> String {
    match fact {
        Fact::TermBegan { term, previous } => format!("term {term} began after {previous}"),
        Fact::Seen { session, ttl, term, index } => {
            format!("{} seen in term {term} at {index} ttl={}", names.of(*session), time(*ttl))
        }
        Fact::Ended { session } => format!("{} ended", names.of(*session)),
        Fact::WaitBegan { wait: id, deadline } => {
            format!("{} waits up to {}", wait(names, *id), time(*deadline))
        }
        Fact::WaitEnded { wait: id } => format!("{} waits no more", wait(names, *id)),
    }
}

/// `printer: a#1 < b < c`: who holds it under which token, and who waits, in order.
fn queue(names: &Names, table: &LockTable, name: &ResourceName) -> String {
    let Some(resource) = table.resource(name) else { return format!("{name}: free") };
    let holders = resource.holders();
    let holders: Vec<_> =
        holders.map(|g| format!("{}#{}", names.of(g.wait.session), g.token)).collect();
    let holders = if holders.is_empty() { "free".into() } else { holders.join("+") };
    let waiters = resource.waiters().map(|w| format!(" < {}", names.of(w.wait.session)));
    format!("{name}: {holders}{}", waiters.collect::<String>())
}

fn touched(what: &Happened) -> &[ResourceName] {
    match what {
        Happened::Opened { .. } | Happened::Ended { .. } => &[],
        Happened::Queued { names, .. }
        | Happened::Granted { names, .. }
        | Happened::GrantEnded { names, .. }
        | Happened::LeftQueue { names, .. } => names,
    }
}

fn wait(names: &Names, wait: WaitId) -> String {
    format!("{}/{}", names.of(wait.session), wait.request)
}

const fn ended(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Closed => "closed",
        EndCause::Expired => "expired",
    }
}

fn time(length: Millis) -> String {
    match length.0 {
        ms if ms > 0 && ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}
