//! The counterexamples of section 12 of the contract: with the rule that prevents it
//! switched off each is found within a bounded number of seeds, and with the contract
//! as written the same seeds show none. Behind them, others that the simulation has
//! found itself.

use ringfence::locks::{Rule, Switches};

use crate::campaign::{campaign, report, search};
use crate::faults::{Setup, ShellRule, Weather};
use crate::properties::Violation;

/// A session ended too early: the words of [I2].
const EARLY: &str = "expired at";

/// Finds a violation that says one of these within so many seeds.
fn finds(name: &str, setup: Setup, expected: &[&str], seeds: u64) {
    let says = |violation: &Violation, words: &str| violation.to_string().contains(words);
    let wanted = |violation: &Violation| expected.iter().any(|words| says(violation, words));
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
    finds("01", without(Rule::RebaseWhateverNumber), &[EARLY], 2_000);
}

#[test]
fn counterexample_02_a_leader_acts_at_its_election() {
    finds("02", without(Rule::ActAfterFirstEntry), &[EARLY], 2_000);
}

#[test]
fn counterexample_03_an_expiry_behind_the_mark_of_a_renewal() {
    finds("03", without(Rule::ExpiryIsConditional), &[EARLY], 4_000);
}

#[test]
fn counterexample_04_a_renewal_in_its_round_while_its_session_is_marked() {
    finds("04", without(Rule::ExpiringIsNotRenewed), &[EARLY], 4_000);
}

#[test]
fn counterexample_05_an_expiry_that_timed_out_is_committed_later() {
    let setup = in_weather(Weather::Queueing, without(Rule::ExpiringMarkStays));
    finds("05", setup, &[EARLY], 10_000);
}

#[test]
fn counterexample_06_the_new_term_came_by_snapshot() {
    let setup = in_weather(Weather::Catching, without(Rule::SnapshotGivesFullTtl));
    finds("06", setup, &[EARLY], 10_000);
}

#[test]
fn counterexample_07_a_late_request_of_an_ended_session() {
    finds(
        "07",
        without(Rule::SessionInRequest),
        &["of a session that has ended took effect"],
        2_000,
    );
}

#[test]
fn counterexample_08_a_late_copy_of_an_acquire_after_its_release() {
    finds("08", without(Rule::OneEffectPerRequest), &["took effect twice"], 1_000);
}

#[test]
fn counterexample_09_a_cancel_overtakes_its_acquire() {
    finds("09", without(Rule::CancelIsRecorded), &["settled before, and yet"], 2_000);
}

#[test]
fn counterexample_10_a_retry_is_told_of_a_grant_that_has_ended() {
    finds("10", without(Rule::GrantRecheckedOnRetry), &["which has ended"], 2_000);
}

#[test]
fn counterexample_11_an_exclusive_owner_wakes_after_a_slot_holder_wrote() {
    let setup = without(Rule::FloorOfModeChange);
    finds("11", setup, &["former holder, exclusive before slots"], 4_000);
}

#[test]
fn counterexample_12_the_old_holder_of_slot_2_writes_when_there_are_two_slots() {
    let setup = without(Rule::FloorOfModeChange);
    finds("12", setup, &["wrote as one of another number of slots"], 4_000);
}

#[test]
fn counterexample_13_a_revoke_of_one_of_two_shuts_out_the_other() {
    let setup = without(Rule::RevokeFloorSpares);
    finds("13", setup, &["[I8] live token"], 2_000);
}

#[test]
fn counterexample_14_a_wait_that_would_never_be_granted() {
    let setup = without(Rule::WaitIsChecked);
    finds("14", setup, &["would never be granted, and yet it waits"], 1_000);
}

#[test]
fn counterexample_15_a_check_that_does_not_lock_the_mark() {
    let setup = shell_without(ShellRule::CheckLocksMark);
    finds("15", setup, &["after the strict acquire of"], 4_000);
}

#[test]
fn counterexample_16_no_quorum_for_longer_than_a_ttl() {
    finds(
        "16",
        without(Rule::StallsPostpone),
        &["is marked while a renewal that came in time waits"],
        2_000,
    );
}

#[test]
fn counterexample_18_a_repeated_open_is_no_renewal() {
    finds("18", without(Rule::OpenSees), &[EARLY], 2_000);
}

#[test]
fn counterexample_19_a_repeated_expiry_names_a_newer_revision() {
    finds("19", without(Rule::RetryNamesOldRevision), &[EARLY], 20_000);
}

#[test]
fn a_mark_ends_with_a_lead_that_is_taken_up_again() {
    let setup = in_weather(Weather::Queueing, without(Rule::MarksEndWithTerm));
    finds("laid down", setup, &[EARLY], 10_000);
}

#[test]
fn an_older_expiry_ends_a_newer_mark() {
    let setup = in_weather(Weather::Queueing, without(Rule::OutcomeNamesRevision));
    finds("older expiry", setup, &[EARLY], 20_000);
}

