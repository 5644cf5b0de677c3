//! What the holder of a grant asks for: to give it back, to confirm it, to change its
//! value. Sections 4 and 7 of the contract.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::core::Core;
use super::error::ClientError;
use super::fate::{Failure, Fate, Plan};
use super::network::Target;
use super::operations::{Stop, ask_on, locks, tell};
use crate::locks::{ResourceName, Token, Value};
use crate::wire::reason::Reason;
use crate::wire::v1;

/// A grant, as its holder names it: of a set any of its names stands for all.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub resource: ResourceName,
    pub token: Token,
}

/// Where the outcome goes, if anybody waits for it.
pub(super) type Reply = oneshot::Sender<Result<(), ClientError>>;

/// Releases a grant however long it takes.
pub(super) async fn give_back(core: Arc<Core>, resource: ResourceName, token: Token) {
    let (reply, _) = oneshot::channel();
    let plan = Plan::endless(&core.client.network.settings);
    release(core, Named { resource, token }, plan, reply).await;
}

/// Releases a grant. When the plan's time is over the caller is told so, and the
/// request goes on until it is settled.
pub(super) async fn release(core: Arc<Core>, grant: Named, plan: Plan, reply: Reply) {
    let Named { resource, token } = &grant;
    let id = core.begin();
    let mut fate = Fate::default();
    let mut reply = Some(reply);
    let attempt = |target: Target, header| {
        let message = v1::ReleaseRequest {
            header: Some(header),
            resource: resource.as_str().to_owned(),
            token: token.get(),
        };
        async move { locks(&target).release(target.request(message)).await }
    };
    let answer = ask_on(&core, id, plan, &mut fate, &mut reply, attempt).await;
    core.settle(id);
    core.forget(*token);
    tell(&mut reply, outcome(answer.map(|v1::ReleaseResponse { .. }| ()), &fate, *token));
}

/// Confirms a grant: its owner has raised the fence everywhere.
pub(super) async fn confirm(core: Arc<Core>, grant: Named, plan: Plan, reply: Reply) {
    let Named { resource, token } = &grant;
    let id = core.begin();
    let mut fate = Fate::default();
    let mut reply = Some(reply);
    let attempt = |target: Target, header| {
        let message = v1::ConfirmRequest {
            header: Some(header),
            resource: resource.as_str().to_owned(),
            token: token.get(),
        };
        async move { locks(&target).confirm(target.request(message)).await }
    };
    let answer = ask_on(&core, id, plan, &mut fate, &mut reply, attempt).await;
    core.settle(id);
    let answer = outcome(answer.map(|v1::ConfirmResponse { .. }| ()), &fate, *token);
    tell(&mut reply, noted(&core, *token, answer));
}

/// Changes the value of a grant.
pub(super) async fn set_value(
    core: Arc<Core>,
    grant: Named,
    value: Value,
    plan: Plan,
    reply: Reply,
) {
    let Named { resource, token } = &grant;
    let id = core.begin();
    let mut fate = Fate::default();
    let mut reply = Some(reply);
    let attempt = |target: Target, header| {
        let message = v1::SetValueRequest {
            header: Some(header),
            resource: resource.as_str().to_owned(),
            token: token.get(),
            value: value.as_bytes().to_vec().into(),
        };
        async move { locks(&target).set_value(target.request(message)).await }
    };
    let answer = ask_on(&core, id, plan, &mut fate, &mut reply, attempt).await;
    core.settle(id);
    let answer = outcome(answer.map(|v1::SetValueResponse { .. }| ()), &fate, *token);
    tell(&mut reply, noted(&core, *token, answer));
}

fn outcome(answer: Result<(), Stop>, fate: &Fate, token: Token) -> Result<(), ClientError> {
    match answer {
        Ok(()) => Ok(()),
        Err(Stop::Over(loss)) => Err(loss.error()),
        Err(Stop::Failed(Failure::Refused(told))) if told.reason == Some(Reason::NotHeld) => {
            Err(ClientError::Lost { token: Some(token) })
        }
        Err(Stop::Failed(failure)) => Err(failure.error(fate)),
    }
}

/// A grant that the authority does not know is lost at once, without waiting for the
/// next renewal.
fn noted(core: &Core, token: Token, answer: Result<(), ClientError>) -> Result<(), ClientError> {
    if let Err(ClientError::Lost { .. }) = answer {
        core.forget(token);
    }
    answer
}
