//! A small authority whose sessions end when they are not renewed, and which can fall
//! silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ringfence::wire::reason::{Reason, key};
use ringfence::wire::v1::{self, renewal_answer};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tonic::Status;

use crate::service;

pub const CLUSTER: [u8; 16] = [0xab; 16];

struct Session {
    owner: Vec<u8>,
    ttl: Duration,
    renewed: Instant,
    changed_at: u64,
    labels: BTreeMap<String, String>,
}

#[derive(Clone)]
struct Holder {
    session: u64,
    request: u64,
    token: u64,
    at: u64,
}

#[derive(Default)]
struct Table {
    index: u64,
    token: u64,
    sessions: BTreeMap<u64, Session>,
    holders: BTreeMap<String, Holder>,
    cancelled: BTreeSet<(u64, u64)>,
    waiting: BTreeMap<String, u64>,
    refuses_acquires: Option<Reason>,
    status: v1::StatusResponse,
}

/// What the services share with the test.
#[derive(Clone)]
pub struct Rules {
    table: Arc<Mutex<Table>>,
    light: watch::Sender<bool>,
}

/// The rules behind one node on a loopback port, on a thread of its own.
pub struct Authority {
    pub address: String,
    pub rules: Rules,
    runtime: Option<Runtime>,
}

impl Drop for Authority {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::ops::Deref for Authority {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.rules
    }
}

impl Authority {
    pub fn start() -> Self {
        let rules = Rules { table: Arc::default(), light: watch::Sender::new(true) };
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (bound, address) = oneshot::channel();
        let served = rules.clone();
        runtime.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            bound.send(listener.local_addr().unwrap().to_string()).unwrap();
            service::serve(served, listener).await;
        });
        let address = address.blocking_recv().unwrap();
        Self { address, rules, runtime: Some(runtime) }
    }
}

/// The script.
impl Rules {
    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock().unwrap();
        let now = Instant::now();
        let over = table.sessions.iter().filter(|(_, s)| now >= s.renewed + s.ttl);
        for session in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            table.end(session);
        }
        table
    }

    /// From here on nothing is read or answered.
    pub fn falls_silent(&self) {
        self.light.send_replace(false);
    }

    /// Reads and answers again, what came meanwhile included.
    pub fn speaks(&self) {
        self.light.send_replace(true);
    }

    /// Returns when the authority is not silent.
    pub async fn lit(&self) {
        let mut light = self.light.subscribe();
        let _ = light.wait_for(|&lit| lit).await;
    }

    /// Someone else takes the resource, for ever.
    pub fn rival(&self, resource: &str) -> u64 {
        let mut table = self.table();
        table.grant(resource, 0, 0);
        table.token
    }

    /// Someone with these labels takes the resource, for an hour.
    pub fn rival_with(&self, resource: &str, labels: &[(&str, &str)]) -> u64 {
        let mut table = self.table();
        table.index += 1;
        let id = table.index;
        let labels = labels.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let ttl = Duration::from_secs(3_600);
        let renewed = Instant::now();
        let owner = vec![1; 16];
        table.sessions.insert(id, Session { owner, ttl, renewed, changed_at: id, labels });
        table.grant(resource, id, 1);
        table.token
    }

    /// Takes the grant from its holder, who is told with its next renewal.
    pub fn revoke(&self, resource: &str) {
        let mut table = self.table();
        table.index += 1;
        let holder = table.holders.remove(resource).unwrap();
        let at = table.index;
        table.sessions.get_mut(&holder.session).unwrap().changed_at = at;
    }

    /// Ends the session that holds the resource.
    pub fn end_session_of(&self, resource: &str) {
        let mut table = self.table();
        let session = table.holders[resource].session;
        table.end(session);
    }

    pub fn refuse_acquires(&self, reason: Reason) {
        self.table().refuses_acquires = Some(reason);
    }

    pub fn report(&self, status: v1::StatusResponse) {
        self.table().status = status;
    }

    pub fn holder(&self, resource: &str) -> Option<u64> {
        self.table().holders.get(resource).map(|holder| holder.token)
    }

    /// When the authority may grant the resource anew, unless there is a renewal.
    pub fn free_at(&self, resource: &str) -> Instant {
        let table = self.table();
        let session = &table.sessions[&table.holders[resource].session];
        session.renewed + session.ttl
    }

    pub fn labels_of(&self, resource: &str) -> BTreeMap<String, String> {
        let table = self.table();
        table.sessions[&table.holders[resource].session].labels.clone()
    }

    pub fn sessions(&self) -> usize {
        self.table().sessions.len()
    }

    pub fn waiting(&self, resource: &str) -> u64 {
        self.table().waiting.get(resource).copied().unwrap_or(0)
    }
}

