//! Sessions and grants as workloads keep them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rand::RngExt;
use serde_json::{Value, json};

use super::world::Agent;
use crate::history::Kind;
use crate::worker::{Answer, hex};

/// Attempts of a request before the session is given up.
const ATTEMPTS: u32 = 6;
/// How long one attempt may take beyond what it waits.
const LIMIT_MS: u64 = 1_500;

/// An owner's session.
#[derive(Debug)]
pub struct Lease {
    /// Its number.
    pub session: u64,
    /// In force, in milliseconds.
    pub ttl_ms: u64,
    /// The authority's id.
    pub cluster_id: String,
    /// Requests from this one on are kept answerable, whatever was answered since; 0 for none.
    pub pin: u64,
    owner: String,
    requests: u64,
    over: Arc<AtomicBool>,
}

/// What was granted.
#[derive(Debug, Clone)]
pub struct Grant {
    /// On which resource, the first of a set.
    pub resource: String,
    /// The fencing token.
    pub token: u64,
    /// What marks are raised to.
    pub floor: u64,
    /// Its slot.
    pub slot: Option<u64>,
    /// The request that asked for it.
    pub request: u64,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The resource.
    pub resource: String,
    /// `exclusive`, `shared` or `slots`.
    pub mode: &'static str,
    /// How many slots.
    pub slots: u64,
    /// How long to wait.
    pub wait_ms: u64,
    /// The other resources of a set.
    pub more: Vec<String>,
    /// Of a strict grant.
    pub barrier_ms: Option<u64>,
    /// That its place in the queue is to be told first.
    pub queue: bool,
    /// That it proves recovery.
    pub last: bool,
    /// How long an attempt may take beyond the wait.
    pub limit_ms: u64,
}

impl Ask {
    /// One resource alone.
    #[must_use]
    pub fn of(resource: &str, wait_ms: u64) -> Ask {
        Ask {
            resource: resource.to_owned(),
            mode: "exclusive",
            slots: 0,
            wait_ms,
            more: Vec::new(),
            barrier_ms: None,
            queue: false,
            last: false,
            limit_ms: LIMIT_MS,
        }
    }
}

