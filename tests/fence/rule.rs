//! The pure rule, and the marks in memory that are the rule and a mutex.

use std::sync::Arc;

use proptest::prelude::*;
use ringfence::fence::{Fence, FenceError, MemoryMarks, Refusal, Verdict, decide};
use ringfence::locks::ClusterId;

use crate::stories::{assert_answer, exclusive, name, shared, stories, token};

#[test]
fn memory_tells_every_story() {
    let marks = MemoryMarks::new();
    for story in stories() {
        for step in story.steps() {
            assert_answer(story.resource, &step, marks.raise(&step.fence));
        }
    }
}

#[test]
fn scenario_e5_a_refused_write_is_not_run_and_the_answer_names_the_highest_seen() {
    let marks = MemoryMarks::new();
    let mut written = Vec::new();
    let mut refusals = Vec::new();
    for number in [5, 6, 5, 6, 7, 6] {
        let fence = exclusive("job/7", number);
        match marks.guarded(&fence, || written.push(number)) {
            Ok(()) => {}
            Err(error) => refusals.push(error.to_string()),
        }
    }
    assert_eq!(written, [5, 6, 6, 7]);
    assert_eq!(
        refusals,
        [
            "stale fence: token 5 is below the mark 6 of job/7",
            "stale fence: token 6 is below the mark 7 of job/7",
        ]
    );
    assert_eq!(marks.mark(&name("job/7"), None), Some(token(7)));
}

#[test]
fn a_floor_above_its_token_is_refused_and_leaves_no_mark() {
    let marks = MemoryMarks::new();
    let refused = marks.raise(&shared("job/7", 5, 6));
    assert!(matches!(
        refused,
        Err(FenceError::FloorAboveToken { token: t, floor, .. }) if (t, floor) == (token(5), token(6))
    ));
    assert_eq!(marks.mark(&name("job/7"), None), None);
}

/// Judged by the marks as they were before, a resource that is named twice could end below
/// what was accepted: 9 and then 5 on a mark of 5 would let 6 write.
#[test]
fn a_write_comes_with_one_fence_or_more_each_of_another_resource() {
    let marks = MemoryMarks::new();
    marks.raise(&exclusive("job/7", 5)).expect("the first owner");
    let twice = [exclusive("job/7", 9), exclusive("job/7", 5)];
    for fences in [&twice[..], &[]] {
        let refused = marks.guarded_set(fences, || unreachable!("not written"));
        assert!(matches!(refused, Err(FenceError::Set)), "{fences:?}");
    }
    assert_eq!(marks.mark(&name("job/7"), None), Some(token(5)));
}

#[test]
fn another_authority_is_refused_until_it_is_adopted() {
    let marks = MemoryMarks::new();
    let (old, new) = (exclusive("job/7", 5), ClusterId::new([8; 16]));
    let restored = Fence { cluster: new, ..exclusive("job/7", 900) };
    marks.raise(&old).expect("the first authority");
    let refused = marks.raise(&restored);
    assert!(matches!(
        refused,
        Err(FenceError::ForeignCluster { known, offered, .. })
            if (known, offered) == (old.cluster, new)
    ));
    assert_eq!(marks.adopt(old.cluster, new), 1);
    assert_eq!(marks.mark(&name("job/7"), None), Some(token(5)), "adopting moves no mark");
    marks.raise(&restored).expect("adopted");
    assert!(matches!(marks.raise(&old), Err(FenceError::ForeignCluster { .. })));
}

#[test]
fn a_write_that_panics_leaves_the_marks_usable_and_raised() {
    let marks = Arc::new(MemoryMarks::new());
    let writer = Arc::clone(&marks);
    let died = std::thread::spawn(move || {
        writer.guarded(&exclusive("job/7", 6), || panic!("the disk is on fire"))
    });
    assert!(died.join().is_err());
    assert!(matches!(marks.raise(&exclusive("job/7", 5)), Err(FenceError::Stale { .. })));
    marks.raise(&exclusive("job/7", 6)).expect("the owner goes on");
}

fn any_fence() -> impl Strategy<Value = Fence> {
    (proptest::option::of(0..3_u32), 1..12_u64, 1..12_u64)
        .prop_map(|(slot, number, floor)| Fence { slot, ..shared("r", number, floor) })
}

proptest! {
    /// [I8] over every prefix of any sequence of fences, valid or not.
    #[test]
    fn a_mark_never_falls_and_nothing_below_it_is_accepted(
        fences in proptest::collection::vec(any_fence(), 1..40),
    ) {
        let mut marks = None;
        for fence in fences {
            match decide(marks, &fence) {
                Verdict::Accept(after) => {
                    prop_assert!(fence.floor <= fence.token);
                    prop_assert!(after.resource >= fence.floor);
                    prop_assert!(fence.slot.is_none() || after.slot >= Some(fence.token));
                    if let Some(before) = marks {
                        prop_assert!(fence.token >= before.resource);
                        prop_assert!(fence.slot.is_none() || Some(fence.token) >= before.slot);
                        prop_assert!(after.resource >= before.resource && after.slot >= before.slot);
                    }
                    prop_assert_eq!(decide(Some(after), &fence), Verdict::Accept(after), "again");
                    marks = Some(after);
                }
                Verdict::Refuse(Refusal::FloorAboveToken) => {
                    prop_assert!(fence.floor > fence.token);
                }
                Verdict::Refuse(Refusal::Stale { mark, slot }) => {
                    prop_assert!(fence.token < mark && (slot.is_none() || slot == fence.slot));
                }
                Verdict::Refuse(Refusal::ForeignCluster { .. }) => {
                    prop_assert!(false, "there is one authority");
                }
            }
        }
    }
}
