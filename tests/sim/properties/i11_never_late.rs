//! [I11] Never late without bound: a session ends within its ttl of the last of
//!
//! - the arrival of its last renewal, and
//! - on the node that then leads: its restart, its snapshot install, and its applying
//!   of the first entry after the term in which the session was last seen;
//!
//! added to that stalls, time without a leader that can commit, and one commit. A
//! leader that finds a session overdue when it takes up its term, because the one
//! before it had more time to give, ends it at once. A session that was seen while an
//! expiry of it was on its way keeps its mark until that has its outcome: a second
//! commit.

use std::collections::BTreeMap;

use ringfence::locks::{EndCause, Happened, LockTable, SessionId, SessionRow, Term};

use crate::log::Committed;
use crate::shell::USUAL;
use crate::time::{MS, Micros};

const NODES_MAX: usize = 5;
/// What one commit may take in this network, with proposals that stay in a queue or
/// are lost on the way and are made again.
const COMMIT_MAX: Micros = 4500 * MS;
/// How long after the quiet time has begun a dead owner's session may live on.
const QUIET_MAX: Micros = 3800 * MS;

#[derive(Default)]
pub struct NeverLate {
    /// Time without a leader that can commit, so far.
    unserved: Micros,
    /// By how much stalls have moved the deadlines on each node, so far.
    stalled: [Micros; NODES_MAX],
    arrived: BTreeMap<SessionId, (Micros, [Reach; NODES_MAX])>,
    restarted: [Reach; NODES_MAX],
    installed: [Reach; NODES_MAX],
    /// When it last applied a first entry of a term: before that it did not lead.
    leads: [Reach; NODES_MAX],
    /// When it last applied an expiry that spared the session.
    spared: [BTreeMap<SessionId, Reach>; NODES_MAX],
    /// By the term of the entry before, when each node applied the first of a term.
    term_began: [BTreeMap<Term, Reach>; NODES_MAX],
    marks: BTreeMap<(u64, SessionId), (Mark, Micros)>,
}

/// A moment less what had been added by then: how far it reaches is this plus what
/// has been added since, whatever that is. So the greatest reaches farthest, for good.
type Reach = i64;

/// A leader marked a session expiring, after a round that began then.
#[derive(Clone, Copy)]
pub struct Mark {
    pub node: usize,
    pub term: u64,
    pub began: Micros,
}

impl NeverLate {
    pub fn unserved(&mut self, passed: Micros) {
        self.unserved += passed;
    }

    pub fn stalled(&mut self, node: usize, by: Micros) {
        self.stalled[node] += by;
    }

    /// A stall that is under way when an entry sees a session counts whole: it is
    /// known only when it is over, and moves that deadline too.
    pub fn arrived(&mut self, session: SessionId, now: Micros) {
        let reach = self.stalled.map(|stalled| now as i64 - (stalled + self.unserved) as i64);
        let known = self.arrived.entry(session).or_insert((now, reach));
        known.0 = now;
        for (farthest, reach) in known.1.iter_mut().zip(reach) {
            *farthest = reach.max(*farthest);
        }
    }

    pub fn restarted(&mut self, node: usize, now: Micros) {
        self.restarted[node] = self.reach(node, now);
    }

    pub fn installed(&mut self, node: usize, now: Micros) {
        self.installed[node] = self.reach(node, now);
    }

    pub fn term_began(&mut self, node: usize, previous: Term, now: Micros) {
        let reach = self.reach(node, now);
        self.term_began[node].insert(previous, reach);
        self.leads[node] = reach;
    }

    pub fn spared(&mut self, node: usize, session: SessionId, now: Micros) {
        let reach = self.reach(node, now);
        self.spared[node].insert(session, reach);
    }

    fn reach(&self, node: usize, now: Micros) -> Reach {
        now as i64 - (self.stalled[node] + self.unserved) as i64
    }

    /// Not marked later than the formula says.
    pub fn marked(
        &mut self,
        session: SessionId,
        row: &SessionRow,
        mark: Mark,
    ) -> Result<(), String> {
        self.marks.insert((mark.term, session), (mark, self.unserved));
        let node = mark.node;
        let seen = self.term_began[node].get(&row.seen.term).copied();
        let Some((_, arrived)) = self.arrived.get(&session) else {
            return Ok(()); // it has ended: a deposed leader that does not know it
        };
        let since = seen.into_iter().chain([arrived[node]]);
        let farthest = since.chain([self.restarted[node], self.installed[node]]).max();
        let added = (self.stalled[node] + self.unserved) as i64;
        let slowest = (row.ttl.0 * MS * 1004 / 1000) as i64;
        let round = USUAL.as_micros() as i64 + 5 * MS as i64;
        let reach = (farthest.unwrap_or(0) + slowest).max(self.leads[node]);
        let reach = self.spared[node].get(&session).map_or(reach, |spared| reach.max(*spared));
        let over = mark.began as i64 - (reach + added + round);
        if over <= 0 {
            return Ok(());
        }
        let (at, term) = (mark.began, mark.term);
        let where_and_when = format!("on n{node} in term {term} by a round of {at} us");
        Err(format!("{session} was marked {where_and_when}, {over} us later than the formula says"))
    }

    /// An expiry is committed soon after its mark.
    pub fn committed(&mut self, seen: &Committed<'_>) -> Result<(), String> {
        for event in &seen.effects.events {
            if let Happened::Opened { session } = event.what {
                self.arrived(session, seen.now);
            }
            let Happened::Ended { session, cause } = event.what else { continue };
            self.arrived.remove(&session);
            if cause != EndCause::Expired {
                continue;
            }
            let Some((mark, unserved)) = self.marks.get(&(seen.at.term.0, session)) else {
                return Err(format!("{session} expired and was not marked in that term"));
            };
            let took = seen.now - mark.began;
            if took > COMMIT_MAX + (self.unserved - unserved) {
                return Err(format!("the expiry of {session} took {took} us"));
            }
        }
        Ok(())
    }

    /// At the end of a quiet time no session of a dead owner is left.
    pub fn finish(
        &self,
        now: Micros,
        table: &LockTable,
        alive: &[SessionId],
    ) -> Result<(), String> {
        let dead = table.sessions_after(SessionId(0)).map(|view| view.row.session);
        for session in dead.filter(|session| !alive.contains(session)) {
            let since = self.arrived.get(&session).map_or(0, |(at, _)| *at);
            if since.max(crate::faults::QUIET) + QUIET_MAX < now {
                return Err(format!("{session} of a dead owner lives, last renewed at {since} us"));
            }
        }
        Ok(())
    }
}
