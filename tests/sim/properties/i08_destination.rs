//! [I8] At a destination a mark never falls, and no write with a token below it is
//! applied; and a live holder is not refused.

use std::collections::BTreeMap;

use ringfence::locks::{Fence, ResourceName, Token};

use crate::destination::Verdict;

#[derive(Default)]
pub struct DestinationHolds {
    /// The highest token that wrote.
    written: BTreeMap<ResourceName, Token>,
}

impl DestinationHolds {
    pub fn wrote(&mut self, fence: &Fence, verdict: Verdict, live: bool) -> Result<(), String> {
        let (name, token) = (&fence.resource, fence.token);
        if verdict.mark_after < verdict.mark_before {
            return Err(format!("the mark of {name} fell: {verdict:?}"));
        }
        if !verdict.accepted {
            return if live {
                Err(format!("live token {token} refused on {name}"))
            } else {
                Ok(())
            };
        }
        match self.written.insert(name.clone(), token) {
            Some(before) if before > token => {
                Err(format!("token {token} wrote to {name} after {before}"))
            }
            Some(_) | None => Ok(()),
        }
    }
}
