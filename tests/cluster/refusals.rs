//! Bad input: each refusal says why, and where it can, which field and what would do.

use std::time::Duration;

use ringfence::wire::reason::key;
use ringfence::wire::v1;
use ringfence::wire::{Reason, Told};
use tonic::Status;

use crate::cluster::{Cluster, PATIENCE};
use crate::wire::{Owner, Wire, owner, refused};

const TRY: Duration = Duration::ZERO;

/// The field that is at fault, and a piece of what would do.
fn check<T: std::fmt::Debug>(answer: Result<T, Status>, field: &str, bound: &str) {
    let status = answer.expect_err("a refusal");
    let told = Told::of(&status).unwrap_or_else(|| panic!("not a refusal of ours: {status:?}"));
    assert_eq!(told.reason, Some(Reason::InvalidArgument), "{told:?}");
    assert_eq!(told.text(key::FIELD), Some(field), "{told:?}");
    let says = told.text(key::BOUND).unwrap_or_default();
    assert!(says.contains(bound), "{bound:?} in {says:?}");
    assert!(told.message.contains(field) && told.message.contains(bound), "{told:?}");
}

#[tokio::test]
async fn bad_names_are_refused_by_field_and_bound_on_every_call_that_takes_one() {
    let cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), Duration::from_secs(60)).await.expect("a session");
    let (long, multibyte) = ("n".repeat(513), "é".repeat(257));
    let sized = ["", &long, &multibyte].map(|name| (name, "1 to 512 bytes"));
    let control = ["a\nb", "a\0", "\u{7f}", "\u{85}", "tab\there"];
    let control = control.map(|name| (name, "free of control characters"));
    for (name, bound) in sized.into_iter().chain(control) {
        let field = "resource";
        check(node.acquire(me.next(), name, TRY).await, field, bound);
        check(node.acquire(me.next(), name, PATIENCE).await, field, bound);
        check(node.release(me.next(), name, 1).await, field, bound);
        check(node.check(name, 1).await, field, bound);
        check(node.get(name).await, field, bound);
    }
    // The bounds themselves will do.
    for name in ["n", &"n".repeat(512), &"é".repeat(256), "job/7", "with blank"] {
        let token = node.try_acquire(&me, name).await.expect("a good name").token;
        node.release(me.next(), name, token).await.expect("held");
    }
}

#[tokio::test]
async fn a_ttl_out_of_bounds_is_refused_with_the_bounds_in_force() {
    let flags = ["--ttl-min-ms", "700", "--ttl-max-ms", "60000"];
    let cluster = Cluster::start_with(1, &flags).await;
    let node = Wire::to(cluster.address(1));
    for ttl in [0, 1, 699, 60_001, u64::MAX] {
        check(node.open_as(owner(ttl), ttl).await, "ttl_ms", "700 to 60000");
    }
    assert_eq!(node.open_as(owner(700), 700).await.expect("in bounds").ttl_ms, 700);
    let me = node.open(owner(1), Duration::from_millis(60_000)).await.expect("in bounds");
    for ttl in [0, 699, 60_001] {
        check(node.set_ttl(me.next(), ttl).await, "ttl_ms", "700 to 60000");
    }
    assert_eq!(node.set_ttl(me.next(), 1_000).await.expect("in bounds"), 1_000);
}

