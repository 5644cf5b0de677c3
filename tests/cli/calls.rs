//! What the small authority answers.

use std::time::{Duration, Instant};

use ringfence::wire::reason::{Reason, key};
use ringfence::wire::v1::{self, renewal_answer};
use tonic::Status;

use crate::authority::{CLUSTER, Rules, Session};

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
            let ahead = counted.count(&m.resource);
            if m.answer_queued {
                let queued = Some(v1::QueuePlace { ahead });
                return Ok(v1::AcquireResponse { queued, ..v1::AcquireResponse::default() });
            }
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
            fence: Some(v1::Fence { cluster_id, resource, slot: None, token, floor }),
            ..v1::AcquireResponse::default()
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

    pub fn explain(&self) -> v1::ExplainResponse {
        self.table().explained.clone()
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
    /// Says how many wait before it.
    fn count(&mut self, resource: &str) -> u64 {
        let mut table = self.rules.table();
        let waiting = table.waiting.entry(resource.to_owned()).or_default();
        if self.resource.is_none() {
            self.resource = Some(resource.to_owned());
            *waiting += 1;
        }
        *waiting - 1
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(resource) = &self.resource {
            *self.rules.table().waiting.get_mut(resource).unwrap() -= 1;
        }
    }
}
