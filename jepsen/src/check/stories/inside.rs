//! Ledgers, feeds, nodes, recovery and coverage.

use serde_json::{Value, json};

use super::{Story, check};
use crate::check::{Run, Valid};

fn entry(seq: u64, token: u64, element: &str) -> Value {
    json!({"seq": seq, "resource": "r", "token": token, "floor": token, "session": token - 6,
        "element": element, "accepted": true})
}

/// Two owners one after the other, and a write of each.
fn writes() -> Story {
    let story = Story::new().open(0, 5, 1).open(0, 5, 2).grant(10, 20, 1, 7, &json!({}));
    let write = |token: u64, element: &str| {
        json!({"resource": "r", "token": token,
        "floor": token, "element": element, "dest": "d"})
    };
    let story = story.ok(21, 25, "write", write(7, "a")).release(30, 40, 1, 7);
    story.grant(15, 45, 2, 8, &json!({})).ok(50, 55, "write", write(8, "b")).end(5000, 9)
}

fn feed() -> Vec<Value> {
    let of = |index: u64, kind: &str, session: u64, token: u64| {
        json!({"kind": kind, "index": index, "resources": ["r"], "session": session,
            "request": 1, "token": token, "floor": token, "cause": "released"})
    };
    let open = |index: u64, session: u64| json!({"kind": "session_opened", "index": index, "session": session});
    vec![
        open(1, 1),
        open(2, 2),
        of(3, "granted", 1, 7),
        of(4, "queued", 2, 0),
        of(5, "ended", 1, 7),
        json!({"kind": "granted", "index": 5, "ordinal": 1,
            "resources": ["r"], "session": 2, "request": 1, "token": 8, "floor": 8}),
    ]
}

#[test]
fn a_destination_refuses_the_stale_and_keeps_the_acknowledged() {
    let good = [entry(1, 7, "a"), entry(2, 8, "b")];
    writes().ledger(&good).audit(&feed()).good();
    let stale = [good[0].clone(), good[1].clone(), entry(3, 7, "c")];
    writes().ledger(&stale).bad(&["ledger"]);
    writes().ledger(&good[..1]).bad(&["ledger"]);
    let twice = [good[0].clone(), good[1].clone(), entry(3, 8, "b")];
    writes().ledger(&twice).bad(&["ledger"]);
    let mut stolen = good.clone();
    stolen[1]["session"] = json!(1);
    writes().ledger(&stolen).bad(&["ledger"]);
    let mut unknown = entry(3, 9, "c");
    unknown["token"] = json!(12);
    let unknown = [good[0].clone(), good[1].clone(), unknown];
    writes().ledger(&unknown).audit(&feed()).bad(&["ledger"]);
    let mut refused = entry(3, 8, "c");
    refused["accepted"] = json!(false);
    refused["reason"] = json!("FENCED");
    let refused = [good[0].clone(), good[1].clone(), refused];
    writes().ledger(&refused).bad(&["ledger"]);
}

#[test]
fn an_update_that_was_lost_shows_in_the_counter() {
    let counted = |second: u64| {
        let mut ledger = [entry(1, 7, "a"), entry(2, 8, "b")];
        ledger[0]["counter"] = json!(1);
        ledger[1]["counter"] = json!(second);
        writes().ledger(&ledger)
    };
    counted(2).good();
    counted(1).bad(&["ledger"]);
}

#[test]
fn a_slot_has_a_mark_of_its_own() {
    let slot = |seq: u64, token: u64, slot: u32, accepted: bool| {
        json!({"seq": seq, "resource": "q", "token": token, "floor": 3, "slot": slot,
            "session": 0, "accepted": accepted, "reason": "FENCED"})
    };
    let ledger = [slot(1, 5, 0, true), slot(2, 4, 1, true), slot(3, 4, 0, false)];
    writes().ledger(&[entry(1, 7, "a"), entry(2, 8, "b")][..]).good();
    let story = Story::new().end(100, 9);
    story.clone().ledger(&ledger).good();
    let mut wrong = ledger;
    wrong[2]["accepted"] = json!(true);
    story.ledger(&wrong).bad(&["ledger"]);
}