impl Lease {
    /// Stops renewing: as if its client had crashed.
    pub fn abandon(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Whether it is known to be over, or given up.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// The next request's number.
    pub fn request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// What requests carry besides their arguments.
    #[must_use]
    pub fn aside(&self, oldest: u64) -> Value {
        let oldest = if self.pin == 0 { oldest } else { self.pin };
        json!({"owner": self.owner, "oldest": oldest})
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Agent {
    /// Opens a session, and keeps it alive if `kept`.
    pub async fn open(&mut self, ttl_ms: u64, kept: bool) -> Option<Lease> {
        let owner = hex(&self.rng.random::<[u8; 16]>());
        let aside = json!({"owner": owner});
        // The owner is a credential and random: the history tells which one it is, no more.
        let args = json!({"owner": owner[..8], "ttl_ms": ttl_ms});
        let (answer, _) = self.settle("open", &args, &aside, LIMIT_MS, ATTEMPTS).await;
        if answer.kind != Kind::Ok {
            self.sleep(50..200).await;
            return None;
        }
        let lease = Lease {
            session: answer.value["session"].as_u64()?,
            ttl_ms: answer.value["ttl_ms"].as_u64()?,
            cluster_id: answer.aside["cluster_id"].as_str()?.to_owned(),
            pin: 0,
            owner,
            requests: 0,
            over: Arc::default(),
        };
        if kept {
            let renewal = Renewal {
                session: lease.session,
                ttl_ms: lease.ttl_ms,
                owner: lease.owner.clone(),
                over: Arc::clone(&lease.over),
            };
            tokio::spawn(renewal.keep(self.twin()));
        }
        Some(lease)
    }

    /// Opens a session of the client library; its handle is in the aside of its requests.
    pub async fn open_library(&mut self, ttl_ms: u64) -> Option<(Lease, Value)> {
        let handle: u64 = self.rng.random();
        let nodes: Vec<String> = self.world.nodes.iter().map(|node| node.1.clone()).collect();
        let aside = json!({"library": handle, "nodes": nodes});
        let args = json!({"owner": "library", "ttl_ms": ttl_ms, "library": true});
        let answer = self.somewhere("open", args, aside, 4_000).await;
        if answer.kind != Kind::Ok {
            self.sleep(50..200).await;
            return None;
        }
        let lease = Lease {
            session: answer.value["session"].as_u64()?,
            ttl_ms: answer.value["ttl_ms"].as_u64()?,
            cluster_id: answer.aside["cluster_id"].as_str()?.to_owned(),
            pin: 0,
            owner: String::new(),
            requests: 0,
            over: Arc::default(),
        };
        Some((lease, json!({"library": handle})))
    }

    /// One renewal.
    pub async fn renew(&mut self, lease: &Lease) -> Answer {
        let args = json!({"session": lease.session, "ttl_ms": lease.ttl_ms});
        let node = self.pick();
        let answer = self.once("renew", args, lease.aside(1), node, LIMIT_MS).await;
        if over(&answer) {
            lease.abandon();
        }
        answer
    }

    /// Asks until it is settled. An outcome that stays unknown costs the session.
    pub async fn acquire(&mut self, lease: &mut Lease, ask: &Ask) -> Option<Grant> {
        let request = lease.request();
        self.acquire_as(lease, ask, request).await
    }

    /// The arguments of an acquire.
    #[must_use]
    pub fn arguments(lease: &Lease, ask: &Ask, request: u64) -> Value {
        let mut args = json!({
            "session": lease.session, "request": request, "resource": ask.resource,
            "mode": ask.mode, "wait_ms": ask.wait_ms,
        });
        if ask.mode == "slots" {
            args["slots"] = json!(ask.slots);
        }
        if !ask.more.is_empty() {
            args["more"] = json!(ask.more);
        }
        if let Some(ms) = ask.barrier_ms {
            args["strict"] = json!(true);
            args["barrier_ms"] = json!(ms);
        }
        if ask.last {
            args["final"] = json!(true);
        }
        args
    }

    /// As [`Agent::acquire`], under this request.
    pub async fn acquire_as(
        &mut self,
        lease: &mut Lease,
        ask: &Ask,
        request: u64,
    ) -> Option<Grant> {
        for name in ask.more.iter().chain([&ask.resource]) {
            self.world.uses(name, ask.mode, ask.slots);
        }
        let args = Agent::arguments(lease, ask, request);
        if ask.queue {
            let mut aside = lease.aside(request);
            aside["queue"] = json!(true);
            let (told, settled) = self.settle("acquire", &args, &aside, LIMIT_MS, ATTEMPTS).await;
            let queued = told.kind == Kind::Ok && told.value["token"].is_null();
            if settled && !queued {
                return self.granted(lease, ask, request, &told);
            }
        }
        let aside = lease.aside(request);
        let limit = ask.wait_ms + ask.limit_ms;
        let (answer, settled) = self.settle("acquire", &args, &aside, limit, ATTEMPTS).await;
        if !settled {
            lease.abandon();
        }
        self.granted(lease, ask, request, &answer)
    }

    /// The grant in an answer.
    pub fn granted(
        &mut self,
        lease: &Lease,
        ask: &Ask,
        request: u64,
        answer: &Answer,
    ) -> Option<Grant> {
        if over(answer) {
            lease.abandon();
        }
        if answer.kind != Kind::Ok {
            return None;
        }
        let token = answer.value["token"].as_u64()?;
        let mut tokens = self.world.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.insert(ask.resource.clone(), token);
        drop(tokens);
        Some(Grant {
            resource: ask.resource.clone(),
            token,
            floor: answer.value["floor"].as_u64()?,
            slot: answer.value["slot"].as_u64(),
            request,
        })
    }

    /// An operation that names a grant: `release`, `confirm`, `set_value`.
    pub async fn with_grant(&mut self, lease: &mut Lease, f: &str, grant: &Grant) -> Answer {
        let request = lease.request();
        let args = json!({
            "session": lease.session, "request": request, "resource": grant.resource,
            "token": grant.token,
        });
        let aside = lease.aside(request);
        let (answer, settled) = self.settle(f, &args, &aside, LIMIT_MS, ATTEMPTS).await;
        if over(&answer) || !settled {
            lease.abandon();
        }
        answer
    }

    /// Gives a grant back.
    pub async fn release(&mut self, lease: &mut Lease, grant: &Grant) -> Answer {
        self.with_grant(lease, "release", grant).await
    }

    /// Ends the session.
    pub async fn close(&mut self, lease: &Lease) {
        lease.abandon();
        let args = json!({"session": lease.session});
        let _closed = self.settle("close", &args, &lease.aside(1), LIMIT_MS, ATTEMPTS).await;
    }

    /// Raises the mark, reads, thinks and writes at the destination, under the grant.
    pub async fn write(&mut self, lease: &Lease, grant: &Grant, think_ms: u64) -> Answer {
        let next = self.world.elements.fetch_add(1, Ordering::Relaxed);
        let element = json!(format!("e{next}"));
        let counts = self.world.mode(&grant.resource).is_some_and(|mode| mode == "exclusive");
        let mut args = json!({
            "resource": grant.resource, "token": grant.token, "floor": grant.floor,
            "element": element, "dest": "d1",
        });
        if let Some(slot) = grant.slot {
            args["slot"] = json!(slot);
        }
        let aside = json!({
            "cluster_id": lease.cluster_id, "session": lease.session, "counts": counts,
            "think_ms": think_ms,
        });
        self.at_dest("write", args, aside, 2_000 + think_ms).await
    }

    /// Raises the mark only.
    pub async fn raise(&mut self, lease: &Lease, grant: &Grant) -> Answer {
        let args = json!({
            "resource": grant.resource, "token": grant.token, "floor": grant.floor, "dest": "d1",
        });
        let aside = json!({"cluster_id": lease.cluster_id, "session": lease.session});
        self.at_dest("raise", args, aside, 1_500).await
    }
}

/// Whether an answer says that the session is over.
#[must_use]
pub fn over(answer: &Answer) -> bool {
    matches!(answer.error.as_deref(), Some("SESSION_EXPIRED" | "SESSION_UNKNOWN"))
}

/// What keeps a session alive.
struct Renewal {
    session: u64,
    ttl_ms: u64,
    owner: String,
    over: Arc<AtomicBool>,
}

impl Renewal {
    async fn keep(self, mut agent: Agent) {
        let aside = json!({"owner": self.owner});
        while !self.over.load(Ordering::SeqCst) {
            let wait = self.ttl_ms / 4 + agent.rng.random_range(0..=self.ttl_ms / 10);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let args = json!({"session": self.session, "ttl_ms": self.ttl_ms});
            let node = agent.pick();
            let limit = self.ttl_ms.clamp(300, 1_000);
            let answer = agent.once("renew", args, aside.clone(), node, limit).await;
            if over(&answer) {
                self.over.store(true, Ordering::SeqCst);
            }
        }
    }
}
