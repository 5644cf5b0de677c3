//! W15: the client library, whose guards tell by themselves whether they are held.

use rand::RngExt;
use serde_json::json;

use super::lease::{Ask, Grant};
use super::world::Agent;
use crate::history::Kind;

/// Acquires, asks the guard again and again whether it is held, writes as long as it says so.
pub async fn guarded(agent: &mut Agent) {
    let Some((mut lease, aside)) = agent.open_library(1_500).await else { return };
    let ask = Ask::of("lib/0", 1_500);
    agent.world.uses(&ask.resource, ask.mode, 0);
    for _ in 0..agent.rng.random_range(4..12) {
        if agent.world.ends() {
            break;
        }
        let request = lease.request();
        let args = Agent::arguments(&lease, &ask, request);
        let answer = agent.somewhere("acquire", args, aside.clone(), 4_000).await;
        let Some(grant) = agent.granted(&lease, &ask, request, &answer) else {
            if lease.is_over() || answer.kind != Kind::Fail {
                break;
            }
            agent.sleep(10..60).await;
            continue;
        };
        let named = json!({
            "session": lease.session, "resource": grant.resource, "token": grant.token,
        });
        let held = hold(agent, &lease, &grant, &named, &aside).await;
        if held {
            let done = agent.somewhere("release", named, aside.clone(), 3_000).await;
            if done.kind == Kind::Ok {
                continue;
            }
        }
        break;
    }
    let args = json!({"session": lease.session});
    agent.somewhere("close", args, aside, 3_000).await;
}

/// Whether the guard said to the end that it is held.
async fn hold(
    agent: &mut Agent,
    lease: &super::Lease,
    grant: &Grant,
    named: &serde_json::Value,
    aside: &serde_json::Value,
) -> bool {
    for round in 0..agent.rng.random_range(1..8) {
        let answer = agent.somewhere("held", named.clone(), aside.clone(), 1_000).await;
        if answer.kind != Kind::Ok {
            return false;
        }
        if round == 0 {
            agent.write(lease, grant, 2).await;
        }
        agent.sleep(5..40).await;
    }
    true
}