#[test]
fn the_feed_is_lawful_at_every_revision() {
    let story = || Story::new().end(100, 9);
    let good = feed();
    let story_of = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut feed = good.clone();
        change(&mut feed);
        let run = Run::new(story().audit(&feed).evidence(), super::Settings::default());
        let verdicts = check(&run).into_iter().find(|verdict| verdict.checker == "audit");
        verdicts.expect("there is one")
    };
    assert_eq!(story_of(&|_| {}).valid, Valid::True);
    let first = |what: &str, change: &dyn Fn(&mut Vec<Value>)| {
        let verdict = story_of(change);
        assert_eq!(verdict.valid, Valid::False, "{what}");
        let told = verdict.violations.iter().any(|violation| violation.what.contains(what));
        assert!(told, "{what}: {verdict}");
    };
    first("comes after token 7", &|feed| feed[5]["token"] = json!(6));
    first("beside token 7", &|feed| drop(feed.remove(4)));
    first("first in the queue", &|feed| {
        let other = json!({"kind": "queued", "index": 4, "ordinal": 1, "resources": ["r"],
            "session": 3, "request": 1});
        feed.insert(4, other);
        feed[6]["session"] = json!(3);
    });
    first("after its end", &|feed| {
        let end = json!({"kind": "session_ended", "index": 4, "ordinal": 1, "session": 2});
        feed.insert(4, end);
    });
    first("outlives its session", &|feed| {
        feed.truncate(3);
        feed.push(json!({"kind": "session_ended", "index": 4, "session": 1}));
    });
    first("with floor 8 instead of 9", &|feed| {
        feed[5]["token"] = json!(9);
    });
    first("while it is frozen", &|feed| {
        let frozen = json!({"kind": "frozen", "index": 4, "ordinal": 1, "resources": ["r"]});
        feed.insert(4, frozen);
    });
    first("ends at index 5 unheld", &|feed| feed[4]["token"] = json!(3));
    let gap = story_of(&|feed| feed.insert(3, json!({"kind": "gap", "index": 3})));
    assert_eq!(gap.unknown.len(), 1, "{gap}");
}

#[test]
fn after_a_gap_the_feed_is_judged_from_the_state_that_it_begins_with() {
    let judged = |held: &[u64]| {
        let mut lines = feed();
        lines.insert(3, json!({"kind": "gap"}));
        for (at, token) in held.iter().enumerate() {
            let state = json!({"kind": "state_held", "resources": ["r"], "session": 1,
                "token": token, "mode": "exclusive"});
            lines.insert(4 + at, state);
        }
        let evidence = Story::new().end(100, 9).audit(&lines).evidence();
        let settings = super::Settings { gaps_max: 1, ..super::Settings::default() };
        let verdicts = check(&Run::new(evidence, settings)).into_iter();
        verdicts.into_iter().find(|verdict| verdict.checker == "audit").expect("there is one")
    };
    assert_eq!(judged(&[7]).valid, Valid::True, "{}", judged(&[7]));
    let wrong = judged(&[6, 7]);
    assert_eq!(wrong.valid, Valid::False, "{wrong}");
    assert!(wrong.violations[0].what.contains("beside token 6"), "{wrong}");
}

fn status(time: u64, start: u64, term: u64, applied: u64) -> Value {
    json!({"time": time, "start": start, "term": term, "vote": 1, "leader": 1, "role": "follower",
        "commit": applied, "applied": applied, "state_hash": format!("h{applied}"),
        "state_hash_index": applied})
}

