//! The counterexamples of section 12 of the contract: with the rule that prevents it
//! switched off each is found within a bounded number of seeds, and with the contract
//! as written the same seeds show none.

use ringfence::locks::{Rule, Switches};

use crate::campaign::{campaign, report, search};
use crate::faults::{Setup, ShellRule, Weather};
use crate::properties::Violation;

/// Finds a violation of one of these invariants within so many seeds.
fn finds(name: &str, setup: Setup, expected: &[&str], seeds: u64) {
    let wanted = |violation: &Violation| expected.contains(&violation.property);
    let found = search(seeds, setup, wanted).failure;
    let found = found.unwrap_or_else(|| panic!("{name}: nothing found in {seeds} seeds"));
    println!("{name}: found in seed {}: {}", found.seed, found.violation);
    let written = Setup { weather: setup.weather, ..Setup::default() };
    if let Some(failure) = campaign(found.seed + 20, written).failure {
        panic!("{name}: the contract as written fails too: {}", report(&failure, written));
    }
}

fn without(rule: Rule) -> Setup {
    Setup { rules: Switches::without(rule), ..Setup::default() }
}

fn shell_without(rule: ShellRule) -> Setup {
    Setup { off: Some(rule), ..Setup::default() }
}

fn in_weather(weather: Weather, setup: Setup) -> Setup {
    Setup { weather, ..setup }
}

#[test]
fn counterexample_01_a_term_number_was_skipped() {
    finds("01", without(Rule::RebaseWhateverNumber), &["I2"], 2_000);
}

#[test]
fn counterexample_02_a_leader_acts_at_its_election() {
    finds("02", without(Rule::ActAfterFirstEntry), &["I2"], 2_000);
}

#[test]
fn counterexample_03_an_expiry_behind_the_mark_of_a_renewal() {
    finds("03", without(Rule::ExpiryIsConditional), &["I2"], 4_000);
}

#[test]
fn counterexample_04_a_renewal_in_its_round_while_its_session_is_marked() {
    finds("04", without(Rule::ExpiringIsNotRenewed), &["I2"], 4_000);
}

#[test]
fn counterexample_05_an_expiry_that_timed_out_is_committed_later() {
    finds("05", without(Rule::ExpiringMarkStays), &["I2"], 10_000);
}

#[test]
fn counterexample_06_the_new_term_came_by_snapshot() {
    let setup = in_weather(Weather::Catching, without(Rule::SnapshotGivesFullTtl));
    finds("06", setup, &["I2"], 10_000);
}

#[test]
fn counterexample_07_a_late_request_of_an_ended_session() {
    finds("07", without(Rule::SessionInRequest), &["I6"], 2_000);
}

#[test]
fn counterexample_08_a_late_copy_of_an_acquire_after_its_release() {
    finds("08", without(Rule::OneEffectPerRequest), &["I6"], 1_000);
}

#[test]
fn counterexample_09_a_cancel_overtakes_its_acquire() {
    finds("09", without(Rule::CancelIsRecorded), &["I6"], 2_000);
}

#[test]
fn counterexample_10_a_retry_is_told_of_a_grant_that_has_ended() {
    finds("10", without(Rule::GrantRecheckedOnRetry), &["I6"], 2_000);
}

#[test]
fn counterexample_16_no_quorum_for_longer_than_a_ttl() {
    finds("16", without(Rule::StallsPostpone), &["I2"], 2_000);
}

#[test]
fn counterexample_18_a_repeated_open_is_no_renewal() {
    finds("18", without(Rule::OpenSees), &["I2"], 2_000);
}

#[test]
fn counterexample_19_a_repeated_expiry_names_a_newer_revision() {
    finds("19", without(Rule::RetryNamesOldRevision), &["I2"], 20_000);
}

#[test]
fn an_older_expiry_ends_a_newer_mark() {
    let setup = in_weather(Weather::Queueing, without(Rule::OutcomeNamesRevision));
    finds("older expiry", setup, &["I2"], 20_000);
}

#[test]
fn a_waiter_outlives_its_session() {
    finds("dead waiters", without(Rule::DeadWaitersLeave), &["I4"], 1_000);
}

#[test]
fn a_renewal_off_the_log_needs_a_mark_in_this_term() {
    finds("no mark", without(Rule::RenewalNeedsMark), &["I2"], 4_000);
}

#[test]
fn a_new_term_gives_time() {
    finds("no time", without(Rule::TermGivesTime), &["I2"], 2_000);
}

#[test]
fn a_renewal_needs_a_round() {
    finds("no round", shell_without(ShellRule::RoundsAreConfirmed), &["I2", "I5"], 2_000);
}

#[test]
fn a_round_confirms_only_what_had_arrived() {
    let setup = shell_without(ShellRule::RoundConfirmsEarlierArrivals);
    finds("late join", in_weather(Weather::Slow, setup), &["I2", "I5"], 20_000);
}

#[test]
fn a_lead_ends_with_its_term() {
    let setup = shell_without(ShellRule::TermsAreCompared);
    finds("terms", in_weather(Weather::Catching, setup), &["I2", "I5"], 20_000);
}

#[test]
fn a_renewal_names_its_owner() {
    finds("owner", shell_without(ShellRule::RenewalNamesOwner), &["I5"], 1_000);
}

#[test]
fn nothing_is_applied_before_it_is_committed() {
    finds("commit", shell_without(ShellRule::CommittedFirst), &["I7"], 100);
}

#[test]
fn a_restart_finds_all_rows() {
    finds("rows", shell_without(ShellRule::RowsAreWhole), &["I10"], 100);
}

#[test]
fn a_destination_that_checks_nothing() {
    finds("destination", shell_without(ShellRule::DestinationRefuses), &["I8"], 100);
}

#[test]
fn a_client_that_counts_from_the_answer() {
    finds("counting", shell_without(ShellRule::CountsFromFirstSending), &["I2"], 2_000);
}

#[test]
fn a_client_that_counts_the_old_ttl_until_the_answer() {
    finds("lower ttl", shell_without(ShellRule::CountsLowerTtl), &["I2"], 4_000);
}
