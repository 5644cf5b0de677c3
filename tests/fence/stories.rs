//! Sequences of fences and what every destination answers to them, in any store.

use ringfence::fence::{Fence, FenceError};
use ringfence::locks::{ClusterId, ResourceName, Token};

/// The authority of the stories.
pub const AUTHORITY: ClusterId = ClusterId::new([7; 16]);

/// What a destination answers to one write: nothing, or the mark that refuses.
pub struct Step {
    pub fence: Fence,
    pub refused_by: Option<Refuser>,
}

/// Whose mark refuses, the resource's or a slot's, and where it stands.
type Refuser = (Option<u32>, u64);

type Written = (Option<u32>, u64, u64, Option<Refuser>);

/// One story: a name that is also its resource's, and its writes in order.
pub struct Story {
    pub resource: &'static str,
    steps: Vec<Written>,
}

impl Story {
    /// The writes.
    pub fn steps(&self) -> impl Iterator<Item = Step> {
        self.steps.iter().map(|(slot, token, floor, refused_by)| Step {
            fence: Fence { slot: *slot, ..shared(self.resource, *token, *floor) },
            refused_by: *refused_by,
        })
    }
}

/// A number that is a token.
pub fn token(number: u64) -> Token {
    Token::new(number).expect("the tests use valid tokens")
}

/// A name that is a resource's.
pub fn name(name: &str) -> ResourceName {
    ResourceName::new(name).expect("the tests use valid names")
}

/// The fence of an exclusive grant.
pub fn exclusive(resource: &str, number: u64) -> Fence {
    shared(resource, number, number)
}

/// The fence of a shared grant.
pub fn shared(resource: &str, number: u64, floor: u64) -> Fence {
    Fence {
        cluster: AUTHORITY,
        resource: name(resource),
        slot: None,
        token: token(number),
        floor: token(floor),
    }
}

/// How many writes the sixteen writers try between them.
pub const ATTEMPTS: u64 = 400;

/// The token of one of them: they drift upwards and are mixed within a window,
/// whichever writer comes to it.
pub fn mixed(attempt: u64) -> u64 {
    1 + attempt / 2 + attempt * 7 % 16
}

/// What the destination has accepted, in commit order, never goes back; and the
/// test was one: much was accepted and much was not.
pub fn assert_never_back(accepted: &[u64]) {
    assert!(accepted.is_sorted(), "{accepted:?}");
    let tried = usize::try_from(ATTEMPTS).expect("a small number");
    assert!((10..tried).contains(&accepted.len()), "{} of {tried} accepted", accepted.len());
}

/// Whether the answer is the expected one, with every name in it.
pub fn assert_answer(story: &str, step: &Step, answer: Result<(), FenceError>) {
    match (answer, step.refused_by) {
        (Ok(()), None) => {}
        (Err(FenceError::Stale { resource, token, mark, slot }), Some(expected)) => assert_eq!(
            (resource, token, (slot, mark.get())),
            (step.fence.resource.clone(), step.fence.token, expected),
            "{story}: the refusal names what refused"
        ),
        (answer, expected) => {
            panic!("{story}, {:?}: {answer:?}, expected refusal: {expected:?}", step.fence)
        }
    }
}

/// All stories. A write is slot, token, floor; then the slot (none for
/// the resource) whose mark refuses it, and that mark.
#[allow(clippy::too_many_lines, reason = "one list, read from top to bottom")]
pub fn stories() -> Vec<Story> {
    let told = |resource, steps: &[Written]| Story { resource, steps: steps.to_vec() };
    vec![
        told(
            "scenario e5: one owner writes many times, a stale one never",
            &[
                (None, 5, 5, None),
                (None, 6, 6, None),
                (None, 5, 5, Some((None, 6))),
                (None, 6, 6, None),
                (None, 7, 7, None),
                (None, 6, 6, Some((None, 7))),
            ],
        ),
        told(
            "shared holders live together, an exclusive one ends them",
            &[
                (None, 3, 3, None),
                (None, 4, 3, None),
                (None, 3, 3, None),
                (None, 5, 5, None),
                (None, 4, 3, Some((None, 5))),
                (None, 3, 3, Some((None, 5))),
            ],
        ),
        told(
            "a reused slot ends its former holder and no other",
            &[
                (Some(0), 1, 1, None),
                (Some(1), 2, 1, None),
                (Some(1), 3, 1, None),
                (Some(1), 2, 1, Some((Some(1), 3))),
                (Some(0), 1, 1, None),
            ],
        ),
        told(
            "one fence on the resource shuts out every slot, as a freeze does",
            &[
                (Some(0), 1, 1, None),
                (Some(4_294_967_295), 2, 1, None),
                (None, 3, 3, None),
                (Some(0), 1, 1, Some((None, 3))),
                (Some(4_294_967_295), 2, 1, Some((None, 3))),
            ],
        ),
        told(
            "counterexample 11: an exclusive owner wakes after a slot holder wrote",
            &[(None, 1, 1, None), (Some(0), 2, 2, None), (None, 1, 1, Some((None, 2)))],
        ),
        told(
            "counterexample 12: three slots became two and the third holder wakes",
            &[
                (Some(0), 1, 1, None),
                (Some(1), 2, 1, None),
                (Some(2), 3, 1, None),
                (Some(0), 4, 4, None),
                (Some(2), 3, 1, Some((None, 4))),
            ],
        ),
        told(
            "counterexample 13: one of two shared holders is revoked, the other writes on",
            &[
                (None, 5, 5, None),
                (None, 6, 5, None),
                (None, 7, 6, None),
                (None, 6, 5, None),
                (None, 5, 5, Some((None, 6))),
            ],
        ),
        told(
            "names may look like an answer: token=9 mark=9 resource=x",
            &[(None, Token::MAX, Token::MAX, None), (None, 8, 8, Some((None, Token::MAX)))],
        ),
    ]
}
