//! [I1] Every token is greater than every token issued before it in log order, for any
//! resource and whoever it was issued to: a grant, a revoke, a freeze, another number of
//! slots. No token is issued twice.

use std::collections::BTreeMap;

use ringfence::locks::{GrantEndCause, Happened, Header, Token, WaitId};

use crate::log::Committed;

#[derive(Default)]
pub struct TokenOrder {
    last: u64,
    /// Who was granted each token.
    issued: BTreeMap<Token, WaitId>,
    /// Of the freeze that is under way in this entry.
    freezing: Option<Token>,
}

impl TokenOrder {
    pub fn committed(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        self.freezing = None;
        for event in &seen.effects.events {
            match &event.what {
                Happened::Granted { wait, grant, .. } => {
                    self.issue(grant.token)?;
                    self.issued.insert(grant.token, *wait);
                }
                Happened::GrantEnded { cause: GrantEndCause::Revoked { by, .. }, .. } => {
                    self.issue(*by)?;
                }
                Happened::GrantEnded { cause: GrantEndCause::Frozen { by }, .. } => {
                    self.freeze(*by)?;
                }
                Happened::Frozen { token, .. } => self.freeze(*token)?,
                Happened::Resized { token, .. } => self.issue(*token)?,
                Happened::Opened { .. }
                | Happened::Ended { .. }
                | Happened::Queued { .. }
                | Happened::Activated { .. }
                | Happened::ValueChanged { .. }
                | Happened::Asked { .. }
                | Happened::GrantEnded { .. }
                | Happened::Reopened { .. }
                | Happened::LeftQueue { .. }
                | Happened::Thawed { .. } => {}
            }
        }
        if seen.table.token() < self.last {
            return Err(format!("the counter fell to {}", seen.table.token()));
        }
        Ok(())
    }

    fn issue(&mut self, token: Token) -> Result<(), String> {
        if token.get() <= self.last {
            return Err(format!("token {token} was issued after {}", self.last));
        }
        self.last = token.get();
        Ok(())
    }

    /// One token for all that a freeze does.
    fn freeze(&mut self, by: Token) -> Result<(), String> {
        if self.freezing.replace(by) == Some(by) { Ok(()) } else { self.issue(by) }
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
