//! Acquires. Each runs as a task of its own until its request is settled: when
//! nobody wants the answer any longer it is cancelled, and what it was granted is
//! given back. Section 4 of the contract.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::core::{Core, State};
use super::error::{ClientError, settles};
use super::fate::{Failure, Fate, Plan};
use super::network::Target;
use super::operations::{Stop, ask, give_back, locks};
use crate::clock::{BootMoment, Moment};
use crate::locks::{Fence, Invalid, Millis, RequestId, ResourceName, Token};
use crate::wire::v1;

/// A grant on its way to the application: wherever it is dropped, it is given
/// back.
#[derive(Debug)]
pub(super) struct Claimed {
    pub core: Arc<Core>,
    pub fence: Fence,
    armed: bool,
}

impl Claimed {
    /// The caller gives it back itself.
    pub fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // Nothing is left of a lost one, and a fork's copy is not its own to give.
        let token = self.fence.token;
        let lost = matches!(self.core.state(Some(token), BootMoment::now()), State::Lost(_));
        if self.armed && !lost {
            let resource = self.fence.resource.clone();
            self.core.spawn(give_back(Arc::clone(&self.core), resource, token));
        }
    }
}

/// What an acquire asks for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub resource: ResourceName,
    pub wait: Millis,
    pub plan: Plan,
}

/// Asks for a resource. When nobody wants the answer any longer, or its time is
/// over, the request is settled by a cancel.
pub(super) async fn acquire(
    core: Arc<Core>,
    wanted: Wanted,
    mut reply: oneshot::Sender<Result<Claimed, ClientError>>,
    place: OwnedSemaphorePermit,
) {
    let id = core.begin();
    let mut fate = Fate::default();
    let asked = {
        let attempt = |target: Target, header| {
            let message = v1::AcquireRequest {
                header: Some(header),
                resource: wanted.resource.as_str().to_owned(),
                mode: v1::Mode::Exclusive.into(),
                wait_ms: wanted.wait.0,
                ..Default::default()
            };
            async move { locks(&target).acquire(target.request(message)).await }
        };
        let answer = ask(&core, id, wanted.plan, &mut fate, attempt);
        tokio::select! {
            answer = answer => Some(answer),
            () = reply.closed() => None,
        }
    };
    let error = match asked {
        Some(Ok(response)) => {
            granted(&core, id, response, reply);
            return;
        }
        Some(Err(Stop::Over(loss))) => Some(loss.error()),
        Some(Err(Stop::Failed(Failure::Refused(told)))) => {
            let unsettled = !settles(&told, fate.is_unknown());
            let _ = reply.send(Err(ClientError::refused(told, fate.is_unknown())));
            return finish(core, id, unsettled, place).await;
        }
        Some(Err(Stop::Failed(Failure::OutOfTime))) => Some(out_of_time(&core, &wanted, &fate)),
        None => None,
    };
    if let Some(error) = error {
        let _ = reply.send(Err(error));
    }
    let unsettled = fate.is_unknown();
    finish(core, id, unsettled, place).await;
}

async fn finish(core: Arc<Core>, id: RequestId, unsettled: bool, place: OwnedSemaphorePermit) {
    if unsettled {
        cancel(core, id).await;
    } else {
        core.settle(id);
    }
    drop(place);
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
    response: v1::AcquireResponse,
    reply: oneshot::Sender<Result<Claimed, ClientError>>,
) {
    let (fence, granted_at) = match grant(core, response) {
        Ok(grant) => grant,
        Err(Invalid { field, .. }) => {
            core.settle(id);
            let _ = reply.send(Err(ClientError::Malformed { field }));
            return;
        }
    };
    let token = fence.token;
    let answer = if core.granted(id, token, granted_at) {
        Ok(Claimed { core: Arc::clone(core), fence, armed: true })
    } else {
        Err(ClientError::Lost { token: Some(token) })
    };
    // An answer that nobody takes is dropped, and a grant with it.
    drop(reply.send(answer));
}

/// Reads the answer to an acquire: its fence, and the index it was granted at.
fn grant(core: &Core, response: v1::AcquireResponse) -> Result<(Fence, u64), Invalid> {
    let grant = response.grant.ok_or(Invalid { field: "grant", bound: "present" })?;
    let at = grant.granted_at.ok_or(Invalid { field: "granted_at", bound: "present" })?;
    let fence = response.fence.ok_or(Invalid { field: "fence", bound: "present" })?;
    let fence = Fence::try_from(fence)?;
    if fence.cluster != core.cluster {
        return Err(Invalid { field: "cluster_id", bound: "that of the session" });
    }
    if fence.token.get() != grant.token {
        return Err(Invalid { field: "token", bound: "the same in grant and fence" });
    }
    Ok((fence, at.index))
}

/// Settles an acquire that nobody awaits, and gives back what it was granted.
async fn cancel(core: Arc<Core>, target: RequestId) {
    let id = core.begin();
    let attempt = |at: Target, header| {
        let message = v1::CancelRequest { header: Some(header), target: target.get() };
        async move { locks(&at).cancel(at.request(message)).await }
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
        Err(Stop::Failed(Failure::Refused(told))) => {
            tracing::warn!(request = %target, reason = told.word, "a cancel was refused");
        }
    }
}
