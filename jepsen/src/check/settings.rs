//! What a run promises about itself: the `check` part of `test.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bounds and demands. What is not given has its default.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// By how much clock rates may differ: a client takes its lease for over so many thousandths
    /// of the ttl early, and so do the checkers.
    pub allowance_permille: u64,
    /// And at least so early, in milliseconds.
    pub allowance_ms_min: u64,
    /// That the destination checks fences. False of the control run.
    pub fencing: bool,
    /// Faults of which at least one must have been installed.
    pub faults: Vec<String>,
    /// How many `ok` operations of a name there must be before the last heal.
    pub ok: BTreeMap<String, u64>,
    /// How many after it.
    pub ok_after: BTreeMap<String, u64>,
    /// That terms must have changed during the run.
    pub leader_change: bool,
    /// That a session must have expired.
    pub expiry: bool,
    /// That nodes must have been watched and must agree in the end, on a leader and on what is
    /// applied.
    pub agreement: bool,
    /// That a node's committed and applied positions may not be lower after a restart.
    /// Positions that are ahead of the disk make this false.
    pub durable_positions: bool,
    /// How often the audit feed may be interrupted. Nodes keep events in memory: when all of them
    /// crash at once, the last ones are lost, and the feed begins anew with the state.
    pub gaps_max: u64,
    /// Operations per resource, at most, for the search.
    pub search_ops_max: usize,
    /// Steps of the search per resource, at most.
    pub search_steps_max: u64,
    /// On how many resources the search may give up.
    pub search_unknown_max: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allowance_permille: 10,
            allowance_ms_min: 10,
            fencing: true,
            faults: Vec::new(),
            ok: BTreeMap::new(),
            ok_after: BTreeMap::new(),
            leader_change: false,
            expiry: false,
            agreement: false,
            durable_positions: false,
            gaps_max: 0,
            search_ops_max: 2_000,
            search_steps_max: 2_000_000,
            search_unknown_max: 0,
        }
    }
}

impl Settings {
    /// For how many nanoseconds a renewal's sender may rely on it, of a ttl in milliseconds.
    pub fn sure_ns(&self, ttl_ms: u64) -> u64 {
        let ns = ttl_ms.saturating_mul(1_000_000);
        let share = ns / 1_000 * self.allowance_permille;
        ns.saturating_sub(share.max(self.allowance_ms_min * 1_000_000))
    }
}
