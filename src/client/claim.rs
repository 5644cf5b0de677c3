//! Acquires. Each runs as a task of its own until its request is settled: when
//! nobody wants the answer any longer it is cancelled, and what it was granted is
//! given back. Section 4 of the contract.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::core::Core;
use super::error::{ClientError, settles};
use super::fate::{Failure, Fate, Plan};
use super::grant::{Claimed, Granted};
use super::holder::give_back;
use super::leaving::Stay;
use super::network::Target;
use super::operations::{Stop, ask, locks};
use crate::clock::{BootMoment, Moment};
use crate::locks::{Claim, Handoff, Invalid, Millis, Mode, RequestId, ResourceName, Token};
use crate::wire::reason::Reason;
use crate::wire::v1;

/// What an acquire asks for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub claim: Claim,
    pub wait: Millis,
    pub plan: Plan,
}

impl Wanted {
    /// The same for every attempt, or it would be another request.
    fn message(&self, header: v1::RequestHeader, answer_queued: bool) -> v1::AcquireRequest {
        let Claim { names, mode, terms } = &self.claim;
        let text = |name: &ResourceName| name.as_str().to_owned();
        v1::AcquireRequest {
            header: Some(header),
            resource: text(&names[0]),
            mode: match mode {
                Mode::Exclusive => v1::Mode::Exclusive.into(),
                Mode::Shared => v1::Mode::Shared.into(),
                Mode::Slots { .. } => v1::Mode::Slots.into(),
            },
            wait_ms: self.wait.0,
            slots: mode.slots().unwrap_or(0),
            more: names[1..].iter().map(text).collect(),
            lock_delay_ms: terms.lock_delay.0,
            barrier_ms: match terms.handoff {
                Handoff::Plain => 0,
                Handoff::Strict { barrier } => barrier.0,
            },
            value: terms.value.as_bytes().to_vec().into(),
            answer_queued,
        }
    }
}

/// The call that waits for an acquire.
#[derive(Debug)]
pub(super) struct Caller {
    pub reply: oneshot::Sender<Result<Claimed, ClientError>>,
    /// Where to tell the place in the queue, if it is asked for.
    pub queued: Option<oneshot::Sender<u64>>,
}

/// What an acquire occupies until it is settled.
#[derive(Debug)]
pub(super) struct Occupied {
    /// One of the session's acquires.
    pub _place: OwnedSemaphorePermit,
    /// Its names, should the caller give up.
    pub _stay: Stay,
}

/// Asks for what is wanted. When nobody wants the answer any longer, or its time is
/// over, the request is settled by a cancel.
pub(super) async fn acquire(core: Arc<Core>, wanted: Wanted, caller: Caller, occupied: Occupied) {
    let Caller { mut reply, queued } = caller;
    let id = core.begin();
    let mut fate = Fate::default();
    let asked = {
        let answer = ask_in_steps(&core, id, &wanted, &mut fate, queued);
        tokio::select! {
            answer = answer => Some(answer),
            () = reply.closed() => None,
        }
    };
    let error = match asked {
        Some(Ok(response)) => {
            granted(&core, id, &wanted.claim, response, reply);
            return;
        }
        Some(Err(Stop::Over(loss))) => Some(loss.error()),
        Some(Err(Stop::Failed(Failure::Refused(told)))) => {
            let unsettled = !settles(&told, fate.is_unknown());
            let _ = reply.send(Err(ClientError::refused(told, fate.is_unknown())));
            return finish(core, id, unsettled, occupied).await;
        }
        Some(Err(Stop::Failed(Failure::OutOfTime))) => Some(out_of_time(&core, &wanted, &fate)),
        None => None,
    };
    if let Some(error) = error {
        let _ = reply.send(Err(error));
    }
    let unsettled = fate.is_unknown();
    finish(core, id, unsettled, occupied).await;
}

/// Asks for the place in the queue first, if somebody wants to know, and then, under
/// the same id, for the grant. An answer that is lost in between loses no place.
async fn ask_in_steps(
    core: &Core,
    id: RequestId,
    wanted: &Wanted,
    fate: &mut Fate,
    queued: Option<oneshot::Sender<u64>>,
) -> Result<v1::AcquireResponse, Stop> {
    let attempt = |answer_queued| {
        move |target: Target, header| {
            let message = wanted.message(header, answer_queued);
            async move { locks(&target).acquire(target.request(message)).await }
        }
    };
    if let Some(queued) = queued {
        // This much is answered at once.
        let attempt_limit = Some(core.client.network.settings.attempt);
        let plan = Plan { attempt: attempt_limit, ..wanted.plan };
        let response = ask(core, id, plan, fate, attempt(true)).await?;
        let Some(place) = response.queued else { return Ok(response) };
        fate.takes_effect();
        let _ = queued.send(place.ahead);
    }
    ask(core, id, wanted.plan, fate, attempt(false)).await
}

async fn finish(core: Arc<Core>, id: RequestId, unsettled: bool, occupied: Occupied) {
    if unsettled {
        cancel(core, id).await;
    } else {
        core.settle(id);
    }
    drop(occupied);
}

/// A wait that is over is told apart from an authority that does not answer.
fn out_of_time(core: &Core, wanted: &Wanted, fate: &Fate) -> ClientError {
    let in_contact = fate.is_in_contact(Moment::now()) && core.is_in_contact(BootMoment::now());
    if wanted.wait.0 > 0 && in_contact {
        return ClientError::Timeout { outcome_unknown: fate.is_unknown() };
    }
    fate.unreachable()
}

fn granted(
    core: &Arc<Core>,
    id: RequestId,
    claim: &Claim,
    response: v1::AcquireResponse,
    reply: oneshot::Sender<Result<Claimed, ClientError>>,
) {
    let grant = match Granted::read(core.cluster, claim, response) {
        Ok(grant) => grant,
        Err(Invalid { field, .. }) => {
            core.settle(id);
            let _ = reply.send(Err(ClientError::Malformed { field }));
            return;
        }
    };
    let token = grant.token();
    let answer = if core.granted(id, token, grant.granted_at, grant.asked.clone()) {
        Ok(Claimed::new(Arc::clone(core), grant))
    } else {
        Err(ClientError::Lost { token: Some(token) })
    };
    // An answer that nobody takes is dropped, and a grant with it.
    drop(reply.send(answer));
}

/// Settles an acquire that nobody awaits: either it is never granted, or the grant
/// is given back. Its id stays outstanding until this is answered.
async fn cancel(core: Arc<Core>, target: RequestId) {
    let id = core.begin();
    let attempt = |to: Target, header| {
        let message = v1::CancelRequest { header: Some(header), target: target.get() };
        async move { locks(&to).cancel(to.request(message)).await }
    };
    let plan = Plan::endless(&core.client.network.settings);
    let answer = ask(&core, id, plan, &mut Fate::default(), attempt).await;
    core.settle(target);
    core.settle(id);
    match answer {
        Ok(v1::CancelResponse { grant: Some(grant) }) => {
            let resource = ResourceName::new(&grant.resource);
            if let (Ok(resource), Ok(token)) = (resource, Token::new(grant.token)) {
                give_back(core, resource, token).await;
            }
        }
        Ok(v1::CancelResponse { grant: None })
        | Err(Stop::Over(_) | Stop::Failed(Failure::OutOfTime)) => {}
        // Granted, and gone again.
        Err(Stop::Failed(Failure::Refused(told))) if told.reason == Some(Reason::GrantEnded) => {}
        Err(Stop::Failed(Failure::Refused(told))) => {
            tracing::warn!(request = %target, reason = told.word, "a cancel was refused");
        }
    }
}
