//! What deadlines do when the quorum fails at the worst moment.

use std::time::Duration;

use ringfence::leases::{Leases, Moment, Renewal};
use ringfence::locks::{Millis, Overdue, Position, Term};

use crate::authority::Authority;

const TTL: Millis = Millis(10_000);
const USUAL: Duration = Duration::from_millis(200);

fn at(ms: u64) -> Moment {
    Moment::from_nanos((100_000 + ms) * 1_000_000)
}

/// Counterexample 16 at the beginning of a term: its first entry is applied, and then
/// no round is confirmed for longer than a ttl.
#[test]
fn a_term_that_could_serve_nobody_at_first_ends_nobody_at_its_first_round() {
    let mut authority = Authority::new();
    let mut leases = Leases::default();
    let client = authority.open(1, TTL);
    let opened = authority.last.as_ref().expect("the opening").facts.clone();
    leases.observe(&opened, at(0));
    let index = authority.table.position().index + 1;
    let began = authority.table.pass(Position { term: Term(2), index });
    leases.observe(&began.facts, at(1_000));
    let first_round = at(16_000);
    assert!(leases.lead(Term(2), first_round));
    leases.confirmed(Term(2), first_round, USUAL);
    // Its owner has asked all the time.
    assert_eq!(leases.renew(client.session, at(15_900), Term(2)), Renewal::Unseen);
    assert_eq!(leases.overdue(at(16_100), 10), []);
    // What is left of its time after the stall is all that it gets.
    let seen = authority.table.session(client.session).expect("live").row.seen.index;
    let end = at(1_000) + TTL.duration() + (first_round.since(at(1_000)) - USUAL);
    for ms in (16_200..26_000).step_by(200) {
        leases.confirmed(Term(2), at(ms), USUAL);
        let overdue = leases.overdue(at(ms), 10);
        if at(ms) >= end {
            assert_eq!(overdue, [Overdue { session: client.session, seen }]);
            return;
        }
        assert_eq!(overdue, [], "{ms} ms");
    }
    panic!("it lives on");
}
