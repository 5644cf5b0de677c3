//! A destination that keeps marks and a ledger.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::authority::Grant;

/// The marks and counters of one destination.
#[derive(Debug, Default)]
pub struct Destination {
    /// That every token is accepted.
    open: bool,
    seq: u64,
    marks: HashMap<(String, Option<u32>), u64>,
    counters: HashMap<String, u64>,
}

impl Destination {
    /// Without marks; `open` accepts every token.
    pub fn new(open: bool) -> Destination {
        Destination { open, ..Destination::default() }
    }

    /// A raise, or with an element and the counter that was read at a raise before, a write.
    /// Whether it was accepted; the counter; and the line for the ledger.
    pub fn ask(
        &mut self,
        grant: &Grant,
        cluster: u32,
        write: Option<(&str, u64)>,
    ) -> (bool, u64, Value) {
        self.seq += 1;
        let name = &grant.ask.resource;
        let mark = self.marks.get(&(name.clone(), None)).copied().unwrap_or(0);
        let slot = self.marks.get(&(name.clone(), grant.slot)).copied().unwrap_or(0);
        let below = if grant.slot.is_some() { mark.max(slot) } else { mark };
        let accepted = self.open || grant.token >= below;
        if accepted {
            self.marks.insert((name.clone(), None), grant.floor.max(mark));
            if grant.slot.is_some() {
                self.marks.insert((name.clone(), grant.slot), grant.token.max(slot));
            }
        }
        let counter = self.counters.entry(name.clone()).or_default();
        let counted = grant.floor == grant.token && grant.slot.is_none();
        let stores =
            write.filter(|_| accepted && counted && name.starts_with("mx")).map(|w| w.1 + 1);
        if let Some(stored) = stores {
            *counter = stored;
        }
        let line = json!({"seq": self.seq, "dest": "d1", "resource": name, "token": grant.token,
            "floor": grant.floor, "slot": grant.slot, "session": grant.ask.session,
            "cluster": cluster, "element": write.map(|w| w.0), "accepted": accepted,
            "reason": (!accepted).then_some("FENCED"), "counter": stores});
        (accepted, *counter, line)
    }
}
