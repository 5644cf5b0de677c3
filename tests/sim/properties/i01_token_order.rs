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
            let Happened::Granted { wait, grant, .. } = &event.what else { continue };
            let token = grant.token;
            if token.get() <= self.last {
                return Err(format!("token {token} was issued after {}", self.last));
            }
            self.last = token.get();
            self.issued.insert(token, *wait);
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

#[test]
fn a_token_that_goes_back_is_noticed() {
    use super::made_up::{committed, granted};
    let mut order = TokenOrder { last: 5, ..TokenOrder::default() };
    let again = committed(granted(2, "job/1", 5), |seen| order.committed(seen));
    assert_eq!(again, Err("token 5 was issued after 5".into()));
    let lost = committed(granted(2, "job/1", 6), |seen| order.committed(seen));
    assert_eq!(lost, Err("the counter fell to 0".into()));
}
