//! [I3] At every revision at most one exclusive grant on a resource.
//!
//! Kept from the events alone: the table is not asked.

use std::collections::BTreeMap;

use ringfence::locks::{Happened, ResourceName, Token};

use crate::log::Committed;

#[derive(Default)]
pub struct Exclusion {
    holders: BTreeMap<ResourceName, Token>,
}

impl Exclusion {
    pub fn committed(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        for event in &seen.effects.events {
            match &event.what {
                Happened::Granted { names, grant, .. } => {
                    for name in names {
                        if let Some(holder) = self.holders.insert(name.clone(), grant.token) {
                            return Err(format!(
                                "{name} granted to {} beside {holder}",
                                grant.token
                            ));
                        }
                    }
                }
                Happened::GrantEnded { names, token, .. } => {
                    for name in names {
                        if self.holders.remove(name) != Some(*token) {
                            return Err(format!("{token} ended on {name}, which it did not hold"));
                        }
                    }
                }
                Happened::Opened { .. }
                | Happened::Ended { .. }
                | Happened::Queued { .. }
                | Happened::LeftQueue { .. }
                | Happened::Activated { .. }
                | Happened::ValueChanged { .. }
                | Happened::Asked { .. }
                | Happened::Reopened { .. }
                | Happened::Frozen { .. }
                | Happened::Thawed { .. }
                | Happened::Resized { .. } => {}
            }
        }
        Ok(())
    }
}

#[test]
fn a_second_holder_is_noticed() {
    use super::made_up::{committed, granted};
    let mut exclusion = Exclusion::default();
    let mut check = |entry| committed(entry, |seen| exclusion.committed(seen));
    assert_eq!(check(granted(1, "job/1", 1)), Ok(()));
    assert_eq!(check(granted(2, "job/2", 2)), Ok(()));
    assert_eq!(check(granted(2, "job/1", 3)), Err("job/1 granted to 3 beside 1".into()));
}
