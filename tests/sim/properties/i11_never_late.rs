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
//! commit. Of a stall that was under way at the last renewal, what came after counts,
//! until the round that ended it is served.

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
    /// What moved the deadlines on each node.
    stalls: [Vec<Stall>; NODES_MAX],
    arrived: BTreeMap<SessionId, Stamp>,
    restarted: [Stamp; NODES_MAX],
    installed: [Stamp; NODES_MAX],
    /// When it last applied a first entry of a term: before that it did not lead.
    leads: [Stamp; NODES_MAX],
    /// When it last applied an expiry that spared the session.
    spared: [BTreeMap<SessionId, Stamp>; NODES_MAX],
    /// By the term of the entry before, when each node applied the first of a term.
    term_began: [BTreeMap<Term, Stamp>; NODES_MAX],
    marks: BTreeMap<(u64, SessionId), (Mark, Micros)>,
}

/// From when to when no round was confirmed, and when the one that was next was
/// served.
#[derive(Clone, Copy)]
pub struct Stall {
    pub from: Micros,
    pub until: Micros,
    pub served: Micros,
}

impl Stall {
    fn since(&self, at: Micros) -> Micros {
        if at <= self.from { self.until - self.from } else { self.served.saturating_sub(at) }
    }
}

/// A moment, and the time without a leader up to then.
#[derive(Clone, Copy, Default)]
struct Stamp {
    at: Micros,
    unserved: Micros,
}

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

    pub fn stalled(&mut self, node: usize, stall: Stall) {
        self.stalls[node].push(stall);
    }

    pub fn arrived(&mut self, session: SessionId, now: Micros) {
        self.arrived.insert(session, self.stamp(now));
    }

    pub fn restarted(&mut self, node: usize, now: Micros) {
        self.restarted[node] = self.stamp(now);
    }

    pub fn installed(&mut self, node: usize, now: Micros) {
        self.installed[node] = self.stamp(now);
    }

    pub fn term_began(&mut self, node: usize, previous: Term, now: Micros) {
        self.leads[node] = self.stamp(now);
        self.term_began[node].insert(previous, self.leads[node]);
    }

    pub fn spared(&mut self, node: usize, session: SessionId, now: Micros) {
        let stamp = self.stamp(now);
        self.spared[node].insert(session, stamp);
    }

    fn stamp(&self, at: Micros) -> Stamp {
        Stamp { at, unserved: self.unserved }
    }

    /// That moment, and what has been added since on this node.
    fn reach(&self, node: usize, since: Stamp) -> Micros {
        let stalled: Micros = self.stalls[node].iter().map(|stall| stall.since(since.at)).sum();
        since.at + stalled + self.unserved - since.unserved
    }

    /// Not marked later than the formula says.
    pub fn marked(
        &mut self,
        session: SessionId,
        row: &SessionRow,
        mark: Mark,
    ) -> Result<(), String> {
        self.marks.insert((mark.term, session), (mark, self.unserved));
        let Some(arrived) = self.arrived.get(&session) else {
            return Ok(()); // it has ended: a deposed leader that does not know it
        };
        let node = mark.node;
        let of_node = [self.restarted[node], self.installed[node], *arrived];
        let seen = self.term_began[node].get(&row.seen.term);
        let last = seen.into_iter().chain(&of_node).map(|since| self.reach(node, *since)).max();
        let slowest = row.ttl.0 * MS * 1004 / 1000;
        let bound = last.unwrap_or(0) + slowest;
        let at_once = self.spared[node].get(&session).into_iter().chain([&self.leads[node]]);
        let at_once = at_once.map(|since| self.reach(node, *since)).max();
        let round = USUAL.as_micros() as Micros + 5 * MS;
        let bound = bound.max(at_once.unwrap_or(0)) + round;
        if mark.began <= bound {
            return Ok(());
        }
        let (at, term, over) = (mark.began, mark.term, mark.began - bound);
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
            let since = self.arrived.get(&session).map_or(0, |stamp| stamp.at);
            if since.max(crate::faults::QUIET) + QUIET_MAX < now {
                return Err(format!("{session} of a dead owner lives, last renewed at {since} us"));
            }
        }
        Ok(())
    }
}
