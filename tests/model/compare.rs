//! What the table says, beside what the model says.

use std::collections::{BTreeMap, BTreeSet};

use ringfence::locks::{
    Blocked, Claim, ClosureRow, Command, Fact, FrozenRow, GrantRow, Happened, MetaRow, Millis,
    Outcome, OutcomeRow, Phase, Position, Refusal, ResizedRow, ResourceName, Row, SessionId,
    SessionRow, Timer, WaitRow, WindowRow,
};

use crate::checked::Checked;
use crate::naive::Naive;

/// What runs by time, and how long.
pub fn timers(model: &Naive) -> BTreeMap<Timer, Millis> {
    let waits = model.waits.iter().map(|w| (Timer::Wait(w.wait), w.deadline));
    let barriers = model.grants.iter().filter_map(|g| match g.phase {
        Phase::Active => None,
        Phase::Barrier { deadline } => Some((Timer::Barrier(g.token), deadline)),
    });
    let closures = model.closures.iter().map(|c| (Timer::Closure(c.token), c.delay));
    waits.chain(barriers).chain(closures).collect()
}

/// What the leases must be told, from what the model was before and is now.
pub fn facts_of(model: &Naive, last: Position, before: &BTreeMap<Timer, Millis>) -> Vec<String> {
    let mut facts = Vec::new();
    let (term, index) = (model.at.term, model.at.index);
    if term != last.term {
        facts.push(Fact::TermBegan { term, previous: last.term });
    }
    let seen = model.sessions.iter().filter(|s| s.seen.index == index);
    facts.extend(seen.map(|s| Fact::Seen { session: s.id, ttl: s.ttl, term, index }));
    for event in &model.events {
        if let Happened::Ended { session, .. } = event {
            facts.push(Fact::Ended { session: *session });
        }
    }
    let now = timers(model);
    let began = now.iter().filter(|(timer, _)| !before.contains_key(timer));
    facts.extend(began.map(|(&timer, &after)| Fact::TimerBegan { timer, after }));
    let ended = before.keys().filter(|timer| !now.contains_key(timer));
    facts.extend(ended.map(|&timer| Fact::TimerEnded { timer }));
    sorted(&facts)
}

/// The order of facts is that of the table's work; what counts is that each is told
/// once.
pub fn sorted(facts: &[Fact]) -> Vec<String> {
    let mut facts: Vec<_> = facts.iter().map(|fact| format!("{fact:?}")).collect();
    facts.sort();
    facts.dedup_by(|a, b| a == b && a.starts_with("Seen"));
    facts
}

/// All rows that the model comes to.
pub fn rows_of(model: &Naive, table: &Checked) -> Vec<Row> {
    let bootstrap = model.bootstrap.as_ref().expect("every case begins with it");
    let (cluster, limits) = (Some(bootstrap.cluster), bootstrap.limits);
    let mut rows =
        vec![Row::Meta(MetaRow { cluster, position: model.at, token: model.token, limits })];
    for s in &model.sessions {
        let (session, owner, ttl, seen) = (s.id, s.owner, s.ttl, s.seen);
        rows.push(Row::Session(SessionRow { session, owner, ttl, seen, labels: BTreeMap::new() }));
        let (floor, finished, changed_at) = (s.floor, Naive::ranges(s), s.changed_at);
        rows.push(Row::Window(WindowRow { session, floor, finished, changed_at }));
        for answer in &s.answers {
            let fingerprint = answer.contents.as_ref().map(|_| 0);
            let (request, outcome) = (answer.id, answer.outcome.clone());
            rows.push(Row::Outcome(OutcomeRow { session, request, fingerprint, outcome }));
        }
    }
    rows.extend(model.grants.iter().map(grant_row));
    for w in &model.waits {
        let (wait, names, deadline, queued_at) = (w.wait, w.names.clone(), w.deadline, w.at);
        let (fingerprint, mode, terms) = (0, w.mode, w.terms.clone());
        let row = WaitRow { wait, fingerprint, names, mode, deadline, queued_at, terms };
        rows.push(Row::Wait(row));
    }
    for c in model.closures.iter().cloned() {
        let (token, names, mode, slot) = (c.token, c.names, c.mode, c.slot);
        let (delay, since) = (c.delay, c.since);
        rows.push(Row::Closure(ClosureRow { token, names, mode, slot, delay, since }));
    }
    for f in model.freezes.iter().cloned() {
        let (token, name, note, since) = (f.token, f.name, f.note, f.since);
        rows.push(Row::Frozen(FrozenRow { token, name, note, since }));
    }
    for r in model.resizes.iter().cloned() {
        let (token, name, slots, note, since) = (r.token, r.name, r.slots, r.note, r.since);
        rows.push(Row::Resized(ResizedRow { token, name, slots, note, since }));
    }
    rows.sort_by_key(Row::key);
    assert_eq!(table.table().token(), model.token);
    rows
}

