//! One call, over as many nodes and attempts as its time allows.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::backoff::{Backoff, SPREAD, at_least};
use super::fate::{Failure, Fate, Plan, Settings};
use super::lanes::{Lane, Lanes, Place};
use super::route::{Address, Directory, Walk};
use crate::clock::Moment;
use crate::locks::Invalid;
use crate::wire::reason::{NO_FORWARD, Reason, Told, key};

/// How much later than this side the node gives an attempt up.
const TIMEOUT_SLACK: Duration = Duration::from_secs(1);

/// Where one attempt goes.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub channel: Channel,
    forward: bool,
    timeout: Option<Duration>,
}

impl Target {
    /// Whether the node may forward to the leader.
    pub fn forwards(&self) -> bool {
        self.forward
    }

    /// The message with what the node must know of the attempt.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if !self.forward {
            request.metadata_mut().insert(NO_FORWARD, MetadataValue::from_static("1"));
        }
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout);
        }
        request
    }
}

/// What the status of one attempt asks for.
pub(super) enum Verdict {
    Final(Told),
    /// If `spread`, not in step with others that met the same.
    Elsewhere {
        hint: Option<Address>,
        spread: bool,
    },
    Again {
        after: Option<Duration>,
    },
}

/// The nodes and the connections to them.
#[derive(Debug)]
pub(super) struct Network {
    pub settings: Settings,
    directory: Mutex<Directory>,
    lanes: Lanes,
}

impl Network {
    pub fn new(nodes: Vec<Address>, settings: Settings) -> Self {
        let directory = Mutex::new(Directory::new(nodes));
        Self { settings, directory, lanes: Lanes::default() }
    }

    /// Makes attempts until one is answered for good. `fate` outlives the call,
    /// also one that is dropped half way.
    pub async fn call<T, A>(
        &self,
        plan: Plan,
        fate: &mut Fate,
        mut attempt: impl FnMut(Target) -> A,
    ) -> Result<T, Failure>
    where
        A: Future<Output = Result<Response<T>, Status>>,
    {
        let mut walk = self.walk();
        let mut backoff = Backoff::default();
        loop {
            let Some(node) = self.next(&mut walk) else {
                walk.again();
                plan.pause(fate, backoff.pause(rand::random())).await?;
                continue;
            };
            let verdict = match self.ask(&node, &walk, plan, fate, &mut attempt).await? {
                Ok(answer) => return Ok(answer),
                Err(verdict) => verdict,
            };
            if !plan.repeats && fate.is_unknown() {
                return Err(Failure::OutOfTime);
            }
            match verdict {
                Verdict::Final(told) => return Err(Failure::Refused(told)),
                Verdict::Elsewhere { hint, spread } => {
                    self.leads_not(&node);
                    if let Some(hint) = hint {
                        self.hinted(&mut walk, hint);
                    }
                    let bound = if spread { SPREAD } else { Duration::ZERO };
                    plan.pause(fate, bound.mul_f64(rand::random())).await?;
                }
                Verdict::Again { after } => {
                    let roll = rand::random();
                    let after = after.map_or_else(|| backoff.pause(roll), |d| at_least(d, roll));
                    plan.pause(fate, after).await?;
                    walk.stay();
                }
            }
        }
    }

