//! Sessions, requests, queues, reads and handoffs.

use serde_json::{Value, json};

use super::Story;

fn one() -> Story {
    Story::new().open(0, 5, 1).grant(10, 20, 1, 7, &json!({}))
}

#[test]
fn nobody_is_told_too_early_that_a_session_is_over() {
    let renewal = json!({"session": 1, "ttl_ms": 1000});
    let told = |time: u64, story: Story| {
        story.fail(time - 1, time, "renew", renewal.clone(), "SESSION_EXPIRED").end(5000, 9)
    };
    told(990, one()).good();
    told(989, one()).bad(&["early"]);
    told(989, one().ok(500, 505, "close", json!({"session": 1}))).good();
}

#[test]
fn nobody_is_told_too_early_that_a_grant_is_lost() {
    let release = json!({"session": 1, "resource": "r", "token": 7});
    let lost =
        |story: Story| story.fail(300, 310, "release", release.clone(), "NOT_HELD").end(5000, 9);
    lost(one()).bad(&["early", "search"]);
    lost(one().info(100, 200, "release", release.clone())).good();
    lost(one().ok(100, 200, "revoke", json!({"resource": "r", "token": 7, "by": 8}))).good();
    let again = json!({"session": 1, "request": 1, "resource": "r", "token": 7});
    one().fail(300, 310, "acquire", again, "GRANT_ENDED").end(5000, 9).bad(&["early"]);
}

#[test]
fn what_is_over_stays_over() {
    let story = one().open(0, 5, 2).grant(15, 1000, 2, 8, &json!({}));
    story.clone().renew(999, 1005, 1).end(5000, 9).bad(&["exclusion", "search"]);
    let late = story.clone().fail(
        1001,
        1005,
        "renew",
        json!({"session": 1, "ttl_ms": 1000}),
        "SESSION_EXPIRED",
    );
    late.clone().end(5000, 9).good();
    let back = late.ok(1100, 1105, "cancel", json!({"session": 1}));
    back.end(5000, 9).bad(&["zombie"]);
}

#[test]
fn a_stale_release_ends_nothing() {
    let story = one().open(0, 5, 2).grant(15, 1000, 2, 8, &json!({}));
    story.release(1100, 1105, 1, 7).end(5000, 9).bad(&["zombie", "search"]);
}

#[test]
fn a_request_has_one_answer() {
    one().grant(30, 35, 1, 7, &json!({})).audit(&[granted(5, 1, 7)]).end(5000, 9).good();
    let other = one().grant(30, 35, 1, 8, &json!({})).audit(&[granted(5, 1, 7)]);
    other.end(5000, 9).bad(&["exclusion", "requests", "search"]);
    let ended = one().release(30, 40, 1, 7).grant(50, 55, 1, 7, &json!({}));
    ended.audit(&[granted(5, 1, 7)]).end(5000, 9).bad(&["requests"]);
}

#[test]
fn a_grant_whose_answer_was_lost_is_found_in_the_feed() {
    let ask = json!({"session": 1, "request": 1, "resource": "r", "mode": "exclusive"});
    let story = Story::new().open(0, 5, 1).info(6, 9, "acquire", ask);
    let story = story.grant(10, 20, 1, 8, &json!({})).release(30, 40, 1, 8);
    let end = json!({"kind": "ended", "index": 6, "resources": ["r"], "session": 1, "token": 7,
        "cause": "revoked"});
    let audit = [granted(5, 1, 7), end, granted(7, 1, 8)];
    story.clone().audit(&audit[2..]).end(5000, 9).good();
    let convicted = story.audit(&audit).end(5000, 9).convicted();
    assert!(convicted.contains(&"requests".to_owned()), "{convicted:?}");
}

#[test]
fn nothing_is_released_by_another_name() {
    let ended = json!({"kind": "ended", "index": 6, "resources": ["r"], "session": 1,
        "token": 7, "cause": "released"});
    let audit = [granted(5, 1, 7), ended];
    one().release(30, 40, 1, 7).audit(&audit).end(5000, 9).good();
    one().audit(&audit).end(5000, 9).bad(&["requests"]);
}

fn granted(index: u64, session: u64, token: u64) -> Value {
    json!({"kind": "granted", "index": index, "resources": ["r"], "session": session,
        "request": 1, "token": token, "floor": token})
}

