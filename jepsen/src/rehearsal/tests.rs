//! The correct toy is acquitted by all checkers, each broken one convicted by the right one.

use clap::ValueEnum;

use super::{Mutant, run};
use crate::check::{Run, Valid, check};

/// Operations of the correct toy, and of each mutant.
const OPERATIONS: u64 = 1_000;
const OPERATIONS_MUTANT: u64 = 4_500;
const CLIENTS: usize = 12;
/// Seeds of the correct toy.
const SEEDS: u64 = 200;
/// Seeds of each mutant, until it is convicted by every checker that must.
const TRIES: u64 = 12;

/// The checkers that convict a run.
fn convicted(mutant: Option<Mutant>, seed: u64, operations: u64) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), mutant, seed, operations, CLIENTS).unwrap();
    let verdicts = check(&Run::load(folder.path()).unwrap());
    let bad = verdicts.iter().filter(|verdict| verdict.valid == Valid::False);
    bad.map(|verdict| verdict.checker.clone()).collect()
}

#[test]
fn the_correct_toy_is_never_convicted() {
    let flagged: Vec<(u64, Vec<String>)> = (0..SEEDS)
        .map(|seed| (seed, convicted(None, seed, OPERATIONS)))
        .filter(|(_, by)| !by.is_empty())
        .collect();
    assert!(flagged.is_empty(), "{flagged:?}");
}

/// Who must convict each mutant.
fn judges(mutant: Mutant) -> &'static [&'static str] {
    match mutant {
        Mutant::TokenLocalCounter | Mutant::TokenInMemoryOnly => &["tokens", "audit"],
        Mutant::RenewWithoutLeadership => &["exclusion", "early"],
        Mutant::ReadWithoutQuorum => &["reads"],
        Mutant::VoteNotSynced | Mutant::RecoveryRollsBack | Mutant::ClockInApply => &["nodes"],
        Mutant::LogNotSynced => &["nodes", "tokens", "audit"],
        Mutant::ReleaseWithoutOwnership | Mutant::ReleaseIgnoresToken => &["requests", "early"],
        Mutant::NoRequestDedup | Mutant::SnapshotDropsDedup => &["requests"],
        Mutant::Lifo | Mutant::SkipHead => &["queue", "audit"],
        Mutant::GrantToExpiredWaiter => &["queue", "audit"],
        Mutant::ExpiryEarly => &["exclusion"],
        Mutant::ExpiryByWallClock | Mutant::DeadlineOverRestart => &["exclusion", "early"],
        Mutant::SharedCountedOnce => &["sharing"],
        Mutant::SlotsOffByOne => &["slots", "audit"],
        Mutant::RestoreWithoutFloor => &["restore-floor", "tokens"],
        Mutant::HandoffWithoutRaise | Mutant::BarrierShownActive => &["handoff"],
        Mutant::DestinationCheckOff => &["ledger"],
    }
}

#[test]
fn every_mutant_is_convicted_by_the_checkers_that_must() {
    for mutant in Mutant::value_variants() {
        let mut missing = judges(*mutant).to_vec();
        for seed in 0..TRIES {
            let by = convicted(Some(*mutant), seed, OPERATIONS_MUTANT);
            missing.retain(|judge| !by.iter().any(|by| by == judge));
            if missing.is_empty() {
                break;
            }
        }
        assert!(missing.is_empty(), "{mutant:?} is not convicted by {missing:?}");
    }
}
