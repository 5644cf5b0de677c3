//! The table and the naive model apply the same log, and are the same after every
//! entry.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestRunner};
use ringfence::locks::{Bootstrap, Command, Done, Event, Outcome, Refusal, Switches, Term};

use crate::checked::Checked;
use crate::compare::{
    comparable, cycle_is_true, facts_of, rows_of, same, same_queues, sorted, timers, without_cycle,
};
use crate::naive::Naive;
use crate::steps::{Step, step, step_entangled, step_or_burst};
use crate::world::{Happens, World, bootstrap, roomy};

/// How often each kind of outcome was met.
type Met = BTreeMap<String, u64>;

#[test]
fn the_table_is_the_naive_model_under_any_order_of_requests() {
    let met = run(350, vec(step(), 1..160), small);
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
        "Confirmed",
        "ValueSet",
        "Revoked",
        "Frozen",
        "Thawed",
        "Resized",
        "Asked",
        "CapacityMismatch",
        "Deadlock",
        "event Opened",
        "event Ended",
        "event Queued",
        "event Granted",
        "event Activated",
        "event ValueChanged",
        "event Asked",
        "event GrantEnded",
        "event Reopened",
        "event LeftQueue",
        "event Frozen",
        "event Thawed",
        "event Resized",
    ];
    for kind in expected {
        assert!(met.get(kind).is_some_and(|n| *n >= 10), "{kind} was hardly met: {met:?}");
    }
}

#[test]
fn the_table_is_the_naive_model_where_windows_are_full() {
    let met = run(25, vec(step_or_burst(), 20..60), small);
    assert!(met.get("WindowFull").is_some_and(|n| *n >= 20), "windows were never full: {met:?}");
}

#[test]
fn a_wait_is_refused_exactly_if_it_would_never_be_granted() {
    let met = run(200, vec(step_entangled(), 20..120), |_| roomy());
    for (kind, least) in [("cycle of 2", 200), ("cycle of 3", 30), ("cycle of 4", 5)] {
        assert!(met.get(kind).is_some_and(|n| *n >= least), "{kind} was hardly met: {met:?}");
    }
}

/// One case in eight is short of tokens.
fn small(steps: &[Step]) -> Bootstrap {
    bootstrap(if steps.len() % 8 == 3 { ringfence::locks::Token::MAX - 4 } else { 0 })
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
        let found = TestRunner::new(Config { max_shrink_iters: 0, ..config(1_000) }).run(
            &vec(step(), 1..100),
            |steps| {
                play(&steps, Switches::without(rule), small(&steps))
                    .map(|_| ())
                    .map_err(TestCaseError::fail)
            },
        );
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

fn run(
    cases: u32,
    steps: impl Strategy<Value = Vec<Step>>,
    begin: fn(&[Step]) -> Bootstrap,
) -> Met {
    let met = RefCell::new(Met::new());
    let outcome = TestRunner::new(config(cases)).run(&steps, |steps: Vec<Step>| {
        let told = play(&steps, Switches::default(), begin(&steps)).map_err(TestCaseError::fail)?;
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
fn play(steps: &[Step], switches: Switches, begin: Bootstrap) -> Result<Met, String> {
    let (mut table, mut model, mut world) =
        (Checked::new(switches), Naive::default(), World::default());
    let (mut met, mut term) = (Met::new(), 1);
    let first = Some(Command::Bootstrap(begin));
    let opens = [1, 2].map(|owner| Step::Open { owner, ttl: 0 });
    one_entry(&mut table, &mut model, &mut world, first.as_ref(), &mut met)?;
    for step in opens.iter().chain(steps) {
        match world.act(step, &model) {
            Happens::Apply(commands) => {
                for command in commands {
                    one_entry(&mut table, &mut model, &mut world, command.as_ref(), &mut met)?;
                }
            }
            Happens::Term(up) => {
                term += u64::from(up);
                table.set_term(Term(term));
            }
            Happens::Restart => table.restart()?,
        }
        table.check()?;
        same("rows", &rows_of(&model, &table), &comparable(&table))?;
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
    let before = timers(model);
    let last = table.table().position();
    let effects = table.apply(command.cloned());
    let at = table.table().position();
    let what = format!("{at:?} {command:?}");
    cycle_is_true(model, command, &effects.outcome).map_err(|e| format!("{what}: {e}"))?;
    let expected = model.apply(at, command);
    same(&what, &expected, &without_cycle(&effects.outcome))?;
    let events = effects.events.iter().map(|Event { what, .. }| what.clone()).collect::<Vec<_>>();
    same(&what, &model.events, &events)?;
    same(&what, &facts_of(model, last, &before), &sorted(&effects.facts))?;
    if let (Ok(Done::Opened { session, created: true, .. }), Some(command)) = (&expected, &command)
        && let Command::OpenSession { owner, .. } = command
    {
        world.opened(*owner, *session);
    }
    *met.entry(kind_of_outcome(&effects.outcome)).or_default() += 1;
    if let Err(Refusal::Deadlock { cycle }) = &effects.outcome {
        *met.entry(format!("cycle of {}", cycle.len())).or_default() += 1;
    }
    for event in events {
        *met.entry(format!("event {}", kind(&event))).or_default() += 1;
    }
    Ok(())
}

fn kind_of_outcome(outcome: &Outcome) -> String {
    match outcome {
        Ok(Done::Administered(done)) => kind(done),
        Ok(done) => kind(done),
        Err(refusal) => kind(refusal),
    }
}

/// The name of a variant.
fn kind(told: &impl std::fmt::Debug) -> String {
    format!("{told:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}