impl Table {
    fn grant(&mut self, resource: &str, session: u64, request: u64) -> Holder {
        self.index += 1;
        self.token += 1;
        let holder = Holder { session, request, token: self.token, at: self.index };
        self.holders.insert(resource.to_owned(), holder.clone());
        if let Some(owner) = self.sessions.get_mut(&session) {
            owner.changed_at = holder.at;
        }
        holder
    }

    fn end(&mut self, session: u64) {
        self.index += 1;
        self.sessions.remove(&session);
        self.holders.retain(|_, holder| holder.session != session);
    }

    fn view(&self, resource: &str) -> v1::ResourceView {
        let grant = self.holders.get(resource).map(|holder| self.wire(resource, holder));
        v1::ResourceView {
            resource: resource.to_owned(),
            holders: grant.into_iter().collect(),
            waiters: vec![],
            waiting: self.waiting.get(resource).copied().unwrap_or(0),
        }
    }

    fn wire(&self, resource: &str, holder: &Holder) -> v1::Grant {
        v1::Grant {
            resource: resource.to_owned(),
            token: holder.token,
            floor: holder.token,
            mode: v1::Mode::Exclusive.into(),
            phase: v1::Phase::Active.into(),
            session: holder.session,
            request: holder.request,
            granted_at: Some(v1::Revision { index: holder.at, ordinal: 0 }),
            labels: self
                .sessions
                .get(&holder.session)
                .map(|s| s.labels.clone())
                .unwrap_or_default(),
        }
    }
}

fn expired() -> Status {
    Reason::SessionExpired.status("the session has ended", [])
}

/// The calls.
impl Rules {
    pub fn open(&self, message: v1::OpenSessionRequest) -> Result<v1::OpenSessionResponse, Status> {
        let ttl = Duration::from_millis(message.ttl_ms);
        if ttl < Duration::from_millis(100) {
            let bounds = [(key::FIELD, "ttl_ms".into()), (key::BOUND, "100 to 86400000".into())];
            return Err(Reason::InvalidArgument.status("ttl_ms is out of bounds", bounds));
        }
        let mut table = self.table();
        let (owner, labels) = (message.owner_id.to_vec(), message.labels);
        let known = table.sessions.iter_mut().find(|(_, session)| session.owner == owner);
        let session = if let Some((id, session)) = known {
            session.renewed = Instant::now();
            *id
        } else {
            table.index += 1;
            let (changed_at, renewed) = (table.index, Instant::now());
            table.sessions.insert(changed_at, Session { owner, ttl, renewed, changed_at, labels });
            changed_at
        };
        let cluster_id = CLUSTER.to_vec().into();
        Ok(v1::OpenSessionResponse { session, ttl_ms: message.ttl_ms, cluster_id, created: true })
    }

    pub fn renew(&self, renewal: &v1::Renewal) -> v1::RenewalAnswer {
        let mut table = self.table();
        let result = match table.sessions.get_mut(&renewal.session) {
            Some(session) => {
                session.renewed = Instant::now();
                let ttl_ms = u64::try_from(session.ttl.as_millis()).unwrap();
                let changed_at = Some(v1::Revision { index: session.changed_at, ordinal: 0 });
                renewal_answer::Result::Renewed(v1::Renewed { ttl_ms, changed_at })
            }
            None => renewal_answer::Result::Refused(v1::RenewalRefusal {
                reason: Reason::SessionExpired.as_str().to_owned(),
                ..v1::RenewalRefusal::default()
            }),
        };
        let (session, sequence) = (renewal.session, renewal.sequence);
        v1::RenewalAnswer { session, sequence, result: Some(result) }
    }

    pub fn close(&self, session: u64) -> Result<(), Status> {
        let mut table = self.table();
        if table.sessions.contains_key(&session) {
            table.end(session);
            return Ok(());
        }
        Err(expired())
    }