#[test]
fn first_come_first_served() {
    let story = one().open(0, 5, 2).open(0, 5, 3).queued(21, 25, 2).release(30, 40, 1, 7);
    let in_order = story.clone().grant(26, 50, 2, 8, &json!({})).release(60, 65, 2, 8);
    let in_order = in_order.grant(26, 70, 3, 9, &json!({})).end(5000, 10);
    in_order.audit(&[]).good();
    let overtaken = story.grant(26, 50, 3, 8, &json!({})).release(60, 65, 3, 8);
    let overtaken = overtaken.grant(26, 70, 2, 9, &json!({})).end(5000, 10);
    overtaken.audit(&[]).bad(&["queue"]);
}

#[test]
fn nothing_is_granted_to_the_dead() {
    let renewal = json!({"session": 1, "ttl_ms": 1000});
    let story = Story::new().open(0, 5, 1).queued(10, 15, 1);
    let story = story.fail(1000, 1005, "renew", renewal, "SESSION_EXPIRED");
    let story = story.open(1100, 1105, 2);
    let other = story.grant(1110, 1120, 2, 8, &json!({"resource": "s"}));
    let last = json!({"resource": "s", "request": 2, "final": true});
    let end = |story: Story| story.audit(&[]).end(5000, 10).grant(5001, 5002, 99, 11, &last);
    end(other.clone()).good();
    end(other.grant(16, 1200, 1, 9, &json!({}))).bad(&["queue"]);
}

#[test]
fn reads_show_what_stands() {
    one()
        .get(21, 25, &[7])
        .release(30, 40, 1, 7)
        .get(35, 36, &[7])
        .get(41, 45, &[])
        .end(5000, 9)
        .good();
    one().get(21, 25, &[]).end(5000, 9).bad(&["reads", "search"]);
    one().release(30, 40, 1, 7).get(41, 45, &[7]).end(5000, 9).bad(&["reads", "search"]);
    let next = one().release(30, 40, 1, 7).open(0, 5, 2).grant(15, 45, 2, 8, &json!({}));
    let stale = next.clone().get(46, 47, &[7]);
    stale.end(5000, 9).bad(&["reads", "search"]);
    next.get(46, 47, &[8]).end(5000, 9).good();
    let back = one().get(21, 22, &[7]).at_index(9).get(23, 24, &[7]).at_index(8);
    back.end(5000, 9).bad(&["reads"]);
    let denied = json!({"resource": "r", "token": 7, "current": false});
    one().ok(21, 25, "check_token", denied).end(5000, 9).bad(&["reads"]);
}

#[test]
fn a_barrier_is_not_current_and_keeps_earlier_owners_from_writing() {
    let strict = json!({"strict": true, "barrier_ms": 500});
    let confirm = json!({"session": 2, "resource": "r", "token": 8});
    let current = json!({"resource": "r", "token": 8, "current": true});
    let write = |story: Story, from: u64| {
        let value = json!({"resource": "r", "token": 7, "floor": 7, "element": "e", "dest": "d"});
        let entry = json!({"seq": 1, "resource": "r", "token": 7, "floor": 7, "session": 1,
            "element": "e", "accepted": true});
        story.ok(from, 1300, "write", value).ledger(&[entry]).end(5000, 9)
    };
    let story = one().open(600, 605, 2).grant(610, 1000, 2, 8, &strict);
    let story = story.ok(1010, 1020, "confirm", confirm);
    write(story.clone().ok(1015, 1025, "check_token", current.clone()), 1019).good();
    write(story.clone(), 1021).bad(&["handoff"]);
    write(story.ok(1001, 1005, "check_token", current), 1000).bad(&["handoff"]);
    // Unconfirmed it ends: 500 ms from its first invocation, less 10.
    let unconfirmed = one().release(30, 31, 1, 7).open(600, 605, 2).grant(610, 620, 2, 8, &strict);
    let next = |at: u64| {
        let story = unconfirmed.clone().open(900, 905, 3);
        story.grant(910, at, 3, 9, &json!({})).end(5000, 10)
    };
    next(1100).good();
    next(1099).bad(&["exclusion", "search"]);
}
