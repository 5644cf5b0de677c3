//! What clients do, all at once, each workload on names of its own.

mod lease;
mod library;
mod locks;
mod shared;
mod world;

use std::sync::Arc;

use anyhow::{Result, bail};

pub use lease::{Ask, Grant, Lease};
pub use shared::thaw;
pub use world::{Agent, World};

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// `w1`
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// How many logical clients do it.
    pub agents: usize,
}

/// Those that the product can be asked for.
pub const ALL: &[Kind] = &[
    Kind { name: "w1", about: "mutual exclusion", agents: 4 },
    Kind { name: "w2", about: "fencing at a destination", agents: 4 },
    Kind { name: "w3", about: "tokens over many resources", agents: 2 },
    Kind { name: "w4", about: "idempotent acquires and stale releases", agents: 2 },
    Kind { name: "w5", about: "first come, first served", agents: 4 },
    Kind { name: "w6", about: "shared and exclusive", agents: 4 },
    Kind { name: "w7", about: "slots", agents: 4 },
    Kind { name: "w8", about: "renewals at the deadline", agents: 2 },
    Kind { name: "w9", about: "strict handoff, and what is done by hand", agents: 3 },
    Kind { name: "w10", about: "sessions with several grants", agents: 2 },
    Kind { name: "w15", about: "the client library's guards", agents: 3 },
    Kind { name: "w12", about: "reads at every node", agents: 2 },
];

/// Those that need no clients of their own.
pub const BESIDE: &[(&str, &str)] =
    &[("w13", "the search, over all resources"), ("w14", "the nodes from inside")];

/// Those that the product has no operation for.
pub const ABSENT: &[(&str, &str)] = &[
    ("w11", "backup and restore: the product has none yet"),
    ("membership", "adding and removing nodes: the product has none yet"),
    ("transfer", "handing over leadership: the product has none yet"),
    ("forced snapshot", "by hand: the product has none yet"),
];

/// The workloads of these names; all if there are none.
///
/// # Errors
/// There is none of such a name.
pub fn of(names: &[String]) -> Result<Vec<Kind>> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    let mut kinds = Vec::new();
    for name in names {
        match ALL.iter().find(|kind| kind.name == name) {
            Some(kind) => kinds.push(*kind),
            None if BESIDE.iter().any(|(beside, _)| beside == name) => {}
            None => bail!("no workload is called {name}"),
        }
    }
    Ok(kinds)
}

/// Does a workload until the world ends.
pub async fn work(kind: Kind, number: usize, agent: Agent) {
    let world = Arc::clone(&agent.world);
    let mut agent = agent;
    while !world.ends() {
        match kind.name {
            "w1" => locks::exclusion(&mut agent).await,
            "w2" => locks::protected(&mut agent).await,
            "w3" => locks::many(&mut agent).await,
            "w4" => locks::again(&mut agent).await,
            "w5" => shared::queue(&mut agent).await,
            "w6" => shared::readers(&mut agent).await,
            "w7" => shared::slots(&mut agent).await,
            "w8" => locks::edge(&mut agent).await,
            "w9" if number == 0 => shared::by_hand(&mut agent).await,
            "w9" => shared::strict(&mut agent).await,
            "w15" => library::guarded(&mut agent).await,
            "w10" => shared::several(&mut agent).await,
            _ => shared::reads(&mut agent).await,
        }
    }
}