/// Fingerprints are of the table, and which cycle is told is for it to choose.
pub fn comparable(table: &Checked) -> Vec<Row> {
    let rows = table.rows().values().cloned().map(|row| match row {
        Row::Outcome(mut row) => {
            row.fingerprint = row.fingerprint.map(|_| 0);
            row.outcome = without_cycle(&row.outcome);
            Row::Outcome(row)
        }
        Row::Wait(mut row) => {
            row.fingerprint = 0;
            Row::Wait(row)
        }
        Row::Meta(_) | Row::Session(_) | Row::Window(_) | Row::Grant(_) => row,
        Row::Closure(_) | Row::Frozen(_) | Row::Resized(_) => row,
    });
    rows.collect()
}

/// The model tells no cycle.
pub fn without_cycle(outcome: &Outcome) -> Outcome {
    match outcome {
        Err(Refusal::Deadlock { .. }) => Err(Refusal::Deadlock { cycle: Vec::new() }),
        other => other.clone(),
    }
}

/// Each of a refusal's cycle waits for what the next one holds or stands before. The
/// model is as it was before; what was refused earlier may be no cycle any more.
pub fn cycle_is_true(
    model: &Naive,
    command: Option<&Command>,
    outcome: &Outcome,
) -> Result<(), String> {
    let (Some(Command::Acquire { header, claim, .. }), Err(Refusal::Deadlock { cycle })) =
        (command, outcome)
    else {
        return Ok(());
    };
    let mut answers = model.sessions.iter().filter(|s| s.id == header.session);
    if answers.any(|s| s.answers.iter().any(|answer| answer.id == header.id)) {
        return Ok(());
    }
    let asks = (header.session, claim);
    for (step, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
        if !leads_on(model, asks, step, next) {
            return Err(format!("{step:?} does not wait for {next:?}: {cycle:?}"));
        }
    }
    if cycle.is_empty() { Err("a cycle of nobody".into()) } else { Ok(()) }
}

fn leads_on(
    model: &Naive,
    (asker, claim): (SessionId, &Claim),
    step: &Blocked,
    next: &Blocked,
) -> bool {
    let on = |names: &[ResourceName]| names.contains(&step.resource);
    let waits = |session| {
        let mut waits = model.waits.iter().filter(|w| on(&w.names));
        let place = waits.position(|w| w.wait.session == session);
        place.or((session == asker && on(&claim.names)).then_some(usize::MAX))
    };
    let Some(place) = waits(step.session) else { return false };
    let holds = model.grants.iter().any(|g| on(&g.names) && g.wait.session == next.session);
    holds || waits(next.session).is_some_and(|before| before < place)
}

fn grant_row(g: &crate::naive::Grant) -> Row {
    Row::Grant(GrantRow {
        token: g.token,
        floor: g.floor,
        wait: g.wait,
        names: g.names.clone(),
        mode: g.mode,
        granted_at: g.at,
        slot: g.slot,
        phase: g.phase,
        lock_delay: g.delay,
        value: g.value.clone(),
        asked: g.asked.clone(),
    })
}

/// What can be read of resources: what is known of each, and no others.
pub fn same_queues(table: &Checked, model: &Naive) -> Result<(), String> {
    let claims = model.grants.iter().map(|g| &g.names).chain(model.waits.iter().map(|w| &w.names));
    let claims = claims.chain(model.closures.iter().map(|c| &c.names)).flatten();
    let names: BTreeSet<_> = claims.chain(model.freezes.iter().map(|f| &f.name)).collect();
    let told = table.table().resources_with_prefix("", None).map(|resource| {
        let holders: Vec<_> = resource.holders().map(|g| g.token).collect();
        let waiters: Vec<_> = resource.waiters().map(|w| w.wait).collect();
        let closures: Vec<_> = resource.closures().map(|c| c.token).collect();
        let frozen = resource.frozen().map(|f| f.token);
        let resized = resource.resized().map(|r| r.token);
        (resource.name, (holders, waiters, closures), (frozen, resource.slots(), resized))
    });
    let expected = names.into_iter().map(|name| {
        let holders = model.holders(name).into_iter().map(|g| g.token).collect();
        let mut closures: Vec<_> = model.closures_of(name).iter().map(|c| c.token).collect();
        closures.sort();
        let frozen = model.freezes.iter().find(|f| f.name == *name).map(|f| f.token);
        let resized = model.resizes.iter().find(|r| r.name == *name).map(|r| r.token);
        (name, (holders, model.queue(name), closures), (frozen, model.slots(name), resized))
    });
    same("resources", &expected.collect::<Vec<_>>(), &told.collect())?;
    let told: BTreeMap<_, _> = table.table().timers().collect();
    same("timers", &timers(model), &told)
}

pub fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    model: &T,
    table: &T,
) -> Result<(), String> {
    if model == table {
        return Ok(());
    }
    Err(format!("{what}\n  model: {model:?}\n  table: {table:?}"))
}