    pub async fn acquire(&self, m: &v1::AcquireRequest) -> Result<v1::AcquireResponse, Status> {
        let until = Instant::now() + Duration::from_millis(m.wait_ms);
        let mut counted = Counted { rules: self, resource: None };
        loop {
            if let Some(answer) = self.try_acquire(m, Instant::now() >= until) {
                return answer;
            }
            counted.count(&m.resource);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn try_acquire(
        &self,
        m: &v1::AcquireRequest,
        last: bool,
    ) -> Option<Result<v1::AcquireResponse, Status>> {
        let header = m.header.clone().unwrap_or_default();
        let (session, request) = (header.session, header.request_id);
        let mut table = self.table();
        if let Some(reason) = table.refuses_acquires {
            return Some(Err(reason.status("as the script says", [])));
        }
        if !table.sessions.contains_key(&session) {
            return Some(Err(expired()));
        }
        if table.cancelled.contains(&(session, request)) {
            return Some(Err(Reason::Cancelled.status("", [])));
        }
        let holder = match table.holders.get(&m.resource).cloned() {
            None => table.grant(&m.resource, session, request),
            Some(own) if (own.session, own.request) == (session, request) => own,
            Some(other) if last && m.wait_ms == 0 => {
                let told = [(key::HOLDER, other.token.to_string()), (key::WAITING, "0".into())];
                return Some(Err(Reason::Busy.status("it is held", told)));
            }
            Some(_) if last => return Some(Err(Reason::WaitTimeout.status("", []))),
            Some(_) => return None,
        };
        let (cluster_id, resource) = (CLUSTER.to_vec().into(), m.resource.clone());
        let (token, floor) = (holder.token, holder.token);
        Some(Ok(v1::AcquireResponse {
            grant: Some(table.wire(&m.resource, &holder)),
            fence: Some(v1::Fence { cluster_id, resource, token, floor }),
        }))
    }

    pub fn release(&self, m: &v1::ReleaseRequest) -> Result<v1::ReleaseResponse, Status> {
        let session = m.header.as_ref().map_or(0, |header| header.session);
        let mut table = self.table();
        if !table.sessions.contains_key(&session) {
            return Err(expired());
        }
        match table.holders.get(&m.resource) {
            Some(holder) if holder.session == session && holder.token == m.token => {
                table.index += 1;
                table.holders.remove(&m.resource);
                Ok(v1::ReleaseResponse { released_at: None })
            }
            _ => Err(Reason::NotHeld.status("", [(key::TOKEN, m.token.to_string())])),
        }
    }

    pub fn cancel(&self, m: &v1::CancelRequest) -> v1::CancelResponse {
        let session = m.header.as_ref().map_or(0, |header| header.session);
        let mut table = self.table();
        table.cancelled.insert((session, m.target));
        let mut granted = table.holders.iter();
        let granted = granted.find(|(_, h)| (h.session, h.request) == (session, m.target));
        let grant = granted.map(|(resource, holder)| table.wire(resource, holder));
        v1::CancelResponse { grant }
    }

    pub fn held(&self, session: u64) -> Result<v1::HeldResponse, Status> {
        let table = self.table();
        let owner = table.sessions.get(&session).ok_or_else(expired)?;
        let mine = table.holders.iter().filter(|(_, holder)| holder.session == session);
        Ok(v1::HeldResponse {
            grants: mine.map(|(resource, holder)| table.wire(resource, holder)).collect(),
            waits: vec![],
            changed_at: Some(v1::Revision { index: owner.changed_at, ordinal: 0 }),
            index: table.index,
        })
    }

    pub fn get(&self, resource: &str) -> v1::GetResponse {
        let table = self.table();
        let resource = Some(table.view(resource));
        v1::GetResponse { resource, index: table.index, stale: false }
    }

    pub fn list(&self, m: &v1::ListRequest) -> v1::ListResponse {
        let table = self.table();
        let names = table.holders.keys().filter(|name| name.starts_with(&m.prefix));
        let mut names = names.filter(|name| **name > m.after);
        let page = names.by_ref().take(m.limit as usize).map(|name| table.view(name)).collect();
        let more = names.next().is_some();
        v1::ListResponse { resources: page, more, index: table.index, stale: m.stale }
    }

    pub fn list_sessions(&self, m: v1::ListSessionsRequest) -> v1::ListSessionsResponse {
        let table = self.table();
        let mut above = table.sessions.range(m.after + 1..);
        let view = |(id, session): (&u64, &Session)| v1::SessionView {
            session: *id,
            ttl_ms: u64::try_from(session.ttl.as_millis()).unwrap(),
            labels: session.labels.clone(),
            grants: table.holders.values().map(|holder| u32::from(holder.session == *id)).sum(),
            waits: 0,
        };
        let sessions = above.by_ref().take(m.limit as usize).map(view).collect();
        let more = above.next().is_some();
        v1::ListSessionsResponse { sessions, more, index: table.index }
    }

    pub fn status(&self) -> v1::StatusResponse {
        self.table().status.clone()
    }
}

/// Counts a waiting call for as long as it is open.
struct Counted<'a> {
    rules: &'a Rules,
    resource: Option<String>,
}

impl Counted<'_> {
    fn count(&mut self, resource: &str) {
        if self.resource.is_none() {
            self.resource = Some(resource.to_owned());
            *self.rules.table().waiting.entry(resource.to_owned()).or_default() += 1;
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(resource) = &self.resource {
            *self.rules.table().waiting.get_mut(resource).unwrap() -= 1;
        }
    }
}