#[test]
fn nodes_do_not_go_back_and_do_not_differ() {
    let story = || Story::new().end(100, 9).status("n1", status(1, 1, 2, 10));
    story().status("n1", status(2, 2, 3, 12)).status("n2", status(2, 1, 2, 10)).good();
    story().status("n1", status(2, 1, 1, 10)).bad(&["nodes"]);
    story().status("n1", status(2, 2, 1, 10)).bad(&["nodes"]);
    story().status("n1", status(2, 1, 2, 9)).bad(&["nodes"]);
    // What was applied may be ahead of the disk, unless the run says otherwise.
    let mut back = story().status("n1", status(2, 2, 2, 9));
    back.clone().good();
    back.settings.durable_positions = true;
    back.bad(&["nodes"]);
    let changed = |field: &str, value: Value| {
        let mut other = status(2, 1, 2, 10);
        other[field] = value;
        other
    };
    story().status("n1", changed("vote", json!(2))).bad(&["nodes"]);
    story().status("n2", changed("state_hash", json!("other"))).bad(&["nodes"]);
    story().status("n2", changed("leader", json!(2))).bad(&["nodes"]);
    let both = story().status("n1", changed("role", json!("leader")));
    both.status("n2", changed("role", json!("leader"))).bad(&["nodes"]);
}

#[test]
fn in_the_end_everything_can_be_had_again_and_the_nodes_agree() {
    let story = Story::new().open(0, 5, 1).grant(10, 20, 1, 7, &json!({}));
    let mut after = story.clone().end(100, 9);
    after.settings.agreement = true;
    let at = |time: u64, applied: u64| status(time * super::MS, 1, 2, applied);
    let agree = after.clone().status("n1", at(200, 10)).status("n2", at(200, 10));
    // The last grant of `end` comes at once, while session 1 still lives.
    let late = |story: Story| story.convicted().contains(&"recovery".to_owned());
    assert!(!late(agree));
    assert!(late(after.clone().status("n1", at(200, 10)).status("n2", at(200, 11))));
    let mut none = status(200 * super::MS, 1, 2, 10);
    none["leader"] = json!(0);
    assert!(late(after.status("n1", none)));
    let failed = json!({"session": 2, "request": 1, "resource": "r", "final": true});
    let story = story.open(1900, 1901, 2);
    let story = story.fail(2000, 2005, "acquire", failed, "BUSY");
    story.bad(&["recovery"]);
}

#[test]
fn a_run_in_which_too_little_happened_is_unknown() {
    let valid = |change: &dyn Fn(&mut Story)| {
        let mut story = Story::new().nemesis(1, 2, "kill").end(100, 9);
        change(&mut story);
        let verdicts = check(&Run::new(story.evidence(), story.settings.clone()));
        crate::check::over_all(&verdicts)
    };
    assert_eq!(valid(&|_| {}), Valid::True);
    assert_eq!(valid(&|story| story.settings.faults = vec!["kill".into()]), Valid::True);
    assert_eq!(valid(&|story| story.settings.faults = vec!["pause".into()]), Valid::Unknown);
    let gets = |story: &mut Story| story.settings.ok = [("get".into(), 1)].into();
    assert_eq!(valid(&gets), Valid::Unknown);
    let after =
        |count: u64| valid(&|story| story.settings.ok_after = [("acquire".into(), count)].into());
    assert_eq!((after(1), after(2)), (Valid::True, Valid::Unknown));
    assert_eq!(valid(&|story| story.settings.leader_change = true), Valid::Unknown);
    assert_eq!(valid(&|story| story.settings.expiry = true), Valid::Unknown);
    let failed = |story: &mut Story| *story = story.clone().nemesis(3, 4, "harness-failure");
    assert_eq!(valid(&failed), Valid::Unknown);
    let untried = |story: &mut Story| {
        let other = json!({"resource": "s"});
        *story = story.clone().open(0, 1, 1).grant(2, 3, 1, 5, &other);
    };
    assert_eq!(valid(&untried), Valid::Unknown);
}
