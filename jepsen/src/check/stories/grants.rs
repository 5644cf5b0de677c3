//! Who may hold what, and with which token.

use serde_json::json;

use super::Story;

/// Two sessions that live for long enough.
fn two() -> Story {
    let story = Story::new().open(0, 5, 1).open(0, 5, 2);
    story.renew(500, 505, 1).renew(500, 505, 2).renew(1000, 1005, 1).renew(1000, 1005, 2)
}

#[test]
fn one_after_the_other_is_good() {
    let story = two().grant(10, 20, 1, 7, &json!({})).release(30, 40, 1, 7);
    story.grant(15, 45, 2, 8, &json!({})).end(5000, 9).good();
}

#[test]
fn one_after_the_earliest_end_of_a_dead_one_is_good() {
    let story = Story::new().open(0, 5, 1).grant(10, 20, 1, 7, &json!({}));
    // 1,000 ms from 0, less 10 ms.
    story.open(0, 5, 2).grant(15, 990, 2, 8, &json!({})).end(5000, 9).good();
}

#[test]
fn one_before_the_earliest_end_is_bad() {
    let story = Story::new().open(0, 5, 1).grant(10, 20, 1, 7, &json!({}));
    let story = story.open(0, 5, 2).grant(15, 989, 2, 8, &json!({}));
    story.end(5000, 9).bad(&["exclusion", "search"]);
}

#[test]
fn two_at_a_time_are_bad() {
    let story = two().grant(10, 20, 1, 7, &json!({})).grant(15, 45, 2, 8, &json!({}));
    story.end(5000, 9).bad(&["exclusion", "zombie", "search"]);
}

#[test]
fn a_release_of_which_nobody_knows_may_have_ended_it() {
    let release = json!({"session": 1, "resource": "r", "token": 7});
    let story = two().grant(10, 20, 1, 7, &json!({})).info(30, 400, "release", release);
    story.grant(15, 45, 2, 8, &json!({})).end(5000, 9).good();
}

#[test]
fn a_retry_counts_from_its_first_attempt_and_an_acquire_does_not_renew() {
    let first = json!({"session": 1, "request": 1, "resource": "r", "mode": "exclusive",
        "wait_ms": 9000});
    let story = Story::new().open(0, 5, 1).open(900, 905, 2).info(700, 800, "acquire", first);
    // Token 7 is lower than one that came back after its first attempt, before its second.
    let story = story.grant(910, 985, 1, 7, &json!({})).release(985, 987, 1, 7);
    let other = json!({"resource": "s", "request": 1});
    let story = story.grant(900, 905, 2, 8, &other).release(1000, 1001, 2, 8);
    let audit = [
        json!({"kind": "granted", "index": 5, "resources": ["r"], "session": 1, "request": 1,
            "token": 7, "floor": 7}),
        json!({"kind": "granted", "index": 6, "resources": ["s"], "session": 2, "request": 1,
            "token": 8, "floor": 8}),
    ];
    let last = json!({"resource": "s", "request": 2, "final": true});
    story.audit(&audit).end(5000, 9).grant(5001, 5002, 99, 10, &last).good();
}

#[test]
fn a_freeze_keeps_everybody_out_until_its_thaw() {
    let frozen = two().ok(10, 20, "freeze", json!({"resource": "r", "by": 5}));
    let thawed =
        |story: Story| story.ok(40, 45, "thaw", json!({"resource": "r", "token": 5})).end(5000, 9);
    thawed(frozen.clone().grant(15, 50, 1, 7, &json!({}))).good();
    thawed(frozen.grant(15, 39, 1, 7, &json!({}))).bad(&["exclusion"]);
}

#[test]
fn shared_stands_beside_shared_only() {
    let shared = json!({"mode": "shared", "floor": 7});
    let both = two().grant(10, 20, 1, 7, &shared).grant(12, 22, 2, 8, &shared);
    let left = both.clone().release(30, 35, 1, 7).release(30, 35, 2, 8);
    left.end(100, 9).good();
    let one = both.release(30, 35, 1, 7).open(0, 5, 3).grant(31, 50, 3, 9, &json!({}));
    let late = one.end(5000, 10);
    late.bad(&["sharing", "zombie", "search"]);
}

#[test]
fn slots_are_distinct_and_no_more_than_there_are() {
    let slot = |slot: u32, request: u64| json!({"mode": "slots", "slots": 2, "slot": slot, "floor": 7, "request": request});
    let full = two().grant(10, 20, 1, 7, &slot(0, 1)).grant(12, 22, 2, 8, &slot(1, 1));
    let third = full.clone().open(0, 5, 3);
    let next = third.clone().release(30, 35, 1, 7).grant(30, 40, 3, 9, &slot(0, 1));
    next.end(5000, 10).good();
    let beyond = third.clone().grant(30, 40, 3, 9, &slot(2, 1));
    beyond.end(5000, 10).bad(&["slots"]);
    let twice = third.release(30, 35, 2, 8).grant(30, 40, 3, 9, &slot(0, 1));
    twice.end(5000, 10).bad(&["slots", "zombie", "search"]);
}

#[test]
fn tokens_are_issued_once_and_never_go_back() {
    let once = two().grant(10, 20, 1, 7, &json!({})).release(30, 40, 1, 7);
    let other = |token: u64| once.clone().grant(50, 55, 2, token, &json!({"resource": "s"}));
    let end = |story: Story, token: u64| {
        let last = json!({"resource": "s", "request": 2, "final": true});
        story.end(5000, token).grant(5001, 5002, 99, token + 1, &last)
    };
    end(other(8), 9).good();
    end(other(7), 9).bad(&["tokens", "requests", "search"]);
    end(other(6), 9).bad(&["tokens"]);
    let by = once.clone().ok(50, 55, "revoke", json!({"resource": "r", "token": 3, "by": 7}));
    by.end(5000, 9).bad(&["tokens"]);
}

#[test]
fn a_restore_begins_above_all_that_was_seen() {
    let story = |token: u64| {
        let story = Story::new().open(0, 5, 1).grant(10, 20, 1, 7, &json!({}));
        let story = story.release(30, 40, 1, 7).nemesis(100, 200, "restore");
        let seen = json!({"seq": 1, "resource": "r", "token": 8, "floor": 8, "session": 3,
            "accepted": true});
        let again = json!({"owner": "o", "ttl_ms": 1000, "session": 1, "cluster": 1});
        let story = story.ledger(&[seen]).ok(300, 305, "open", again);
        let story = story.grant(310, 315, 1, token, &json!({"cluster": 1}));
        story.end_in(1, 5000, 1000)
    };
    story(9).good();
    story(8).bad(&["restore-floor"]);
}
