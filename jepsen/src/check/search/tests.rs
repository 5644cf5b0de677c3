//! The search against brute force, and on histories with known answers.

use proptest::prelude::*;

use super::*;
use crate::check::evidence::Mode;
use crate::check::model::{Call, Lock};

/// Every order of every part of the calls: for small histories.
fn brute_force<M: Model>(model: &M, calls: &[Step<M::Call>]) -> bool {
    fn go<M: Model>(
        model: &M,
        calls: &[Step<M::Call>],
        placed: &mut Vec<bool>,
        state: &M::State,
    ) -> bool {
        let missing =
            |placed: &[bool]| (0..calls.len()).filter(|place| !placed[*place]).collect::<Vec<_>>();
        let left = missing(placed);
        if left.iter().all(|place| calls[*place].ret.is_none()) {
            return true;
        }
        left.iter().any(|place| {
            // Nothing that returned before this one began may be left.
            let free = left
                .iter()
                .all(|other| calls[*other].ret.is_none_or(|ret| ret >= calls[*place].inv));
            let Some(next) = model.step(state, &calls[*place]).filter(|_| free) else {
                return false;
            };
            placed[*place] = true;
            let found = go(model, calls, placed, &next);
            placed[*place] = false;
            found
        })
    }
    go(model, calls, &mut vec![false; calls.len()], &model.init())
}

fn mode() -> impl Strategy<Value = (Mode, Option<u32>)> {
    prop_oneof![
        Just((Mode::Exclusive, None)),
        Just((Mode::Shared, None)),
        (0..2u32).prop_map(|slot| (Mode::Slots, Some(slot))),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let token = 1..6u64;
    prop_oneof![
        3 => (proptest::option::weighted(0.8, token.clone()), mode(), 0..60u64)
            .prop_map(|(token, (mode, slot), end)| Call::Acquire { token, mode, slot, end }),
        2 => (token.clone(), prop::bool::weighted(0.8))
            .prop_map(|(token, done)| Call::Release { token, done }),
        1 => proptest::collection::btree_set(token, 0..2)
            .prop_map(|holders| Call::Read { holders: holders.into_iter().collect() }),
    ]
}

fn history() -> impl Strategy<Value = Vec<Step<Call>>> {
    let step = (call(), 0..40u64, 0..15u64, prop::bool::weighted(0.85)).prop_map(
        |(call, inv, length, returns)| Step { call, inv, ret: returns.then_some(inv + length) },
    );
    proptest::collection::vec(step, 1..8)
}

/// A lawful history: made from an order, then spread out in time.
fn lawful() -> impl Strategy<Value = Vec<Step<Call>>> {
    let one = (1..30u64, 0..30u64, 0..30u64, 0..4u8, prop::bool::weighted(0.9));
    proptest::collection::vec(one, 1..7).prop_map(|grants| {
        let mut steps = Vec::new();
        let (mut at, mut token) = (100, 0);
        for (held, before, after, ends, returns) in grants {
            token += 1;
            let spread = |at: u64| (at - before.min(at), Some(at + after).filter(|_| returns));
            let (mode, slot, end) = (Mode::Exclusive, None, at + held);
            let call = Call::Acquire { token: Some(token), mode, slot, end };
            let (inv, ret) = spread(at);
            steps.push(Step { call, inv, ret });
            if ends > 0 {
                let (inv, ret) = (at + held / 2 - (held / 4).min(before), Some(at + held));
                steps.push(Step { call: Call::Release { token, done: true }, inv, ret });
            }
            let (inv, ret) = (at + 1 - before.min(1), Some(at + 1 + held / 4));
            if held > 4 {
                steps.push(Step { call: Call::Read { holders: vec![token] }, inv, ret });
            }
            at += held + 1;
        }
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_search_agrees_with_brute_force(calls in history()) {
        let found = search(&Lock, &calls, 1_000_000);
        prop_assert_eq!(matches!(found, Found::Order(_)), brute_force(&Lock, &calls));
    }

    #[test]
    fn an_order_that_it_finds_is_one(calls in lawful()) {
        let Found::Order(order) = search(&Lock, &calls, 1_000_000) else {
            return Err(TestCaseError::fail("it is lawful"));
        };
        let mut state = Lock.init();
        for (at, place) in order.iter().enumerate() {
            state = Lock.step(&state, &calls[*place]).expect("lawful one by one");
            for later in &order[at + 1..] {
                prop_assert!(calls[*later].ret.is_none_or(|ret| ret >= calls[*place].inv));
            }
        }
        for (place, step) in calls.iter().enumerate() {
            prop_assert!(step.ret.is_none() || order.contains(&place));
        }
    }

    #[test]
    fn what_is_made_short_is_unlawful_still(calls in history()) {
        if matches!(search(&Lock, &calls, 1_000_000), Found::Nothing { .. }) {
            let kept = shrink(&Lock, &calls, 1_000_000);
            let some: Vec<Step<Call>> = kept.iter().map(|place| calls[*place].clone()).collect();
            prop_assert!(!brute_force(&Lock, &some));
        }
    }
}

fn grant(inv: u64, ret: u64, token: u64, end: u64) -> Step<Call> {
    let (mode, slot) = (Mode::Exclusive, None);
    Step { call: Call::Acquire { token: Some(token), mode, slot, end }, inv, ret: Some(ret) }
}

fn release(inv: u64, ret: u64, token: u64) -> Step<Call> {
    Step { call: Call::Release { token, done: true }, inv, ret: Some(ret) }
}

#[test]
fn a_long_bad_history_is_made_short() {
    let mut calls = Vec::new();
    for token in 1..300 {
        calls.push(grant(token * 10, token * 10 + 2, token, u64::MAX));
        calls.push(release(token * 10 + 3, token * 10 + 5, token));
    }
    assert!(matches!(search(&Lock, &calls, 100_000), Found::Order(order) if order.len() == 598));
    calls.push(grant(2004, 2005, 1_000, u64::MAX));
    let kept = shrink(&Lock, &calls, 100_000);
    // The odd one, and the first grant after it, whose token is lower.
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept.contains(&598));
}

#[test]
fn a_search_that_takes_too_long_is_unknown() {
    let infos = (0..24).map(|inv| Step {
        call: Call::Acquire { token: None, mode: Mode::Shared, slot: None, end: inv },
        inv,
        ret: None,
    });
    let mut calls: Vec<Step<Call>> = infos.collect();
    calls.push(Step { call: Call::Read { holders: vec![9] }, inv: 100, ret: Some(101) });
    assert_eq!(search(&Lock, &calls, 20_000), Found::Unknown);
}
