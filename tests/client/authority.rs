//! A scripted authority: a small table of sessions and grants behind any number of
//! nodes, each of which can be told to misbehave.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ringfence::wire::reason::{NO_FORWARD, Reason};
use ringfence::wire::v1;
use tokio::sync::watch;
use tonic::{Request, Status};

use crate::table::{Outcome, Session, Table, revision, wire_grant};

/// What a node does with calls of a kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Manner {
    /// Answers.
    #[default]
    Well,
    /// Takes effect; the answer is lost with the connection.
    LosesReply,
    /// Takes effect and never answers.
    SwallowsReply,
    /// Never answers and takes no effect.
    Silent,
    /// Refuses at the door.
    Refuses(Reason, Vec<(&'static str, String)>),
}

/// One call as a node saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub node: usize,
    pub what: &'static str,
    pub id: u64,
    pub oldest: u64,
    pub answered: Vec<u64>,
    pub no_forward: bool,
}

/// The table, and a bell that rings whenever it changes.
#[derive(Clone)]
pub struct Authority {
    table: Arc<Mutex<Table>>,
    bell: watch::Sender<()>,
}

pub const CLUSTER: [u8; 16] = [3; 16];
pub const FOR_EVER: usize = usize::MAX;

impl Authority {
    pub fn new() -> Self {
        Self { table: Arc::default(), bell: watch::Sender::new(()) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no test panics while it holds the table")
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let done = change(&mut self.table());
        self.bell.send_replace(());
        done
    }

    // The script.

    /// The next `times` calls of this kind at this node go so.
    pub fn behave(&self, node: usize, what: &'static str, manner: Manner, times: usize) {
        self.change(|t| t.manners.entry((node, what)).or_default().push_back((manner, times)));
    }

    /// From here on calls of this kind go well again.
    pub fn recover(&self, node: usize, what: &'static str) {
        self.change(|t| t.manners.remove(&(node, what)));
    }

    /// Everything goes well from here on.
    pub fn recover_all(&self) {
        self.change(|t| t.manners.clear());
    }

    pub fn seen(&self, what: &'static str) -> Vec<Seen> {
        self.table().seen.iter().filter(|seen| seen.what == what).cloned().collect()
    }

    pub fn sessions(&self) -> usize {
        self.table().sessions.len()
    }

    pub fn owners(&self) -> usize {
        self.table().owners.len()
    }

    pub fn streams(&self) -> usize {
        self.table().streams
    }

    pub fn holder(&self, resource: &str) -> Option<u64> {
        self.table().holders.get(resource).map(|holder| holder.token)
    }

    pub fn waiting(&self, resource: &str) -> usize {
        self.table().queues.get(resource).map_or(0, VecDeque::len)
    }

    pub fn end_session(&self, session: u64) {
        self.change(|t| t.end(session));
    }

    pub fn revoke(&self, resource: &str) {
        self.change(|t| t.free(resource, true));
    }

    /// What this session holds.
    pub fn held_by(&self, session: u64) -> BTreeMap<String, u64> {
        let table = self.table();
        let mine = table.holders.iter().filter(|(_, holder)| holder.session == session);
        mine.map(|(resource, holder)| (resource.clone(), holder.token)).collect()
    }

    /// How many requests of this session wait.
    pub fn waits_of(&self, session: u64) -> usize {
        self.table().queues.values().flatten().filter(|&&(waiter, _)| waiter == session).count()
    }

    /// Someone else takes the resource.
    pub fn rival(&self, resource: &str) {
        self.change(|t| t.grant(resource, 0, 0));
    }

    pub fn rival_if_free(&self, resource: &str) {
        self.change(|t| {
            if !t.holders.contains_key(resource) {
                t.grant(resource, 0, 0);
            }
        });
    }

    /// The rival, if it is one, lets go.
    pub fn free_rival(&self, resource: &str) {
        self.change(|t| {
            if t.holders.get(resource).is_some_and(|holder| holder.session == 0) {
                t.free(resource, false);
            }
        });
    }

    /// An administrator ends what this session holds there.
    pub fn revoke_of(&self, resource: &str, session: u64) {
        self.change(|t| {
            if t.holders.get(resource).is_some_and(|holder| holder.session == session) {
                t.free(resource, true);
            }
        });
    }

    /// Every request id was used for one kind of request only.
    pub fn assert_no_id_was_used_twice(&self) {
        let mut kinds: BTreeMap<u64, &'static str> = BTreeMap::new();
        for seen in self.table().seen.iter().filter(|seen| seen.oldest > 0) {
            assert_eq!(*kinds.entry(seen.id).or_insert(seen.what), seen.what, "id {}", seen.id);
            assert!(seen.oldest <= seen.id, "{seen:?}");
            assert!(seen.answered.iter().all(|&id| id > seen.oldest), "{seen:?}");
        }
    }

    pub fn free(&self, resource: &str) {
        self.change(|t| t.free(resource, false));
    }

    /// A grant to this session that no request of its client awaits.
    pub fn stray_grant(&self, resource: &str, session: u64) {
        self.change(|t| t.grant(resource, session, 1_000_000));
    }

    // What nodes do.

    /// Notes the call and says how it goes.
    pub fn enter(
        &self,
        node: usize,
        what: &'static str,
        header: Option<&v1::RequestHeader>,
        no_forward: bool,
    ) -> Manner {
        self.change(|t| {
            let header = header.cloned().unwrap_or_default();
            let (id, oldest) = (header.request_id, header.oldest_outstanding);
            t.seen.push(Seen { node, what, id, oldest, answered: header.answered, no_forward });
            if what == "keep_alive" {
                t.streams += 1;
            }
            t.next_manner(node, what)
        })
    }

    /// How the next call of this kind at this node goes.
    pub fn next_manner(&self, node: usize, what: &'static str) -> Manner {
        self.table().next_manner(node, what)
    }

    pub fn open(&self, request: &v1::OpenSessionRequest) -> v1::OpenSessionResponse {
        self.change(|t| {
            t.index += 1;
            let owner = request.owner_id.to_vec();
            t.owners.insert(owner.clone());
            let live = t.sessions.iter().find(|(_, s)| s.owner == owner).map(|(&id, _)| id);
            let session = live.unwrap_or(t.index);
            let (ttl_ms, changed_at) = (request.ttl_ms, t.index);
            let new = Session { owner, ttl_ms, changed_at, outcomes: BTreeMap::new() };
            t.sessions.entry(session).or_insert(new);
            let cluster_id = CLUSTER.to_vec().into();
            v1::OpenSessionResponse { session, ttl_ms, cluster_id, created: live.is_none() }
        })
    }

    /// Answers a renewal, and notes it under the session's id.
    pub fn renew(&self, node: usize, renewal: &v1::Renewal) -> v1::renewal_answer::Result {
        use v1::renewal_answer::Result;
        let mut table = self.table();
        let (id, oldest, answered, no_forward) = (renewal.session, 0, vec![], false);
        table.seen.push(Seen { node, what: "renew", id, oldest, answered, no_forward });
        let Some(session) = table.sessions.get(&renewal.session) else {
            let (message, leader) = (String::new(), String::new());
            let reason = Reason::SessionExpired.as_str().to_owned();
            return Result::Refused(v1::RenewalRefusal { reason, message, leader });
        };
        let changed_at = Some(revision(session.changed_at));
        Result::Renewed(v1::Renewed { ttl_ms: session.ttl_ms, changed_at })
    }

    pub fn close(&self, request: &v1::CloseSessionRequest) -> Result<(), Status> {
        self.change(|t| t.live(request.session).map(|_| ()).map(|()| t.end(request.session)))
    }

    pub fn set_ttl(&self, request: &v1::SetTtlRequest) -> Result<v1::SetTtlResponse, Status> {
        let header = request.header.clone().unwrap_or_default();
        self.change(|t| {
            t.index += 1;
            let session = t.live(header.session)?;
            session.ttl_ms = request.ttl_ms;
            session.outcomes.insert(header.request_id, Outcome::Ttl(request.ttl_ms));
            Ok(v1::SetTtlResponse { ttl_ms: request.ttl_ms })
        })
    }

    /// Applies an acquire: an outcome, or a place in the queue.
    pub fn begin_acquire(&self, request: &v1::AcquireRequest) -> Result<(), Status> {
        let header = request.header.clone().unwrap_or_default();
        self.change(|t| {
            t.index += 1;
            let (session, id) = (header.session, header.request_id);
            if t.live(session)?.outcomes.contains_key(&id) {
                return Ok(());
            }
            let resource = request.resource.clone();
            let busy = t.holders.get(&resource).map(|holder| holder.token);
            let outcome = match busy {
                None => {
                    t.grant(&resource, session, id);
                    return Ok(());
                }
                Some(holder) if request.wait_ms == 0 => Outcome::Busy { holder },
                Some(_) => {
                    t.queues.entry(resource.clone()).or_default().push_back((session, id));
                    Outcome::Queued { resource }
                }
            };
            t.live(session)?.outcomes.insert(id, outcome);
            Ok(())
        })
    }

    /// Waits until the acquire is no longer queued.
    pub async fn answer_acquire(
        &self,
        header: &v1::RequestHeader,
    ) -> Result<v1::AcquireResponse, Status> {
        let mut bell = self.bell.subscribe();
        loop {
            if let Some(answer) = self.table().answer(header.session, header.request_id) {
                return answer;
            }
            bell.changed().await.expect("the authority holds the bell");
        }
    }

    pub fn cancel(&self, request: &v1::CancelRequest) -> Result<v1::CancelResponse, Status> {
        let header = request.header.clone().unwrap_or_default();
        self.change(|t| {
            t.index += 1;
            let session = t.live(header.session)?;
            let target = session.outcomes.get(&request.target).cloned();
            match target {
                Some(Outcome::Granted { .. }) => {}
                _ => drop(session.outcomes.insert(request.target, Outcome::Cancelled)),
            }
            if let Some(Outcome::Queued { resource }) = &target {
                let queue = t.queues.entry(resource.clone()).or_default();
                queue.retain(|&wait| wait != (header.session, request.target));
            }
            let grant = t.answer(header.session, request.target).and_then(Result::ok);
            Ok(v1::CancelResponse { grant: grant.and_then(|answer| answer.grant) })
        })
    }

    pub fn release(&self, request: &v1::ReleaseRequest) -> Result<v1::ReleaseResponse, Status> {
        let header = request.header.clone().unwrap_or_default();
        self.change(|t| {
            t.index += 1;
            let index = t.index;
            let (session, id) = (header.session, header.request_id);
            if !t.live(session)?.outcomes.contains_key(&id) {
                let held = t.holders.get(&request.resource);
                let held = held.is_some_and(|h| h.session == session && h.token == request.token);
                if held {
                    t.free(&request.resource, false);
                }
                let outcome = if held { Outcome::Released { at: index } } else { Outcome::NotHeld };
                t.live(session)?.outcomes.insert(id, outcome);
            }
            match t.live(session)?.outcomes[&id] {
                Outcome::Released { at } => {
                    Ok(v1::ReleaseResponse { released_at: Some(revision(at)) })
                }
                _ => Err(Reason::NotHeld.status("", [])),
            }
        })
    }

    pub fn held(&self, request: &v1::HeldRequest) -> Result<v1::HeldResponse, Status> {
        let mut table = self.table();
        let changed_at = table.live(request.session)?.changed_at;
        let mine = table.holders.iter().filter(|(_, h)| h.session == request.session);
        let grants = mine.map(|(resource, holder)| wire_grant(resource, holder)).collect();
        let changed_at = Some(revision(changed_at));
        Ok(v1::HeldResponse { grants, waits: vec![], changed_at, index: table.index })
    }
}

/// Whether the client asked not to be forwarded.
pub fn no_forward<T>(request: &Request<T>) -> bool {
    request.metadata().contains_key(NO_FORWARD)
}

/// Waits for a condition; the test fails if it does not come within 30 s.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never came: {what}"));
}
