//! The requests of a session. Each runs as a task of its own until it is settled or the
//! session is over, whatever becomes of the call that began it: a request that may have
//! taken effect is never just forgotten. Acquires are in `claim`, what concerns one
//! grant is in `holder`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tonic::{Response, Status};

use super::backoff::Backoff;
use super::core::Core;
use super::error::ClientError;
use super::fate::{Failure, Fate, Plan};
use super::handover::Asked;
use super::holder::Reply;
use super::holdings::{Listed, Reading};
use super::network::Target;
use super::state::Loss;
use super::window::Header;
use crate::clock::{BootMoment, Moment};
use crate::locks::{Invalid, Millis, RequestId, ResourceName, Revision, Token};
use crate::wire::reason::{Reason, Told};
use crate::wire::v1;
use crate::wire::v1::locks_client::LocksClient;
use crate::wire::v1::sessions_client::SessionsClient;

pub(super) use crate::wire::ANSWER_BYTES_MAX;

/// Why a request ended without an answer that says done.
pub(super) enum Stop {
    /// The session is over, and what the request did with it.
    Over(Loss),
    /// No answer.
    Failed(Failure),
}

/// Changes the ttl. From the sending until it is settled the lower of both
/// counts.
pub(super) async fn set_ttl(
    core: Arc<Core>,
    ttl: Millis,
    plan: Plan,
    reply: oneshot::Sender<Result<Duration, ClientError>>,
) {
    let mut reply = Some(reply);
    let turn = core.ttl_turn.lock();
    let left = plan.until.map_or(Duration::MAX, |until| until.since(Moment::now()));
    let Ok(_turn) = tokio::time::timeout(left, turn).await else {
        return tell(&mut reply, Err(Fate::default().unreachable()));
    };
    let sent = BootMoment::now();
    let id = core.begin();
    core.ttl_asked(ttl.duration());
    core.client.keepers.join(&core);
    let mut fate = Fate::default();
    let attempt = |target: Target, header| {
        let message = v1::SetTtlRequest { header: Some(header), ttl_ms: ttl.0 };
        async move { sessions(&target).set_ttl(target.request(message)).await }
    };
    let answer = ask_on(&core, id, plan, &mut fate, &mut reply, attempt).await;
    let outcome = match answer {
        Ok(v1::SetTtlResponse { ttl_ms }) => {
            let ttl = Duration::from_millis(ttl_ms);
            core.ttl_settled(id, sent, ttl);
            Ok(ttl)
        }
        Err(Stop::Over(loss)) => Err(loss.error()),
        Err(Stop::Failed(failure)) => {
            core.ttl_refused(id, fate.is_unknown());
            Err(failure.error(&fate))
        }
    };
    core.client.keepers.join(&core);
    tell(&mut reply, outcome);
}

/// Ends the session at the authority; it is over here already. When the plan's time is over
/// the caller is told so, and the request goes on for as long as the authority may keep the
/// session.
pub(super) async fn close(core: Arc<Core>, plan: Plan, reply: Reply) {
    let mut reply = Some(reply);
    let mut fate = Fate::default();
    let attempt = |target: Target| {
        let owner_id = core.owner.as_bytes().to_vec().into();
        let message = v1::CloseSessionRequest { owner_id, session: core.session.0 };
        async move { sessions(&target).close(target.request(message)).await }
    };
    let network = &core.client.network;
    let mut answer = network.call(plan, &mut fate, attempt).await;
    if let Err(Failure::OutOfTime) = answer {
        tell(&mut reply, Err(fate.unreachable()));
        let lease = Plan::within(&network.settings, core.ttl());
        answer = network.call(lease, &mut fate, attempt).await;
    }
    let outcome = match answer {
        Ok(v1::CloseSessionResponse {}) => Ok(()),
        Err(Failure::Refused(told)) if is_over(&told) => Ok(()),
        Err(failure) => Err(failure.error(&fate)),
    };
    if let Err(error) = &outcome {
        tracing::debug!(session = %core.session, %error, "left to its expiry");
    }
    tell(&mut reply, outcome);
}

/// Reads what the session holds until every change that was told is taken in.
pub(super) async fn read(core: Arc<Core>) {
    let mut backoff = Backoff::default();
    loop {
        let attempt = |target: Target| {
            let owner_id = core.owner.as_bytes().to_vec().into();
            let message = v1::HeldRequest { owner_id, session: core.session.0 };
            async move { locks(&target).held(target.request(message)).await }
        };
        let plan = Plan::endless(&core.client.network.settings);
        let mut fate = Fate::default();
        let answer = tokio::select! {
            biased;
            _ = core.ended() => return,
            answer = core.client.network.call(plan, &mut fate, attempt) => answer,
        };
        match answer.map(reading) {
            Ok(Ok(reading)) => {
                if !core.read(reading) {
                    return;
                }
                // Something changed meanwhile: once more, not in a rush.
                tokio::time::sleep(backoff.pause(rand::random())).await;
            }
            Err(Failure::Refused(told)) if is_over(&told) => core.end(Loss::SessionExpired),
            // Without the list nothing may count: own deadline speaks meanwhile.
            Ok(Err(Invalid { .. })) | Err(Failure::Refused(_) | Failure::OutOfTime) => {
                tokio::time::sleep(backoff.pause(rand::random())).await;
            }
        }
    }
}

