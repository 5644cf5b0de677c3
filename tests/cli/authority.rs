//! A small authority whose sessions end when they are not renewed, and which can fall
//! silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ringfence::wire::reason::Reason;
use ringfence::wire::v1;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

use crate::service;

pub const CLUSTER: [u8; 16] = [0xab; 16];

pub struct Session {
    pub owner: Vec<u8>,
    pub ttl: Duration,
    pub renewed: Instant,
    pub changed_at: u64,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone)]
pub struct Holder {
    pub session: u64,
    pub request: u64,
    pub token: u64,
    pub at: u64,
}

#[derive(Default)]
pub struct Table {
    pub index: u64,
    pub token: u64,
    pub sessions: BTreeMap<u64, Session>,
    pub holders: BTreeMap<String, Holder>,
    pub cancelled: BTreeSet<(u64, u64)>,
    pub waiting: BTreeMap<String, u64>,
    pub refuses_acquires: Option<Reason>,
    pub status: v1::StatusResponse,
    pub explained: v1::ExplainResponse,
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
    /// What is so now: the sessions whose time is up are gone.
    pub fn table(&self) -> MutexGuard<'_, Table> {
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

    pub fn explains(&self, told: v1::ExplainResponse) {
        self.table().explained = told;
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
    pub fn grant(&mut self, resource: &str, session: u64, request: u64) -> Holder {
        self.index += 1;
        self.token += 1;
        let holder = Holder { session, request, token: self.token, at: self.index };
        self.holders.insert(resource.to_owned(), holder.clone());
        if let Some(owner) = self.sessions.get_mut(&session) {
            owner.changed_at = holder.at;
        }
        holder
    }

    pub fn end(&mut self, session: u64) {
        self.index += 1;
        self.sessions.remove(&session);
        self.holders.retain(|_, holder| holder.session != session);
    }

    pub fn view(&self, resource: &str) -> v1::ResourceView {
        let grant = self.holders.get(resource).map(|holder| self.wire(resource, holder));
        v1::ResourceView {
            resource: resource.to_owned(),
            holders: grant.into_iter().collect(),
            waiting: self.waiting.get(resource).copied().unwrap_or(0),
            ..v1::ResourceView::default()
        }
    }

    pub fn wire(&self, resource: &str, holder: &Holder) -> v1::Grant {
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
            ..v1::Grant::default()
        }
    }
}
