//! After the last fault: every resource is acquired once more, and read at every node.

use std::sync::PoisonError;

use anyhow::Result;
use serde_json::json;

use super::stage::Stage;
use crate::workload::{Agent, Ask, thaw};

/// How long a resource may take to become free: what crashed clients held must expire.
const WAIT_MS: u64 = 8_000;

/// Acquires every resource that was used, and reads it at every node.
///
/// # Errors
/// None: what cannot be had is for the checkers.
pub async fn acquire_all(stage: &Stage, seed: u64) -> Result<()> {
    let used = stage.world.used.lock().unwrap_or_else(PoisonError::into_inner).clone();
    println!("  acquiring all {} resources once more", used.len());
    let mut tasks = Vec::new();
    for (at, (resource, (mode, slots))) in used.into_iter().enumerate() {
        let client = &stage.clients[at % stage.clients.len()];
        let agent = Agent::new(&stage.world, client, seed ^ at as u64 ^ 0x00f1_0a1e);
        tasks.push(tokio::spawn(acquire(agent, resource, mode, slots)));
    }
    for task in tasks {
        task.await?;
    }
    Ok(())
}

async fn acquire(mut agent: Agent, resource: String, mode: String, slots: u64) {
    if resource.starts_with("hand/") {
        thaw(&mut agent, &resource).await;
    }
    let mut ask = Ask::of(&resource, WAIT_MS);
    ask.last = true;
    let mut held = Vec::new();
    for _ in 0..slots.max(1) {
        if mode == "slots" {
            (ask.mode, ask.slots) = ("slots", slots);
        }
        let Some(mut lease) = agent.open(3_000, true).await else { continue };
        let grant = agent.acquire(&mut lease, &ask).await;
        held.push((lease, grant));
    }
    for node in 0..agent.world.nodes.len() {
        agent.once("get", json!({"resource": resource}), json!({}), node, 2_000).await;
    }
    for (mut lease, grant) in held {
        if let Some(grant) = grant {
            agent.release(&mut lease, &grant).await;
        }
        agent.close(&lease).await;
    }
}
