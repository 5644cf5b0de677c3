//! [I1] Every grant's token is greater than every token issued before it in log order,
//! for any resource, and no token is issued twice.

use std::collections::BTreeMap;

use ringfence::locks::{Happened, Header, Token, WaitId};

use crate::log::Committed;

#[derive(Default)]
pub struct TokenOrder {
    last: u64,
    /// Who was granted each token.
    issued: BTreeMap<Token, WaitId>,
}

impl TokenOrder {
    pub fn committed(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        for event in &seen.effects.events {
            let Happened::Granted { wait, token, .. } = &event.what else { continue };
            if token.get() <= self.last {
                return Err(format!("token {token} was issued after {}", self.last));
            }
            self.last = token.get();
            self.issued.insert(*token, *wait);
        }
        if seen.table.token() < self.last {
            return Err(format!("the counter fell to {}", seen.table.token()));
        }
        Ok(())
    }

    /// A client is told of a grant: of its own, that was made.
    pub fn told(&self, header: &Header, token: Token) -> Result<(), String> {
        let wait = WaitId { session: header.session, request: header.id };
        match self.issued.get(&token) {
            Some(issued) if *issued == wait => Ok(()),
            other => Err(format!("{wait:?} is told token {token}, which was issued to {other:?}")),
        }
    }
}
