//! W5 to W7, W9, W10 and W12: queues, readers, slots, handoffs, sets and reads.

use rand::RngExt;
use serde_json::json;

use super::lease::Ask;
use super::world::Agent;
use crate::history::Kind;

/// W5: everybody is told that it waits, and then waits; some cancel, some die while they do.
pub async fn queue(agent: &mut Agent) {
    let dies = agent.chance(12);
    let ttl = if dies { 500 } else { 2_000 };
    let Some(mut lease) = agent.open(ttl, !dies).await else { return };
    for _ in 0..8 {
        if lease.is_over() || agent.world.ends() {
            break;
        }
        let mut ask = Ask::of("queue/0", 2_500);
        ask.queue = true;
        if agent.chance(15) {
            cancelled(agent, &mut lease, &ask).await;
            continue;
        }
        if let Some(grant) = agent.acquire(&mut lease, &ask).await {
            agent.sleep(5..40).await;
            if dies {
                return;
            }
            agent.release(&mut lease, &grant).await;
        }
        agent.sleep(1..20).await;
    }
    agent.close(&lease).await;
}

async fn cancelled(agent: &mut Agent, lease: &mut super::Lease, ask: &Ask) {
    let request = lease.request();
    agent.world.uses(&ask.resource, ask.mode, 0);
    let args = Agent::arguments(lease, ask, request);
    let mut aside = lease.aside(request);
    aside["queue"] = json!(true);
    let node = agent.pick();
    let told = agent.once("acquire", args, aside, node, 1_500).await;
    let mut grant = agent.granted(lease, ask, request, &told);
    if grant.is_none() {
        agent.sleep(0..40).await;
        let own = lease.request();
        let args = json!({"session": lease.session, "request": own, "target": request});
        let (answer, settled) =
            agent.settle("cancel", &args, &lease.aside(request), 1_500, 6).await;
        if !settled {
            lease.abandon();
        }
        if answer.kind == Kind::Ok && answer.value["granted"].is_u64() {
            grant = agent.acquire_as(lease, ask, request).await;
        }
    }
    if let Some(grant) = grant {
        agent.release(lease, &grant).await;
    }
}

/// W6: mostly readers, now and then a writer.
pub async fn readers(agent: &mut Agent) {
    let Some(mut lease) = agent.open(1_500, true).await else { return };
    for _ in 0..20 {
        if lease.is_over() || agent.world.ends() {
            break;
        }
        let mut ask = Ask::of("rw/0", 1_500);
        ask.mode = if agent.chance(70) { "shared" } else { "exclusive" };
        agent.world.uses("rw/0", "mixed", 0);
        let Some(grant) = agent.acquire(&mut lease, &ask).await else {
            agent.sleep(5..40).await;
            continue;
        };
        if agent.chance(15) {
            agent.write(&lease, &grant, 5).await;
        }
        agent.sleep(5..40).await;
        if agent.chance(4) {
            return;
        }
        agent.release(&mut lease, &grant).await;
        agent.sleep(5..30).await;
    }
    agent.close(&lease).await;
}

/// W7: two slots for four.
pub async fn slots(agent: &mut Agent) {
    let Some(mut lease) = agent.open(1_500, true).await else { return };
    for _ in 0..20 {
        if lease.is_over() || agent.world.ends() {
            break;
        }
        let mut ask = Ask::of("slot/0", 1_500);
        (ask.mode, ask.slots) = ("slots", 2);
        let Some(grant) = agent.acquire(&mut lease, &ask).await else {
            agent.sleep(5..40).await;
            continue;
        };
        if agent.chance(25) {
            agent.write(&lease, &grant, 5).await;
        }
        agent.sleep(5..40).await;
        if agent.chance(4) {
            return;
        }
        agent.release(&mut lease, &grant).await;
        agent.sleep(5..30).await;
    }
    agent.close(&lease).await;
}

