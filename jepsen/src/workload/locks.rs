//! W1 to W4 and W8: one holder at a time.

use std::time::Duration;

use rand::RngExt;
use serde_json::json;

use super::lease::Ask;
use super::world::Agent;
use crate::history::Kind;

/// W1: acquire, hold, release; now and then crash or close instead.
pub async fn exclusion(agent: &mut Agent) {
    let Some(mut lease) = agent.open(1_500, true).await else { return };
    for _ in 0..agent.rng.random_range(5..25) {
        if lease.is_over() || agent.world.ends() {
            break;
        }
        let resource = format!("mx/{}", agent.rng.random_range(0..2));
        let wait = if agent.chance(30) { 0 } else { 1_000 };
        let Some(grant) = agent.acquire(&mut lease, &Ask::of(&resource, wait)).await else {
            agent.sleep(5..40).await;
            continue;
        };
        agent.sleep(2..30).await;
        if agent.chance(6) {
            lease.abandon();
            return;
        }
        if agent.chance(4) {
            break;
        }
        agent.release(&mut lease, &grant).await;
    }
    agent.close(&lease).await;
}

/// W2: a read-modify-write at the destination under each grant.
pub async fn protected(agent: &mut Agent) {
    let Some(mut lease) = agent.open(1_200, true).await else { return };
    for _ in 0..agent.rng.random_range(5..25) {
        if lease.is_over() || agent.world.ends() {
            break;
        }
        let resource = format!("reg/{}", agent.rng.random_range(0..2));
        let Some(grant) = agent.acquire(&mut lease, &Ask::of(&resource, 1_500)).await else {
            agent.sleep(5..40).await;
            continue;
        };
        let think = agent.rng.random_range(0..25);
        let wrote = agent.write(&lease, &grant, think).await;
        if agent.chance(3) {
            lease.abandon();
            return;
        }
        agent.release(&mut lease, &grant).await;
        if wrote.kind == Kind::Info {
            agent.sleep(5..20).await;
        }
    }
    agent.close(&lease).await;
}

/// W3: many names, one after the other.
pub async fn many(agent: &mut Agent) {
    let Some(mut lease) = agent.open(2_000, true).await else { return };
    for _ in 0..40 {
        if lease.is_over() || agent.world.ends() {
            break;
        }
        let resource = format!("tok/{}", agent.rng.random_range(0..6));
        let ask = Ask::of(&resource, 300);
        if let Some(grant) = agent.acquire(&mut lease, &ask).await {
            agent.release(&mut lease, &grant).await;
        }
        agent.sleep(5..40).await;
    }
    agent.close(&lease).await;
}

/// W4: answers that come too late, requests that are sent again, releases of what has ended.
pub async fn again(agent: &mut Agent) {
    let Some(mut lease) = agent.open(2_000, true).await else { return };
    for _ in 0..12 {
        if lease.is_over() || agent.world.ends() {
            break;
        }
        let resource = format!("idem/{}", agent.rng.random_range(0..2));
        let mut ask = Ask::of(&resource, 0);
        ask.limit_ms = agent.rng.random_range(1..12);
        let request = lease.request();
        lease.pin = request;
        let args = Agent::arguments(&lease, &ask, request);
        agent.world.uses(&resource, ask.mode, 0);
        // Its answer hardly comes in time: the retry must be answered with the same grant.
        let node = agent.pick();
        agent.once("acquire", args, lease.aside(request), node, ask.limit_ms).await;
        ask.limit_ms = 1_500;
        let Some(grant) = agent.acquire_as(&mut lease, &ask, request).await else {
            agent.sleep(5..40).await;
            continue;
        };
        if agent.chance(50) {
            let same = agent.acquire_as(&mut lease, &ask, request).await;
            if same.is_none() {
                continue;
            }
        }
        agent.sleep(0..15).await;
        agent.release(&mut lease, &grant).await;
        if agent.chance(50) {
            agent.acquire_as(&mut lease, &ask, request).await;
        }
        let Some(newer) = agent.acquire(&mut lease, &Ask::of(&resource, 500)).await else {
            continue;
        };
        agent.release(&mut lease, &grant).await;
        let token = json!({"resource": newer.resource, "token": newer.token});
        agent.settle("check_token", &token, &json!({}), 1_000, 3).await;
        agent.release(&mut lease, &newer).await;
    }
    agent.close(&lease).await;
}

/// W8: renewals that come just before the deadline, or just after.
pub async fn edge(agent: &mut Agent) {
    let Some(mut lease) = agent.open(500, false).await else { return };
    let resource = "edge/0".to_owned();
    let Some(grant) = agent.acquire(&mut lease, &Ask::of(&resource, 800)).await else {
        return;
    };
    for _ in 0..6 {
        let begun = tokio::time::Instant::now();
        let answer = agent.renew(&lease).await;
        if answer.kind == Kind::Fail && lease.is_over() {
            return;
        }
        let after = agent.rng.random_range(440..=550);
        tokio::time::sleep_until(begun + Duration::from_millis(after)).await;
    }
    agent.release(&mut lease, &grant).await;
    agent.close(&lease).await;
}
