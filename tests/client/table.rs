//! The scripted authority's state: sessions, grants, queues and outcomes, as plain
//! as they can be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringfence::wire::reason::{Reason, key};
use ringfence::wire::v1;
use tonic::Status;

use crate::authority::{CLUSTER, Manner, Seen};

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Granted { resource: String, token: u64, at: u64 },
    Queued { resource: String },
    Cancelled,
    Released { at: u64 },
    NotHeld,
    Busy { holder: u64 },
    Ttl(u64),
}

#[derive(Debug, Default)]
pub struct Session {
    pub owner: Vec<u8>,
    pub ttl_ms: u64,
    pub changed_at: u64,
    pub outcomes: BTreeMap<u64, Outcome>,
}

#[derive(Debug, Clone)]
pub struct Holder {
    pub session: u64,
    pub request: u64,
    pub token: u64,
    pub at: u64,
}

#[derive(Debug, Default)]
pub struct Table {
    pub index: u64,
    pub token: u64,
    pub sessions: BTreeMap<u64, Session>,
    pub holders: BTreeMap<String, Holder>,
    pub queues: BTreeMap<String, VecDeque<(u64, u64)>>,
    pub seen: Vec<Seen>,
    /// Node and kind of call, and how the next so many of them go.
    pub manners: BTreeMap<(usize, &'static str), VecDeque<(Manner, usize)>>,
    pub streams: usize,
    pub owners: BTreeSet<Vec<u8>>,
}

impl Table {
    pub fn next_manner(&mut self, node: usize, what: &'static str) -> Manner {
        let Some(queue) = self.manners.get_mut(&(node, what)) else { return Manner::Well };
        let Some((manner, times)) = queue.front_mut() else { return Manner::Well };
        let next = manner.clone();
        *times -= 1;
        if *times == 0 {
            queue.pop_front();
        }
        next
    }

    pub fn live(&mut self, session: u64) -> Result<&mut Session, Status> {
        let expired = || Reason::SessionExpired.status("the session has ended", []);
        self.sessions.get_mut(&session).ok_or_else(expired)
    }

    pub fn grant(&mut self, resource: &str, session: u64, request: u64) {
        self.index += 1;
        self.token += 1;
        let (token, at) = (self.token, self.index);
        self.holders.insert(resource.to_owned(), Holder { session, request, token, at });
        if let Some(owner) = self.sessions.get_mut(&session) {
            owner.changed_at = at;
            let resource = resource.to_owned();
            owner.outcomes.insert(request, Outcome::Granted { resource, token, at });
        }
    }

    pub fn free(&mut self, resource: &str, tell: bool) {
        self.index += 1;
        let Some(holder) = self.holders.remove(resource) else { return };
        if tell && let Some(session) = self.sessions.get_mut(&holder.session) {
            session.changed_at = self.index;
        }
        let next = self.queues.get_mut(resource).and_then(VecDeque::pop_front);
        if let Some((session, request)) = next {
            self.grant(resource, session, request);
        }
    }

    pub fn end(&mut self, session: u64) {
        self.sessions.remove(&session);
        for queue in self.queues.values_mut() {
            queue.retain(|&(waiter, _)| waiter != session);
        }
        let mine = self.holders.iter().filter(|(_, holder)| holder.session == session);
        for resource in mine.map(|(resource, _)| resource.clone()).collect::<Vec<_>>() {
            self.free(&resource, false);
        }
    }

    /// The answer to an acquire; `None` while it is queued.
    pub fn answer(&self, session: u64, id: u64) -> Option<Result<v1::AcquireResponse, Status>> {
        let Some(owner) = self.sessions.get(&session) else {
            return Some(Err(Reason::SessionExpired.status("the session has ended", [])));
        };
        match owner.outcomes.get(&id)? {
            Outcome::Queued { .. } => None,
            Outcome::Granted { resource, token, .. } => {
                let live = self.holders.get(resource).filter(|holder| holder.token == *token);
                Some(live.map(|holder| granted(resource, holder)).ok_or_else(|| {
                    Reason::GrantEnded.status("", [(key::TOKEN, token.to_string())])
                }))
            }
            Outcome::Busy { holder } => {
                let metadata = [(key::HOLDER, holder.to_string()), (key::WAITING, "0".into())];
                Some(Err(Reason::Busy.status("", metadata)))
            }
            Outcome::Cancelled => Some(Err(Reason::Cancelled.status("", []))),
            other => panic!("{id} was no acquire but {other:?}"),
        }
    }
}

pub fn revision(index: u64) -> v1::Revision {
    v1::Revision { index, ordinal: 0 }
}

pub fn wire_grant(resource: &str, holder: &Holder) -> v1::Grant {
    v1::Grant {
        resource: resource.to_owned(),
        token: holder.token,
        floor: holder.token,
        mode: v1::Mode::Exclusive.into(),
        phase: v1::Phase::Active.into(),
        session: holder.session,
        request: holder.request,
        granted_at: Some(revision(holder.at)),
        labels: BTreeMap::new(),
    }
}

pub fn granted(resource: &str, holder: &Holder) -> v1::AcquireResponse {
    let grant = Some(wire_grant(resource, holder));
    let (token, floor) = (holder.token, holder.token);
    let cluster_id = CLUSTER.to_vec().into();
    let fence = Some(v1::Fence { cluster_id, resource: resource.to_owned(), token, floor });
    v1::AcquireResponse { grant, fence }
}