#[tokio::test]
async fn a_header_out_of_bounds_is_refused_by_field() {
    let cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), Duration::from_secs(60)).await.expect("a session");
    let with = |change: fn(&mut v1::RequestHeader)| {
        let mut header = me.header(9, 9);
        change(&mut header);
        header
    };
    let cases: [(v1::RequestHeader, &str, &str); 7] = [
        (with(|h| h.owner_id = vec![1; 15].into()), "owner_id", "16 random bytes"),
        (with(|h| h.session = 0), "session", "1 or more"),
        (with(|h| h.request_id = 0), "request_id", "1 or more"),
        (with(|h| h.oldest_outstanding = 0), "oldest_outstanding", "1 to request_id"),
        (with(|h| h.oldest_outstanding = 10), "oldest_outstanding", "1 to request_id"),
        (with(|h| h.answered = vec![10; 65]), "answered", "at most 64"),
        (with(|h| h.answered = vec![3]), "answered", "above oldest_outstanding"),
    ];
    for (header, field, bound) in cases {
        check(node.acquire(header.clone(), "job/7", TRY).await, field, bound);
        check(node.release(header.clone(), "job/7", 1).await, field, bound);
        check(node.cancel(header, 4).await, field, bound);
    }
    check(node.release(me.next(), "job/7", 0).await, "token", "1 to 2^53 - 1");
    check(node.release(me.next(), "job/7", 1 << 53).await, "token", "1 to 2^53 - 1");
    check(
        node.acquire(me.next(), "job/7", Duration::from_secs(86_401)).await,
        "wait_ms",
        "86400000",
    );
    check(node.cancel(me.header(9, 9), 9).await, "target", "another request id");
    let unknown = Owner::new(owner(1), 1_000_000);
    assert_eq!(refused(node.try_acquire(&unknown, "job/7").await), Reason::SessionUnknown);
    assert_eq!(node.renew(&unknown).await.expect_err("never was").0, "SESSION_UNKNOWN");
    let stranger = Owner::new(owner(2), me.session);
    assert_eq!(refused(node.try_acquire(&stranger, "job/7").await), Reason::SessionExpired);
    assert_eq!(node.renew(&stranger).await.expect_err("not its own").0, "SESSION_EXPIRED");
}

#[tokio::test]
async fn a_release_with_a_wrong_or_an_old_token_is_refused_and_changes_nothing() {
    let cluster = Cluster::start(1).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), Duration::from_secs(60)).await.expect("a session");
    let old = node.try_acquire(&me, "job/7").await.expect("free").token;
    node.release(me.next(), "job/7", old).await.expect("held");
    let token = node.try_acquire(&me, "job/7").await.expect("free").token;
    for wrong in [old, token + 1] {
        assert_eq!(refused(node.release(me.next(), "job/7", wrong).await), Reason::NotHeld);
    }
    assert_eq!(refused(node.release(me.next(), "job/8", token).await), Reason::NotHeld);
    assert_eq!(node.check("job/7", token).await.ok(), Some(true));
    let again = node.try_acquire(&me, "job/7").await.expect_err("held by itself");
    let told = Told::of(&again).expect("a refusal of ours");
    assert_eq!((told.reason, told.number(key::TOKEN)), (Some(Reason::AlreadyHeld), Some(token)));
    let other = node.open(owner(2), Duration::from_secs(60)).await.expect("a session");
    let busy = node.try_acquire(&other, "job/7").await.expect_err("held");
    let told = Told::of(&busy).expect("a refusal of ours");
    assert_eq!((told.reason, told.number(key::HOLDER)), (Some(Reason::Busy), Some(token)));
    assert_eq!(told.number(key::WAITING), Some(0));
}

#[tokio::test]
async fn a_renewal_of_an_ended_session_is_told_so_on_every_node() {
    let cluster = Cluster::start(3).await;
    let node = Wire::to(cluster.address(1));
    let me = node.open(owner(1), Duration::from_secs(60)).await.expect("a session");
    assert_eq!(node.renew(&me).await.expect("live").ttl_ms, 60_000);
    node.close(&me).await.expect("live");
    for id in cluster.ids() {
        let node = Wire::to(cluster.address(id));
        assert_eq!(node.renew(&me).await.expect_err("ended").0, "SESSION_EXPIRED");
        assert_eq!(refused(node.close(&me).await), Reason::SessionExpired);
        assert_eq!(refused(node.held(&me).await), Reason::SessionExpired);
    }
}
