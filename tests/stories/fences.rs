//! The counterexamples of section 12 in which a destination takes part: the fences of the
//! table against the marks in memory.

use ringfence::fence::MemoryMarks;
use ringfence::locks::{Administered, Command, Done, Fence, Mode, Note, Overdue, Refusal};

use crate::authority::{Authority, Client, resource, token};

const TTL: ringfence::locks::Millis = ringfence::locks::Millis(20_000);

/// The fence that travels with writes under a live grant.
fn fence(authority: &Authority, name: &str, number: u64) -> Fence {
    let grant = authority.table.grant(token(number)).expect("the grant is live");
    authority.table.fence(grant, &resource(name)).expect("the authority has an identity")
}

/// Whether a write under the fence is applied.
fn writes(marks: &MemoryMarks, fence: &Fence) -> bool {
    marks.guarded(fence, || ()).is_ok()
}

fn expire(authority: &mut Authority, client: &Client) {
    let sessions = vec![Overdue { session: client.session, seen: u64::MAX }];
    authority.apply(&Command::ExpireSessions { sessions });
}

/// The fence that a revoke returns.
fn revoke(authority: &mut Authority, name: &str, number: u64) -> Fence {
    let note = Note::new("dana", "moved").expect("a good note");
    let command = Command::Revoke { resource: resource(name), token: token(number), note };
    let revoked = authority.apply(&command).outcome.clone();
    let Ok(Done::Administered(Administered::Revoked { slot, token, floor, .. })) = revoked else {
        panic!("{revoked:?}")
    };
    let cluster = authority.table.cluster().expect("bootstrapped");
    Fence { cluster, resource: resource(name), slot, token, floor }
}

#[test]
fn counterexample_11_an_exclusive_owner_that_wakes_after_a_slot_holder_wrote_is_refused() {
    let (mut authority, marks) = (Authority::new(), MemoryMarks::new());
    let (mut a, mut b) = (authority.open(1, TTL), authority.open(2, TTL));
    authority.apply(&a.tries(&["screens"]));
    let old = fence(&authority, "screens", 1);
    assert!(writes(&marks, &old));
    expire(&mut authority, &a);
    authority.apply(&b.tries_in(Mode::Slots { of: 3 }, &["screens"]));
    assert!(writes(&marks, &fence(&authority, "screens", 2)));
    assert!(!writes(&marks, &old));
}

#[test]
fn counterexample_12_the_holder_of_a_slot_that_is_no_more_is_refused() {
    let (mut authority, marks) = (Authority::new(), MemoryMarks::new());
    let mut three: Vec<_> = (1..=3).map(|owner| authority.open(owner, TTL)).collect();
    for client in &mut three {
        authority.apply(&client.tries_in(Mode::Slots { of: 3 }, &["screens"]));
    }
    let old: Vec<_> = (1..=3).map(|number| fence(&authority, "screens", number)).collect();
    assert!(old.iter().all(|fence| writes(&marks, fence)));
    assert_eq!(old[2].slot, Some(2));
    for client in &three {
        expire(&mut authority, client);
    }
    let mut next = authority.open(4, TTL);
    authority.apply(&next.tries_in(Mode::Slots { of: 2 }, &["screens"]));
    assert!(writes(&marks, &fence(&authority, "screens", 4)));
    assert!(old.iter().all(|fence| !writes(&marks, fence)));
}

#[test]
fn counterexample_13_revoking_one_of_two_who_share_leaves_the_other_able_to_write() {
    for revoked in [1, 2] {
        let (mut authority, marks) = (Authority::new(), MemoryMarks::new());
        let (mut a, mut b) = (authority.open(1, TTL), authority.open(2, TTL));
        authority.apply(&a.tries_in(Mode::Shared, &["map"]));
        authority.apply(&b.tries_in(Mode::Shared, &["map"]));
        let fences = [1, 2].map(|number| fence(&authority, "map", number));
        marks.raise(&revoke(&mut authority, "map", revoked)).expect("above all marks");
        let remains = usize::from(revoked == 1);
        assert!(writes(&marks, &fences[remains]), "revoking {revoked}");
        // To fence out one, all are revoked. A waiter that this grants is none who remains.
        let mut c = authority.open(3, TTL);
        authority.apply(&c.waits(&["map"]));
        marks.raise(&revoke(&mut authority, "map", 3 - revoked)).expect("above all marks");
        assert!(fences.iter().all(|stale| !writes(&marks, stale)), "revoking {revoked}");
        assert!(writes(&marks, &fence(&authority, "map", 5)));
    }
}