#[test]
fn a_stall_moves_what_was_seen_in_the_midst_of_it() {
    finds("stall", without(Rule::StallIsCapped), &["[I11]"], 1_000);
}

#[test]
fn a_waiter_outlives_its_session() {
    finds(
        "dead waiters",
        without(Rule::DeadWaitersLeave),
        &["waits though its session has ended"],
        1_000,
    );
}

#[test]
fn who_does_not_wait_overtakes() {
    finds("queue", without(Rule::QueueIsFifo), &["[I4]"], 100);
}

#[test]
fn there_are_more_holders_than_slots() {
    finds("slots", without(Rule::SlotsAreCounted), &["is beyond the"], 1_000);
}

#[test]
fn an_unconfirmed_grant_keeps_nobody_out() {
    finds("barrier blocks", without(Rule::BarrierBlocks), &["[I3]"], 1_000);
}

#[test]
fn a_strict_grant_is_active_at_once() {
    let says = ["before anybody has confirmed it"];
    finds("barrier first", without(Rule::BarrierFirst), &says, 100);
}

#[test]
fn an_unconfirmed_grant_goes_on_for_ever() {
    finds("unconfirmed", without(Rule::UnconfirmedEnds), &["the barrier of"], 1_000);
}

#[test]
fn a_strict_acquire_returns_before_its_destinations_have_raised() {
    let setup = shell_without(ShellRule::RaisesBeforeConfirm);
    finds("raises", setup, &["is confirmed and not raised"], 100);
}

#[test]
fn a_lock_delay_closes_nothing() {
    let setup = without(Rule::DelayCloses);
    finds("delay", setup, &["within the lock delay of"], 1_000);
}

#[test]
fn a_frozen_resource_is_granted() {
    finds("freeze", without(Rule::FreezeCloses), &["is frozen by"], 1_000);
}

#[test]
fn a_holder_shuts_out_those_beside_it() {
    let setup = without(Rule::FloorIsLowestHolder);
    finds("floor", setup, &["and shuts out live"], 1_000);
}

#[test]
fn a_revoke_by_a_stale_token_hits_the_present_holder() {
    let setup = without(Rule::RevokeNamesToken);
    finds("revoke", setup, &["[I5] Some(Revoke"], 1_000);
}

#[test]
fn a_renewal_off_the_log_needs_a_mark_in_this_term() {
    finds("no mark", without(Rule::RenewalNeedsMark), &[EARLY], 4_000);
}

#[test]
fn a_new_term_gives_time() {
    finds("no time", without(Rule::TermGivesTime), &[EARLY], 2_000);
}

#[test]
fn a_renewal_needs_a_round() {
    finds(
        "no round",
        shell_without(ShellRule::RoundsAreConfirmed),
        &[EARLY, "and was renewed at"],
        2_000,
    );
}

#[test]
fn a_round_confirms_only_what_had_arrived() {
    let setup = shell_without(ShellRule::RoundConfirmsEarlierArrivals);
    finds("late join", in_weather(Weather::Slow, setup), &[EARLY, "and was renewed at"], 20_000);
}

#[test]
fn a_lead_ends_with_its_term() {
    let setup = shell_without(ShellRule::TermsAreCompared);
    finds("terms", in_weather(Weather::Catching, setup), &[EARLY, "and was renewed at"], 20_000);
}

#[test]
fn a_renewal_names_its_owner() {
    finds(
        "owner",
        shell_without(ShellRule::RenewalNamesOwner),
        &["was renewed by somebody else"],
        1_000,
    );
}

#[test]
fn nothing_is_applied_before_it_is_committed() {
    finds("commit", shell_without(ShellRule::CommittedFirst), &["[I7]"], 100);
}

#[test]
fn a_restart_finds_all_rows() {
    finds("rows", shell_without(ShellRule::RowsAreWhole), &["[I10]"], 100);
}

#[test]
fn a_destination_that_checks_nothing() {
    let setup = shell_without(ShellRule::DestinationRefuses);
    finds("destination", setup, &["wrote as a former holder"], 100);
}

#[test]
fn a_destination_without_marks_for_slots() {
    let setup = shell_without(ShellRule::SlotsAreMarked);
    finds("slot marks", setup, &["wrote as the former holder of slot"], 1_000);
}

#[test]
fn a_check_of_a_token_needs_a_round() {
    let setup = shell_without(ShellRule::RoundsAreConfirmed);
    finds("check", setup, &["is told current", "is told not current"], 2_000);
}

#[test]
fn a_renewal_does_not_tell_that_a_grant_is_gone() {
    finds("changes", without(Rule::ChangesAreTold), &["is not told that"], 100);
}

#[test]
fn a_client_that_counts_from_the_answer() {
    finds("counting", shell_without(ShellRule::CountsFromFirstSending), &[EARLY], 2_000);
}

#[test]
fn a_client_that_counts_the_old_ttl_until_the_answer() {
    finds("lower ttl", shell_without(ShellRule::CountsLowerTtl), &[EARLY], 4_000);
}
