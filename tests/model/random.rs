//! The table and the naive model apply the same log, and are the same after every
//! entry.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestRunner};
use ringfence::locks::{
    Command, Done, Event, Fact, GrantRow, MetaRow, Mode, Outcome, OutcomeRow, Position, Row,
    SessionRow, Switches, Term, WaitRow, WindowRow,
};

use crate::checked::Checked;
use crate::naive::Naive;
use crate::world::{Act, Step, World, bootstrap, step, step_or_burst};

/// How often each kind of outcome was met.
type Met = BTreeMap<String, u64>;

#[test]
fn the_table_is_the_naive_model_under_any_order_of_requests() {
    let met = run(1_000, vec(step(), 1..100));
    let expected = [
        "Opened",
        "Closed",
        "TtlSet",
        "Granted",
        "Queued",
        "Released",
        "CancelledTarget",
        "SessionExpired",
        "SessionUnknown",
        "NotBootstrapped",
        "StaleRequest",
        "RequestChanged",
        "Busy",
        "AlreadyHeld",
        "AlreadyWaiting",
        "GrantEnded",
        "Cancelled",
        "WaitTimeout",
        "NotHeld",
        "QueueFull",
        "LimitReached",
        "TtlOutOfBounds",
        "Nothing",
    ];
    for kind in expected {
        assert!(met.get(kind).is_some_and(|n| *n >= 20), "{kind} was hardly met: {met:?}");
    }
}

#[test]
fn the_table_is_the_naive_model_where_windows_are_full() {
    let met = run(25, vec(step_or_burst(), 20..60));
    assert!(met.get("WindowFull").is_some_and(|n| *n >= 20), "windows were never full: {met:?}");
}

/// The comparison has teeth: each rule that is switched off is missed.
#[cfg(feature = "switches")]
#[test]
fn a_table_without_one_of_its_rules_is_not_the_naive_model() {
    use ringfence::locks::Rule;
    let rules = [
        Rule::SessionInRequest,
        Rule::OneEffectPerRequest,
        Rule::CancelIsRecorded,
        Rule::GrantRecheckedOnRetry,
        Rule::ExpiryIsConditional,
        Rule::OpenSees,
        Rule::DeadWaitersLeave,
    ];
    for rule in rules {
        let found = TestRunner::new(Config { max_shrink_iters: 0, ..config(1_000) })
            .run(&vec(step(), 1..100), |steps| {
                play(&steps, Switches::without(rule)).map(|_| ()).map_err(TestCaseError::fail)
            });
        assert!(found.is_err(), "{rule:?} is not missed");
    }
}

/// So many cases. `RINGFENCE_MODEL_CASES` multiplies them and `RINGFENCE_MODEL_SEED`
/// chooses others; without it they are always the same.
pub fn config(cases: u32) -> Config {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u32>().ok());
    Config {
        cases: cases * number("RINGFENCE_MODEL_CASES").unwrap_or(1),
        rng_seed: RngSeed::Fixed(number("RINGFENCE_MODEL_SEED").unwrap_or(1).into()),
        failure_persistence: None,
        max_shrink_time: 20_000,
        // The default one takes half of the time in a debug build.
        rng_algorithm: RngAlgorithm::XorShift,
        ..Config::default()
    }
}