    /// A place for a call that stays open.
    pub fn place(&self) -> Place<'_> {
        self.lanes.place()
    }

    /// The connection broke: the next attempt takes another.
    pub fn broke(&self, node: &Address, lane: Lane) {
        self.lanes.broke(node, lane);
    }

    /// One attempt at one node.
    async fn ask<T, A>(
        &self,
        node: &Address,
        walk: &Walk,
        plan: Plan,
        fate: &mut Fate,
        attempt: &mut impl FnMut(Target) -> A,
    ) -> Result<Result<T, Verdict>, Failure>
    where
        A: Future<Output = Result<Response<T>, Status>>,
    {
        let limit = plan.limit(walk.rounds())?;
        let forward = walk.may_forward();
        // Dropped with the attempt.
        let place = plan.attempt.is_none().then(|| self.lanes.place());
        let lane = place.as_ref().map_or(Lane::Calls, Place::lane);
        let timeout = plan.attempt.and(limit).map(|limit| limit.saturating_add(TIMEOUT_SLACK));
        let target = Target { timeout, ..self.target(node, lane, forward) };
        fate.begin(Moment::now());
        let Some(answer) = within(limit, attempt(target)).await else {
            if plan.until.is_some_and(|until| Moment::now() >= until) {
                return Err(Failure::OutOfTime);
            }
            self.stalled(node);
            fate.failed(true, format!("{node} did not answer"));
            return Ok(Err(Verdict::Elsewhere { hint: None, spread: false }));
        };
        let status = match answer {
            Ok(response) => {
                fate.answered();
                self.answered(node, plan.leader && !forward);
                return Ok(Ok(response.into_inner()));
            }
            Err(status) => status,
        };
        let (verdict, unknown) = judge(&status);
        if matches!(verdict, Verdict::Final(_)) {
            fate.answered();
            self.answered(node, plan.leader && !forward);
        } else {
            if Told::of(&status).is_none() {
                // Also when the runtime it was made in is gone.
                self.lanes.broke(node, lane);
            }
            fate.failed(unknown, format!("{node}: {}", status.message()));
        }
        Ok(Err(verdict))
    }

    /// A way through the nodes, begun anywhere.
    pub fn walk(&self) -> Walk {
        let nodes = lock(&self.directory).nodes().len();
        Walk::new(rand::random_range(0..nodes.max(1)))
    }

    /// The walk's next node.
    pub fn next(&self, walk: &mut Walk) -> Option<Address> {
        walk.next(&lock(&self.directory))
    }

    /// The node the walk stands at named another as the leader.
    pub fn hinted(&self, walk: &mut Walk, leader: Address) {
        lock(&self.directory).leads(&leader);
        walk.hint(leader);
    }

    /// The node answered; if it did so by itself, it leads.
    pub fn answered(&self, node: &Address, leads: bool) {
        if leads {
            lock(&self.directory).leads(node);
        }
    }

    /// The node does not lead, or cannot be reached.
    pub fn leads_not(&self, node: &Address) {
        lock(&self.directory).leads_not(node);
    }

    /// The node is silent: the next attempt there takes a new connection.
    pub fn stalled(&self, node: &Address) {
        self.lanes.stalled(node);
        self.leads_not(node);
    }

    /// All nodes that are known.
    pub fn nodes(&self) -> Vec<Address> {
        lock(&self.directory).nodes().to_vec()
    }

    /// Where a call to this very node goes.
    pub fn target(&self, node: &Address, lane: Lane, forward: bool) -> Target {
        let channel = self.lanes.channel(node, lane, self.settings.connect);
        Target { channel, forward, timeout: None }
    }
}

/// Reads the nodes that the application names.
pub(super) fn addresses<I>(endpoints: I) -> Result<Vec<Address>, Invalid>
where
    I: IntoIterator<Item: AsRef<str>>,
{
    let mut nodes = Vec::new();
    for endpoint in endpoints {
        let node = Address::parse(endpoint.as_ref())?;
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    if nodes.is_empty() {
        return Err(Invalid { field: "endpoints", bound: "at least one" });
    }
    Ok(nodes)
}

/// Locks; a panic elsewhere leaves nothing half done that matters here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What to do about a status, and whether the attempt may have taken effect.
pub(super) fn judge(status: &Status) -> (Verdict, bool) {
    let Some(told) = Told::of(status) else {
        let unknown = !was_never_sent(status);
        return (Verdict::Elsewhere { hint: None, spread: unknown }, unknown);
    };
    let hint = told.text(key::LEADER).and_then(|leader| Address::parse(leader).ok());
    match told.reason {
        Some(Reason::NotLeader | Reason::NoQuorum) => {
            (Verdict::Elsewhere { hint, spread: false }, false)
        }
        Some(Reason::OutcomeUnknown) => (Verdict::Elsewhere { hint, spread: true }, true),
        Some(Reason::Overloaded | Reason::Restoring | Reason::WindowFull) => {
            (Verdict::Again { after: told.retry_after() }, false)
        }
        Some(
            Reason::SessionExpired
            | Reason::SessionUnknown
            | Reason::NotHeld
            | Reason::Busy
            | Reason::AlreadyHeld
            | Reason::AlreadyWaiting
            | Reason::GrantEnded
            | Reason::Cancelled
            | Reason::StaleRequest
            | Reason::WaitTimeout
            | Reason::QueueFull
            | Reason::LimitReached
            | Reason::CapacityMismatch
            | Reason::Deadlock
            | Reason::Frozen
            | Reason::Compacted
            | Reason::InvalidArgument
            | Reason::PermissionDenied,
        )
        | None => (Verdict::Final(told), false),
    }
}

/// Whether no connection was made, so that the node cannot have seen the request.
fn was_never_sent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

async fn within<T>(limit: Option<Duration>, attempt: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, attempt).await.ok(),
        None => Some(attempt.await),
    }
}
