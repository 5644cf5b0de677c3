//! Random losses, refusals and silences, an application that lets go at random,
//! rivals and revokes: in the end the authority and the application agree on what
//! the session holds. The prototype of this is a model; here the client is real.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::time::{Duration, Instant};

use ringfence::client::{Client, ClientError, Guard, Session};
use ringfence::wire::reason::Reason;

use crate::authority::{Authority, Manner, eventually};
use crate::node::{Node, SOON};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 150;

/// A small generator: the same seed, the same application.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn name(&mut self) -> &'static str {
        NAMES[usize::try_from(self.roll(4)).expect("four names")]
    }
}

fn disturb(authority: &Authority, dice: &mut Dice) {
    let node = usize::try_from(dice.roll(3)).expect("three nodes");
    let calls = ["acquire", "acquire", "release", "cancel", "held", "renew", "confirm"];
    let call = calls[usize::try_from(dice.roll(7)).expect("seven calls")];
    let refuses = |reason| Manner::Refuses(reason, vec![]);
    let manner = match dice.roll(7) {
        0 => Manner::LosesReply,
        1 => Manner::SwallowsReply,
        2 => Manner::Silent,
        3 => Manner::BreaksOff,
        4 => refuses(Reason::NotLeader),
        5 => refuses(Reason::NoQuorum),
        _ => refuses(Reason::Overloaded),
    };
    authority.behave(node, call, manner, 1);
}

/// Asks in a mode that the dice choose; the name stands first in sets.
async fn ask(session: &Session, name: &'static str, dice: &mut Dice) -> Result<Guard, ClientError> {
    let deadline = Duration::from_millis(20 + dice.roll(150));
    let told = |_| {};
    match dice.roll(7) {
        0 => session.try_acquire(name).deadline(deadline).await,
        1 => session.acquire(name).on_queued(told).deadline(deadline).await,
        2 => session.acquire_shared(name).deadline(deadline).await.map(Guard::from),
        3 => {
            let slot = session.acquire_slot(name, 2).on_queued(told);
            slot.deadline(deadline).await.map(Guard::from)
        }
        4 => {
            let set = session.acquire_all([name, "e", "f"]).deadline(deadline);
            set.await.map(Guard::from)
        }
        5 => {
            let unconfirmed = session.acquire(name).strict(SOON).deadline(deadline).await?;
            // What fails is dropped, and so released.
            Ok(unconfirmed.confirm_within(deadline).await?)
        }
        _ => session.acquire(name).deadline(deadline).await,
    }
}

async fn act(authority: &Authority, session: &Session, guards: &mut Vec<Guard>, dice: &mut Dice) {
    let name = dice.name();
    let on = |guard: &Guard| guard.fences().iter().any(|fence| fence.resource.as_str() == name);
    let mine = guards.iter().position(on);
    match (dice.roll(10), mine) {
        (0, _) => authority.rival_if_free(name),
        (1, _) => authority.free(name),
        (2, _) => authority.revoke_of(name, session.id().0),
        (3, Some(mine)) => drop(guards.swap_remove(mine)),
        (4, Some(mine)) => {
            // Lost ones say so; all are gone afterwards.
            let release = guards.swap_remove(mine);
            let _ = release.release_within(Duration::from_millis(dice.roll(100))).await;
        }
        (5, None) => {
            // Dropped half way.
            let patience = Duration::from_millis(dice.roll(30));
            let acquire = session.acquire_all([name, "e"]).into_future();
            if let Ok(Ok(set)) = tokio::time::timeout(patience, acquire).await {
                guards.push(set.into());
            }
        }
        (_, None) => guards.extend(ask(session, name, dice).await.ok()),
        (_, Some(_)) => {}
    }
}

async fn run(seed: u64) {
    let mut dice = Dice(seed);
    let authority = Authority::new();
    let mut nodes = Vec::new();
    for number in 0..3 {
        nodes.push(Node::start(&authority, number).await);
    }
    let client = Client::builder()
        .attempt_timeout(Duration::from_millis(40))
        .connect(nodes.iter().map(|node| &node.address))
        .expect("good endpoints");
    let session = client.session(Duration::from_secs(1)).await.expect("opened");
    let mut guards = Vec::new();
    for _ in 0..STEPS {
        if dice.roll(3) > 0 {
            disturb(&authority, &mut dice);
        }
        act(&authority, &session, &mut guards, &mut dice).await;
    }
    authority.recover_all();
    NAMES.into_iter().for_each(|name| authority.free(name));
    let id = session.id().0;
    eventually(&format!("both sides agree (seed {seed})"), || {
        let live = guards.iter().filter(|guard| guard.is_held());
        let fences = live.flat_map(Guard::fences);
        let ours: BTreeMap<String, u64> =
            fences.map(|fence| (fence.resource.to_string(), fence.token.get())).collect();
        authority.waits_of(id) == 0 && authority.held_by(id) == ours
    })
    .await;
    // In the end nothing is outstanding: a new request is its own oldest.
    let began = Instant::now();
    loop {
        let last = session.acquire("last").deadline(SOON).await.expect("it is free");
        last.release().await.expect("released");
        let last = authority.seen("acquire").pop().expect("it was asked for");
        if last.id == last.oldest {
            break;
        }
        assert!(began.elapsed() < SOON, "seed {seed}: {last:?}");
    }
    authority.assert_no_id_was_used_twice();
}

#[tokio::test]
async fn after_any_disturbance_both_sides_agree_on_what_is_held() {
    for seed in 0..6 {
        run(seed).await;
    }
}