fn run(cases: u32, steps: impl Strategy<Value = Vec<Step>>) -> Met {
    let met = RefCell::new(Met::new());
    let outcome = TestRunner::new(config(cases)).run(&steps, |steps: Vec<Step>| {
        let told = play(&steps, Switches::default()).map_err(TestCaseError::fail)?;
        for (kind, count) in told {
            *met.borrow_mut().entry(kind).or_default() += count;
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    met.into_inner()
}

/// Plays the steps on both.
fn play(steps: &[Step], switches: Switches) -> Result<Met, String> {
    let (mut table, mut model, mut world) =
        (Checked::new(switches), Naive::default(), World::default());
    let (mut met, mut term) = (Met::new(), 1);
    // One case in eight is short of tokens.
    let floor = if steps.len() % 8 == 3 { ringfence::locks::Token::MAX - 4 } else { 0 };
    let first = Some(Command::Bootstrap(bootstrap(floor)));
    let opens = [1, 2].map(|owner| Step::Open { owner, ttl: 0 });
    one_entry(&mut table, &mut model, &mut world, first.as_ref(), &mut met)?;
    for step in opens.iter().chain(steps) {
        match world.act(step, &model) {
            Act::Apply(commands) => {
                for command in commands {
                    one_entry(&mut table, &mut model, &mut world, command.as_ref(), &mut met)?;
                }
            }
            Act::Term(up) => {
                term += u64::from(up);
                table.set_term(Term(term));
            }
            Act::Restart => table.restart()?,
        }
        table.check()?;
        same("rows", &rows_of(&model, &table), &without_fingerprints(&table))?;
        same_queues(&table, &model)?;
    }
    same("hash of a replay", &table.replayed(), &table.table().state_hash())?;
    Ok(met)
}

fn one_entry(
    table: &mut Checked,
    model: &mut Naive,
    world: &mut World,
    command: Option<&Command>,
    met: &mut Met,
) -> Result<(), String> {
    let before: BTreeSet<_> = model.waits.iter().map(|w| w.wait).collect();
    let last = table.table().position();
    let effects = table.apply(command.cloned());
    let at = table.table().position();
    let expected = model.apply(at, command);
    let what = format!("{at:?} {command:?}");
    same(&what, &expected, &effects.outcome)?;
    let events = effects.events.iter().map(|Event { what, .. }| what.clone()).collect::<Vec<_>>();
    same(&what, &model.events, &events)?;
    same(&what, &facts_of(model, last, &before), &sorted(&effects.facts))?;
    if let (Ok(Done::Opened { session, created: true, .. }), Some(command)) = (&expected, &command)
        && let Command::OpenSession { owner, .. } = command
    {
        world.opened(*owner, *session);
    }
    *met.entry(kind(&effects.outcome)).or_default() += 1;
    Ok(())
}

/// What the leases must be told, from what the model was before and is now.
fn facts_of(
    model: &Naive,
    last: Position,
    before: &BTreeSet<ringfence::locks::WaitId>,
) -> Vec<String> {
    let mut facts = Vec::new();
    let (term, index) = (model.at.term, model.at.index);
    if term != last.term {
        facts.push(Fact::TermBegan { term, previous: last.term });
    }
    let seen = model.sessions.iter().filter(|s| s.seen.index == index);
    facts.extend(seen.map(|s| Fact::Seen { session: s.id, ttl: s.ttl, term, index }));
    for event in &model.events {
        if let ringfence::locks::Happened::Ended { session, .. } = event {
            facts.push(Fact::Ended { session: *session });
        }
    }
    let now: BTreeSet<_> = model.waits.iter().map(|w| w.wait).collect();
    let began = model.waits.iter().filter(|w| !before.contains(&w.wait));
    facts.extend(began.map(|w| Fact::WaitBegan { wait: w.wait, deadline: w.deadline }));
    facts.extend(before.difference(&now).map(|wait| Fact::WaitEnded { wait: *wait }));
    sorted(&facts)
}

/// The order of facts is that of the table's work; what counts is that each is told
/// once.
fn sorted(facts: &[Fact]) -> Vec<String> {
    let mut facts: Vec<_> = facts.iter().map(|fact| format!("{fact:?}")).collect();
    facts.sort();
    facts.dedup_by(|a, b| a == b && a.starts_with("Seen"));
    facts
}

/// All rows that the model comes to.
fn rows_of(model: &Naive, table: &Checked) -> Vec<Row> {
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
    for g in &model.grants {
        let (token, wait, names, mode) = (g.token, g.wait, g.names.clone(), Mode::Exclusive);
        let granted_at = g.at;
        rows.push(Row::Grant(GrantRow { token, floor: token, wait, names, mode, granted_at }));
    }
    for w in &model.waits {
        let (wait, names, deadline, queued_at) = (w.wait, w.names.clone(), w.deadline, w.at);
        let (fingerprint, mode) = (0, Mode::Exclusive);
        rows.push(Row::Wait(WaitRow { wait, fingerprint, names, mode, deadline, queued_at }));
    }
    rows.sort_by_key(Row::key);
    assert_eq!(table.table().token(), model.token);
    rows
}

fn without_fingerprints(table: &Checked) -> Vec<Row> {
    let rows = table.rows().values().cloned().map(|row| match row {
        Row::Outcome(mut row) => {
            row.fingerprint = row.fingerprint.map(|_| 0);
            Row::Outcome(row)
        }
        Row::Wait(mut row) => {
            row.fingerprint = 0;
            Row::Wait(row)
        }
        Row::Meta(_) | Row::Session(_) | Row::Window(_) | Row::Grant(_) => row,
    });
    rows.collect()
}

/// What can be read of resources: their holders and queues, and no others.
fn same_queues(table: &Checked, model: &Naive) -> Result<(), String> {
    let claims = model.grants.iter().map(|g| &g.names).chain(model.waits.iter().map(|w| &w.names));
    let names: BTreeSet<_> = claims.flatten().cloned().collect();
    let told = table.table().resources_with_prefix("", None).map(|resource| {
        let holders: Vec<_> = resource.holders().map(|g| g.token).collect();
        let waiters: Vec<_> = resource.waiters().map(|w| w.wait).collect();
        (resource.name.clone(), holders, waiters)
    });
    let expected = names.into_iter().map(|name| {
        let holders = model.holder(&name).into_iter().collect();
        let waiters = model.queue(&name);
        (name, holders, waiters)
    });
    same("resources", &expected.collect::<Vec<_>>(), &told.collect())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, model: &T, table: &T) -> Result<(), String> {
    if model == table {
        return Ok(());
    }
    Err(format!("{what}\n  model: {model:?}\n  table: {table:?}"))
}

fn kind(outcome: &Outcome) -> String {
    let told = match outcome {
        Ok(done) => format!("{done:?}"),
        Err(refusal) => format!("{refusal:?}"),
    };
    told.split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}