/// W9: raise, confirm, write.
pub async fn strict(agent: &mut Agent) {
    let Some(mut lease) = agent.open(1_500, true).await else { return };
    for _ in 0..15 {
        if lease.is_over() || agent.world.ends() {
            break;
        }
        let mut ask = Ask::of("hand/0", 1_500);
        ask.barrier_ms = Some(900);
        let Some(grant) = agent.acquire(&mut lease, &ask).await else {
            agent.sleep(5..60).await;
            continue;
        };
        if agent.chance(8) {
            agent.sleep(100..1_000).await;
        }
        if agent.raise(&lease, &grant).await.kind != Kind::Ok {
            agent.release(&mut lease, &grant).await;
            continue;
        }
        if agent.with_grant(&mut lease, "confirm", &grant).await.kind == Kind::Ok {
            agent.write(&lease, &grant, 3).await;
            agent.sleep(2..40).await;
        }
        agent.release(&mut lease, &grant).await;
        agent.sleep(5..30).await;
    }
    agent.close(&lease).await;
}

/// W9: revokes of what is held, and freezes that are thawed again.
pub async fn by_hand(agent: &mut Agent) {
    agent.sleep(200..900).await;
    let resource = "hand/0";
    let Some(token) = agent.world.token(resource) else { return };
    let node = agent.pick();
    if agent.chance(60) {
        let args = json!({"resource": resource, "token": token});
        agent.once("revoke", args, json!({}), node, 1_500).await;
        return;
    }
    let args = json!({"resource": resource});
    let frozen = agent.once("freeze", args, json!({}), node, 1_500).await;
    agent.sleep(20..150).await;
    let Some(by) = frozen.value["by"].as_u64() else {
        thaw(agent, resource).await;
        return;
    };
    let args = json!({"resource": resource, "token": by});
    agent.settle("thaw", &args, &json!({}), 1_500, 8).await;
}

/// Opens what is found frozen, whoever froze it.
pub async fn thaw(agent: &mut Agent, resource: &str) {
    let args = json!({"resource": resource});
    let (seen, _) = agent.settle("get", &args, &json!({}), 1_500, 8).await;
    if let Some(by) = seen.aside["frozen"].as_u64() {
        let args = json!({"resource": resource, "token": by});
        agent.settle("thaw", &args, &json!({}), 1_500, 8).await;
    }
}

/// W10: several grants, one of them over two resources, that all end with their session.
pub async fn several(agent: &mut Agent) {
    let kept = agent.chance(70);
    let Some(mut lease) = agent.open(1_000, kept).await else { return };
    let mut set = Ask::of("sess/0", 1_000);
    set.more = vec!["sess/1".into()];
    let set = agent.acquire(&mut lease, &set).await;
    let one = agent.acquire(&mut lease, &Ask::of("sess/2", 500)).await;
    if let Some(one) = &one
        && agent.chance(50)
    {
        agent.with_grant(&mut lease, "set_value", one).await;
    }
    if agent.chance(20) && !lease.is_over() && !kept {
        let request = lease.request();
        let ttl_ms = agent.rng.random_range(600..1_500);
        let args = json!({"session": lease.session, "request": request, "ttl_ms": ttl_ms});
        agent.settle("set_ttl", &args, &lease.aside(request), 1_500, 4).await;
    }
    agent.sleep(20..300).await;
    if agent.chance(40) {
        // Its client is gone: everything must end with the session.
        lease.abandon();
        agent.sleep(100..600).await;
        return;
    }
    for grant in [set, one].into_iter().flatten() {
        if agent.chance(60) {
            agent.release(&mut lease, &grant).await;
        }
    }
    agent.close(&lease).await;
}

/// W12: who holds it, at every node in turn; and whether a token is current.
pub async fn reads(agent: &mut Agent) {
    let used: Vec<String> = {
        let used = agent.world.used.lock();
        used.unwrap_or_else(std::sync::PoisonError::into_inner).keys().cloned().collect()
    };
    agent.sleep(20..60).await;
    if used.is_empty() {
        return;
    }
    let resource = used[agent.rng.random_range(0..used.len())].clone();
    let node = agent.rng.random_range(0..agent.world.nodes.len());
    match agent.world.token(&resource).filter(|_| agent.chance(30)) {
        Some(token) => {
            let args = json!({"resource": resource, "token": token});
            agent.once("check_token", args, json!({}), node, 1_000).await;
        }
        None => {
            let mut args = json!({"resource": resource});
            if agent.chance(15) {
                args["stale"] = json!(true);
            }
            agent.once("get", args, json!({}), node, 1_000).await;
        }
    }
}
