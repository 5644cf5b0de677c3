//! What the client believes a session holds, against what the authority says.
//! Sections 3 and 5 of the contract. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::locks::{RequestId, ResourceName, Revision, Token};

/// One grant of the session, as the authority listed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub token: Token,
    pub resource: ResourceName,
    /// The request that asked for it.
    pub request: RequestId,
}

/// What the authority listed: the session's grants at a revision.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// The log index that the list speaks of.
    pub index: u64,
    /// The last change to the session's grants and waits.
    pub changed_at: Revision,
    pub grants: Vec<Listed>,
}

/// The session's grants.
///
/// Invariant: a token is here if and only if its grant was told to the
/// application and no answer of the authority since has shown that it ended.
#[derive(Debug)]
pub(super) struct Holdings {
    /// Token, and the log index at which it was granted.
    live: BTreeMap<Token, u64>,
    /// The last change that is taken in.
    seen: Revision,
    /// The newest list, for grants whose answer comes after it.
    index: u64,
    listed: BTreeSet<Token>,
}

impl Holdings {
    /// The session was opened at this revision and holds nothing.
    pub fn new(opened: Revision) -> Self {
        Self { live: BTreeMap::new(), seen: opened, index: 0, listed: BTreeSet::new() }
    }

    /// Takes in a grant that the application is about to be told of. False if a
    /// newer list has shown already that it ended.
    pub fn granted(&mut self, token: Token, granted_at: u64) -> bool {
        let ended = granted_at <= self.index && !self.listed.contains(&token);
        if !ended {
            self.live.insert(token, granted_at);
        }
        !ended
    }

    /// Whether the grant is there still, as far as the authority has said.
    pub fn is_live(&self, token: Token) -> bool {
        self.live.contains_key(&token)
    }

    /// The grant is released, or known to have ended.
    pub fn forget(&mut self, token: Token) {
        self.live.remove(&token);
    }

    /// Whether there was a change that no list has shown yet.
    pub fn is_behind(&self, changed_at: Revision) -> bool {
        changed_at > self.seen
    }

    /// Takes in a list: grants that are gone are no longer live; those that
    /// nobody awaits are returned, to be released. `awaited` says which request
    /// ids are outstanding.
    pub fn read(&mut self, reading: Reading, awaited: impl Fn(RequestId) -> bool) -> Vec<Listed> {
        if reading.index < self.index {
            return Vec::new();
        }
        self.index = reading.index;
        self.seen = self.seen.max(reading.changed_at);
        self.listed = reading.grants.iter().map(|grant| grant.token).collect();
        let listed = &self.listed;
        self.live.retain(|token, &mut at| at > reading.index || listed.contains(token));
        let mut orphans = reading.grants;
        orphans.retain(|grant| !self.live.contains_key(&grant.token) && !awaited(grant.request));
        orphans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u64) -> Token {
        Token::new(n).expect("a good token")
    }

    fn request(n: u64) -> RequestId {
        RequestId::new(n).expect("a good id")
    }

    fn at(index: u64) -> Revision {
        Revision { index, ordinal: 0 }
    }

    fn listed(n: u64, by: u64) -> Listed {
        let resource = ResourceName::new(&format!("r/{n}")).expect("a good name");
        Listed { token: token(n), resource, request: request(by) }
    }

    fn reading(index: u64, grants: Vec<Listed>) -> Reading {
        Reading { index, changed_at: at(index), grants }
    }

    #[test]
    fn a_grant_that_is_gone_is_lost_and_the_others_stay() {
        let mut holdings = Holdings::new(at(1));
        assert!(holdings.granted(token(1), 5) && holdings.granted(token(2), 6));
        assert!(holdings.is_behind(at(9)));
        assert_eq!(holdings.read(reading(9, vec![listed(2, 2)]), |_| false), []);
        assert!(!holdings.is_live(token(1)) && holdings.is_live(token(2)));
        assert!(!holdings.is_behind(at(9)));
    }

    #[test]
    fn a_grant_that_nobody_awaits_is_handed_back() {
        let mut holdings = Holdings::new(at(1));
        let orphans =
            holdings.read(reading(9, vec![listed(1, 1), listed(2, 2)]), |r| r == request(2));
        assert_eq!(orphans, [listed(1, 1)]);
    }

    #[test]
    fn a_list_from_before_a_grant_says_nothing_about_it() {
        let mut holdings = Holdings::new(at(1));
        assert!(holdings.granted(token(3), 12));
        holdings.read(reading(9, vec![]), |_| false);
        assert!(holdings.is_live(token(3)));
    }

    #[test]
    fn an_answer_that_comes_after_the_list_that_shows_its_end_is_not_live() {
        let mut holdings = Holdings::new(at(1));
        holdings.read(reading(9, vec![listed(2, 2)]), |_| true);
        assert!(!holdings.granted(token(1), 5), "granted at 5, gone at 9");
        assert!(holdings.granted(token(2), 6), "granted at 6, listed at 9");
    }

    #[test]
    fn an_older_list_is_not_taken_in_after_a_newer_one() {
        let mut holdings = Holdings::new(at(1));
        holdings.read(reading(9, vec![listed(2, 2)]), |_| true);
        assert!(holdings.granted(token(2), 6));
        assert_eq!(holdings.read(reading(4, vec![listed(8, 8)]), |_| false), []);
        assert!(holdings.is_live(token(2)));
    }
}