/// The list has one grant for each resource; those under one token are one.
fn reading(held: v1::HeldResponse) -> Result<Reading, Invalid> {
    let mut grants: Vec<Listed> = Vec::with_capacity(held.grants.len());
    for grant in held.grants {
        let token = Token::new(grant.token)?;
        let name = ResourceName::new(&grant.resource)?;
        if let Some(same) = grants.last_mut().filter(|last| last.token == token) {
            same.names.push(name);
            continue;
        }
        let request = RequestId::new(grant.request)?;
        let asked = grant.asked.map(Asked::from);
        grants.push(Listed { token, names: vec![name], request, asked });
    }
    let changed_at = held.changed_at.map(revision).unwrap_or_default();
    Ok(Reading { index: held.index, changed_at, grants })
}

pub(super) fn revision(wire: v1::Revision) -> Revision {
    Revision { index: wire.index, ordinal: wire.ordinal }
}

/// Makes attempts until the request is settled or the session over. The caller is told
/// when the plan's time is.
pub(super) async fn ask_on<T, A, R>(
    core: &Core,
    id: RequestId,
    plan: Plan,
    fate: &mut Fate,
    reply: &mut Option<oneshot::Sender<Result<R, ClientError>>>,
    mut attempt: impl FnMut(Target, v1::RequestHeader) -> A,
) -> Result<T, Stop>
where
    A: Future<Output = Result<Response<T>, Status>>,
{
    let answer = ask(core, id, plan, fate, &mut attempt).await;
    let Err(Stop::Failed(Failure::OutOfTime)) = answer else { return answer };
    tell(reply, Err(fate.unreachable()));
    let endless = Plan::endless(&core.client.network.settings);
    ask(core, id, endless, fate, attempt).await
}

/// Makes attempts under one request id; each says anew what else is settled.
pub(super) async fn ask<T, A>(
    core: &Core,
    id: RequestId,
    plan: Plan,
    fate: &mut Fate,
    mut attempt: impl FnMut(Target, v1::RequestHeader) -> A,
) -> Result<T, Stop>
where
    A: Future<Output = Result<Response<T>, Status>>,
{
    let mut sent = core.header(id);
    let numbered = |target: Target| {
        sent = core.header(id);
        attempt(target, header(core, &sent))
    };
    let answer = tokio::select! {
        biased;
        loss = core.ended() => return Err(Stop::Over(loss)),
        answer = core.client.network.call(plan, fate, numbered) => answer,
    };
    match answer {
        Ok(answer) => {
            core.told(&sent);
            Ok(answer)
        }
        Err(Failure::Refused(told)) if is_over(&told) => {
            core.end(Loss::SessionExpired);
            Err(Stop::Over(Loss::SessionExpired))
        }
        Err(Failure::Refused(told)) => {
            if told.reason.is_some_and(|reason| !reason.is_at_the_door()) {
                core.told(&sent);
            }
            Err(Stop::Failed(Failure::Refused(told)))
        }
        Err(Failure::OutOfTime) => Err(Stop::Failed(Failure::OutOfTime)),
    }
}

/// Whether the refusal says that the session is no more.
fn is_over(told: &Told) -> bool {
    matches!(told.reason, Some(Reason::SessionExpired | Reason::SessionUnknown))
}

fn header(core: &Core, header: &Header) -> v1::RequestHeader {
    v1::RequestHeader {
        owner_id: core.owner.as_bytes().to_vec().into(),
        session: core.session.0,
        request_id: header.id.get(),
        oldest_outstanding: header.oldest.get(),
        answered: header.answered.iter().map(|id| id.get()).collect(),
    }
}

pub(super) fn tell<T>(reply: &mut Option<oneshot::Sender<T>>, answer: T) {
    if let Some(reply) = reply.take() {
        // The caller may have gone; the request goes on for itself.
        let _ = reply.send(answer);
    }
}

pub(super) fn locks(target: &Target) -> LocksClient<tonic::transport::Channel> {
    LocksClient::new(target.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
}

pub(super) fn sessions(target: &Target) -> SessionsClient<tonic::transport::Channel> {
    SessionsClient::new(target.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grants_of_a_set_are_read_as_one() {
        let grant = |resource: &str, token| {
            let resource = resource.to_owned();
            v1::Grant { resource, token, request: 3, ..Default::default() }
        };
        let grants = vec![grant("a", 7), grant("b", 7), grant("c", 9)];
        let read = reading(v1::HeldResponse { grants, index: 12, ..Default::default() });
        let read = read.expect("a good list");
        let names: Vec<usize> = read.grants.iter().map(|listed| listed.names.len()).collect();
        assert_eq!((read.index, names), (12, vec![2, 1]));
    }
}