#[test]
fn counterexample_14_who_would_wait_behind_one_that_waits_for_it_is_refused() {
    let mut authority = Authority::new();
    let (mut b, mut d) = (authority.open(1, TTL), authority.open(2, TTL));
    authority.apply(&b.tries(&["b"]));
    authority.apply(&d.waits(&["a", "b", "c"]));
    let refused = authority.apply(&b.waits(&["c"])).outcome.clone();
    let Err(Refusal::Deadlock { cycle }) = refused else { panic!("{refused:?}") };
    let told: Vec<_> = cycle.iter().map(|step| (step.session, step.resource.as_str())).collect();
    assert_eq!(told, [(b.session, "c"), (d.session, "b")]);
    // Nothing was queued: D is granted when B gives b back.
    authority.apply(&b.releases("b", token(1)));
    let held = authority.table.live_grant_on(&resource("c"), token(2));
    assert_eq!(held.map(|grant| grant.wait.session), Some(d.session));
}

#[test]
fn a_slot_that_is_used_again_rejects_its_former_holder_and_no_other() {
    let (mut authority, marks) = (Authority::new(), MemoryMarks::new());
    let two = Mode::Slots { of: 2 };
    let mut clients: Vec<_> = (1..=3).map(|owner| authority.open(owner, TTL)).collect();
    for client in &mut clients {
        authority.apply(&client.waits_in(two, &["screens"]));
    }
    let old = [1, 2].map(|number| fence(&authority, "screens", number));
    assert!(old.iter().all(|fence| writes(&marks, fence)));
    expire(&mut authority, &clients[1]);
    let next = fence(&authority, "screens", 3);
    assert_eq!((next.slot, next.floor), (Some(1), token(1)));
    assert!(writes(&marks, &next));
    assert_eq!([writes(&marks, &old[0]), writes(&marks, &old[1])], [true, false]);
}

#[test]
fn one_fence_of_a_freeze_shuts_out_every_earlier_holder_slots_included() {
    let (mut authority, marks) = (Authority::new(), MemoryMarks::new());
    let mut clients: Vec<_> = (1..=3).map(|owner| authority.open(owner, TTL)).collect();
    for client in &mut clients {
        authority.apply(&client.tries_in(Mode::Slots { of: 3 }, &["db"]));
    }
    let old: Vec<_> = (1..=3).map(|number| fence(&authority, "db", number)).collect();
    let note = Note::new("dana", "cutover").expect("a good note");
    let frozen = authority.apply(&Command::Freeze { resource: resource("db"), note });
    let Ok(Done::Administered(Administered::Frozen { token })) = frozen.outcome else {
        panic!("{frozen:?}")
    };
    let cluster = authority.table.cluster().expect("bootstrapped");
    let shut = Fence { cluster, resource: resource("db"), slot: None, token, floor: token };
    assert!(old.iter().all(|fence| writes(&marks, fence)));
    marks.raise(&shut).expect("above all marks");
    assert!(old.iter().all(|fence| !writes(&marks, fence)));
}

/// Fewer slots: each that is removed is fenced, once it is empty, by the change's token.
#[test]
fn a_slot_that_was_removed_can_be_fenced_when_it_is_empty() {
    let (mut authority, marks) = (Authority::new(), MemoryMarks::new());
    let mut clients: Vec<_> = (1..=3).map(|owner| authority.open(owner, TTL)).collect();
    for client in &mut clients {
        authority.apply(&client.tries_in(Mode::Slots { of: 3 }, &["screens"]));
    }
    let old: Vec<_> = (1..=3).map(|number| fence(&authority, "screens", number)).collect();
    assert!(old.iter().all(|fence| writes(&marks, fence)));
    let note = Note::new("dana", "fewer").expect("a good note");
    let command = Command::Resize { resource: resource("screens"), slots: 2, note };
    let resized = authority.apply(&command).outcome.clone();
    let Ok(Done::Administered(Administered::Resized { token, floor, removed, .. })) = resized
    else {
        panic!("{resized:?}")
    };
    assert_eq!(removed, 2..3);
    expire(&mut authority, &clients[2]);
    let cluster = authority.table.cluster().expect("bootstrapped");
    for slot in removed {
        let resource = resource("screens");
        let shut = Fence { cluster, resource, slot: Some(slot), token, floor };
        marks.raise(&shut).expect("above all marks");
    }
    assert_eq!([0, 1, 2].map(|n: usize| writes(&marks, &old[n])), [true, true, false]);
}
