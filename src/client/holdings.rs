//! What the client believes a session holds, against what the authority says.
//! Sections 3 and 5 of the contract. Pure.

use std::collections::BTreeMap;

use super::handover::Asked;
use crate::locks::{RequestId, ResourceName, Revision, Token};

/// One grant of the session, as the authority listed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub token: Token,
    /// All that is held under the token.
    pub names: Vec<ResourceName>,
    /// The request that asked for it.
    pub request: RequestId,
    /// That it is asked back.
    pub asked: Option<Asked>,
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
    live: BTreeMap<Token, Live>,
    /// The last change that is taken in.
    seen: Revision,
    /// The newest list, for grants whose answer comes after it.
    index: u64,
    listed: BTreeMap<Token, Option<Asked>>,
}

#[derive(Debug)]
struct Live {
    /// The log index at which it was granted.
    granted_at: u64,
    /// That it is asked back, as last heard.
    asked: Option<Asked>,
}

impl Holdings {
    /// The session was opened at this revision and holds nothing.
    pub fn new(opened: Revision) -> Self {
        Self { live: BTreeMap::new(), seen: opened, index: 0, listed: BTreeMap::new() }
    }

    /// Takes in a grant that the application is about to be told of. False if a
    /// newer list has shown already that it ended.
    pub fn granted(&mut self, token: Token, granted_at: u64, asked: Option<Asked>) -> bool {
        let listed = self.listed.get(&token);
        if listed.is_none() && granted_at <= self.index {
            return false;
        }
        let asked = latest(asked, listed.cloned().flatten());
        self.live.insert(token, Live { granted_at, asked });
        true
    }

    /// That the grant is asked back, as last heard.
    pub fn asked(&self, token: Token) -> Option<&Asked> {
        self.live.get(&token)?.asked.as_ref()
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
        let listed = reading.grants.iter().map(|grant| (grant.token, grant.asked.clone()));
        self.listed = listed.collect();
        let listed = &self.listed;
        self.live
            .retain(|token, live| live.granted_at > reading.index || listed.contains_key(token));
        for (token, live) in &mut self.live {
            let asked = listed.get(token).cloned().flatten();
            live.asked = latest(live.asked.take(), asked);
        }
        let mut orphans = reading.grants;
        orphans.retain(|grant| !self.live.contains_key(&grant.token) && !awaited(grant.request));
        orphans
    }
}

/// Of two asks that were heard of, the later one.
fn latest(one: Option<Asked>, other: Option<Asked>) -> Option<Asked> {
    one.into_iter().chain(other).max_by_key(|asked| asked.at)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let names = vec![ResourceName::new(&format!("r/{n}")).expect("a good name")];
        Listed { token: token(n), names, request: request(by), asked: None }
    }

    fn asked(index: u64) -> Asked {
        let (actor, reason) = ("ops".to_owned(), String::new());
        Asked { at: at(index), within: Duration::from_secs(1), actor, reason }
    }

    fn reading(index: u64, grants: Vec<Listed>) -> Reading {
        Reading { index, changed_at: at(index), grants }
    }

    #[test]
    fn a_grant_that_is_gone_is_lost_and_the_others_stay() {
        let mut holdings = Holdings::new(at(1));
        assert!(holdings.granted(token(1), 5, None) && holdings.granted(token(2), 6, None));
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
        assert!(holdings.granted(token(3), 12, None));
        holdings.read(reading(9, vec![]), |_| false);
        assert!(holdings.is_live(token(3)));
    }

    #[test]
    fn an_answer_that_comes_after_the_list_that_shows_its_end_is_not_live() {
        let mut holdings = Holdings::new(at(1));
        holdings.read(reading(9, vec![listed(2, 2)]), |_| true);
        assert!(!holdings.granted(token(1), 5, None), "granted at 5, gone at 9");
        assert!(holdings.granted(token(2), 6, None), "granted at 6, listed at 9");
    }

    #[test]
    fn an_older_list_is_not_taken_in_after_a_newer_one() {
        let mut holdings = Holdings::new(at(1));
        holdings.read(reading(9, vec![listed(2, 2)]), |_| true);
        assert!(holdings.granted(token(2), 6, None));
        assert_eq!(holdings.read(reading(4, vec![listed(8, 8)]), |_| false), []);
        assert!(holdings.is_live(token(2)));
    }

    #[test]
    fn an_ask_is_kept_until_a_later_one_whether_the_list_or_the_grant_comes_first() {
        let mut holdings = Holdings::new(at(1));
        let with = |n, asked| Listed { asked, ..listed(n, n) };
        holdings.read(reading(9, vec![with(1, Some(asked(8)))]), |_| true);
        assert!(holdings.granted(token(1), 5, None));
        assert_eq!(holdings.asked(token(1)), Some(&asked(8)));
        assert!(holdings.granted(token(2), 12, Some(asked(13))));
        holdings.read(reading(14, vec![with(1, Some(asked(11))), listed(2, 2)]), |_| true);
        assert_eq!(holdings.asked(token(1)), Some(&asked(11)));
        assert_eq!(holdings.asked(token(2)), Some(&asked(13)));
        holdings.read(reading(15, vec![]), |_| true);
        assert_eq!(holdings.asked(token(1)), None, "it is over");
    }
}
