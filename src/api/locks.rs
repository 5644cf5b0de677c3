//! Acquire, release, cancel, and the questions about resources.

use std::sync::Arc;

use prost::Message;
use tonic::{Request, Response, Status};

use super::node::Node;
use super::refusals::{invalid, outcome_unknown, refused};
use crate::authority::State;
use crate::locks::{
    Command, Done, GrantRow, OwnerId, Phase, Refusal, RequestId, ResourceName, Token, Value, WaitId,
};
use crate::wire::ANSWER_BYTES_MAX;
use crate::wire::api::{claim_in, header_in, limit_in, session_in, token_in};
use crate::wire::v1;
use crate::wire::v1::locks_client::LocksClient;
use crate::wire::v1::locks_server::Locks;
use crate::wire::views::{Listed, fences_out, grant_out, resource_out, revision_out};

/// A list ends when it has so many bytes.
const LIST_BYTES: usize = 1 << 20;

/// `ringfence.v1.Locks`.
#[derive(Clone)]
pub struct LockService(pub Arc<Node>);

#[tonic::async_trait]
impl Locks for LockService {
    async fn acquire(
        &self,
        request: Request<v1::AcquireRequest>,
    ) -> Result<Response<v1::AcquireResponse>, Status> {
        let to_leader =
            |channel, request| async { LocksClient::new(channel).acquire(request).await };
        self.0.answer(request, acquire, to_leader).await
    }

    async fn confirm(
        &self,
        request: Request<v1::ConfirmRequest>,
    ) -> Result<Response<v1::ConfirmResponse>, Status> {
        let to_leader =
            |channel, request| async { LocksClient::new(channel).confirm(request).await };
        self.0.answer(request, confirm, to_leader).await
    }

    async fn set_value(
        &self,
        request: Request<v1::SetValueRequest>,
    ) -> Result<Response<v1::SetValueResponse>, Status> {
        let to_leader =
            |channel, request| async { LocksClient::new(channel).set_value(request).await };
        self.0.answer(request, set_value, to_leader).await
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        let to_leader =
            |channel, request| async { LocksClient::new(channel).release(request).await };
        self.0.answer(request, release, to_leader).await
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        let to_leader =
            |channel, request| async { LocksClient::new(channel).cancel(request).await };
        self.0.answer(request, cancel, to_leader).await
    }

    async fn check_token(
        &self,
        request: Request<v1::CheckTokenRequest>,
    ) -> Result<Response<v1::CheckTokenResponse>, Status> {
        let to_leader =
            |channel, request| async { LocksClient::new(channel).check_token(request).await };
        self.0.answer(request, check_token, to_leader).await
    }

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        if request.get_ref().stale {
            let name = ResourceName::new(&request.get_ref().resource).map_err(|e| invalid(&e))?;
            return Ok(Response::new(read_resource(&self.0.authority.lock(), &name, true)));
        }
        let to_leader = |channel, request| async { LocksClient::new(channel).get(request).await };
        self.0.answer(request, get, to_leader).await
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        if request.get_ref().stale {
            return read_list(&self.0.authority.lock(), request.get_ref()).map(Response::new);
        }
        let to_leader = |channel, request| async { LocksClient::new(channel).list(request).await };
        self.0.answer(request, list, to_leader).await
    }

    async fn held(
        &self,
        request: Request<v1::HeldRequest>,
    ) -> Result<Response<v1::HeldResponse>, Status> {
        let to_leader = |channel, request| async {
            // Ten thousand grants with long names take more than the usual 4 MiB.
            let mut leader = LocksClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
            leader.held(request).await
        };
        self.0.answer(request, held, to_leader).await
    }
}

async fn acquire(node: &Node, request: v1::AcquireRequest) -> Result<v1::AcquireResponse, Status> {
    let (claim, wait) = claim_in(&request).map_err(|e| invalid(&e))?;
    let header = header_in(request.header).map_err(|e| invalid(&e))?;
    let id = WaitId { session: header.session, request: header.id };
    let (state, grant) = match node.propose(&Command::Acquire { header, claim, wait }).await? {
        Done::Granted { token } => {
            let state = node.authority.lock();
            let grant = granted(&state, token)?;
            (state, grant)
        }
        Done::Queued { ahead } if request.answer_queued => {
            let queued = Some(v1::QueuePlace { ahead });
            return Ok(v1::AcquireResponse { queued, ..Default::default() });
        }
        Done::Queued { .. } => {
            let grant = node.wait(id).await?;
            (node.authority.lock(), grant)
        }
        other => return Err(unexpected(&other)),
    };
    let fences = fences_out(&state.table, &grant);
    Ok(v1::AcquireResponse {
        grant: Some(grant_out(&state.table, &grant, &grant.names[0])),
        fence: fences.first().cloned(),
        fences: if grant.names.len() > 1 { fences } else { Vec::new() },
        queued: None,
    })
}

/// The grant behind a token, if it is still live: a release or an expiry may have
/// been applied between the grant and its answer.
fn granted(state: &State, token: Token) -> Result<GrantRow, Status> {
    let ended = Refusal::GrantEnded { token };
    state.table.grant(token).cloned().ok_or_else(|| refused(&ended))
}

async fn confirm(node: &Node, request: v1::ConfirmRequest) -> Result<v1::ConfirmResponse, Status> {
    let (resource, token) = named(&request.resource, request.token)?;
    let header = header_in(request.header).map_err(|e| invalid(&e))?;
    match node.propose(&Command::Confirm { header, resource, token }).await? {
        Done::Confirmed { at } => Ok(v1::ConfirmResponse { confirmed_at: Some(revision_out(at)) }),
        other => Err(unexpected(&other)),
    }
}

async fn set_value(
    node: &Node,
    request: v1::SetValueRequest,
) -> Result<v1::SetValueResponse, Status> {
    let (resource, token) = named(&request.resource, request.token)?;
    let value = Value::new(&request.value).map_err(|e| invalid(&e))?;
    let header = header_in(request.header).map_err(|e| invalid(&e))?;
    match node.propose(&Command::SetValue { header, resource, token, value }).await? {
        Done::ValueSet { at } => Ok(v1::SetValueResponse { changed_at: Some(revision_out(at)) }),
        other => Err(unexpected(&other)),
    }
}

async fn release(node: &Node, request: v1::ReleaseRequest) -> Result<v1::ReleaseResponse, Status> {
    let (resource, token) = named(&request.resource, request.token)?;
    let header = header_in(request.header).map_err(|e| invalid(&e))?;
    match node.propose(&Command::Release { header, resource, token }).await? {
        Done::Released { at } => Ok(v1::ReleaseResponse { released_at: Some(revision_out(at)) }),
        other => Err(unexpected(&other)),
    }
}

async fn cancel(node: &Node, request: v1::CancelRequest) -> Result<v1::CancelResponse, Status> {
    let header = header_in(request.header).map_err(|e| invalid(&e))?;
    let target = RequestId::new(request.target).ok().filter(|target| *target != header.id);
    let bound = "another request id of the session";
    let bad = crate::locks::Invalid { field: "target", bound };
    let target = target.ok_or_else(|| invalid(&bad))?;
    match node.propose(&Command::Cancel { header, target }).await? {
        Done::CancelledTarget => Ok(v1::CancelResponse { grant: None }),
        Done::Granted { token } => {
            let state = node.authority.lock();
            let grant = granted(&state, token)?;
            let name = &grant.names[0];
            Ok(v1::CancelResponse { grant: Some(grant_out(&state.table, &grant, name)) })
        }
        other => Err(unexpected(&other)),
    }
}

async fn check_token(
    node: &Node,
    request: v1::CheckTokenRequest,
) -> Result<v1::CheckTokenResponse, Status> {
    let (resource, token) = named(&request.resource, request.token)?;
    node.confirm().await?;
    let state = node.authority.lock();
    let grant = state.table.live_grant_on(&resource, token);
    // Not current until its owner has raised the fence everywhere. (I9)
    let grant = grant.filter(|grant| grant.phase == Phase::Active);
    let grant = grant.map(|grant| grant_out(&state.table, grant, &resource));
    let index = state.table.position().index;
    Ok(v1::CheckTokenResponse { current: grant.is_some(), grant, index })
}

async fn get(node: &Node, request: v1::GetRequest) -> Result<v1::GetResponse, Status> {
    let name = ResourceName::new(&request.resource).map_err(|e| invalid(&e))?;
    node.confirm().await?;
    Ok(read_resource(&node.authority.lock(), &name, false))
}

async fn list(node: &Node, request: v1::ListRequest) -> Result<v1::ListResponse, Status> {
    node.confirm().await?;
    read_list(&node.authority.lock(), &request)
}

async fn held(node: &Node, request: v1::HeldRequest) -> Result<v1::HeldResponse, Status> {
    let owner = OwnerId::from_slice(&request.owner_id).map_err(|e| invalid(&e))?;
    let session = session_in(request.session).map_err(|e| invalid(&e))?;
    node.confirm().await?;
    let state = node.authority.lock();
    let index = state.table.position().index;
    let gone = if session.0 <= index { Refusal::SessionExpired } else { Refusal::SessionUnknown };
    let view = state.table.owned_session(owner, session).ok_or_else(|| refused(&gone))?;
    let grants = view
        .grants()
        .flat_map(|grant| grant.names.iter().map(|name| grant_out(&state.table, grant, name)))
        // The owner knows these; with each of thousands of grants they add up.
        .map(|grant| v1::Grant {
            labels: crate::locks::Labels::new(),
            value: prost::bytes::Bytes::new(),
            set: Vec::new(),
            ..grant
        });
    Ok(v1::HeldResponse {
        grants: grants.collect(),
        waits: view.waits().map(|wait| wait.wait.request.get()).collect(),
        changed_at: Some(revision_out(view.changed_at)),
        index,
    })
}

fn read_resource(state: &State, name: &ResourceName, stale: bool) -> v1::GetResponse {
    let resource = match state.table.resource(name) {
        Some(view) => resource_out(&state.table, &view, Listed::ALONE),
        None => v1::ResourceView { resource: name.to_string(), ..Default::default() },
    };
    v1::GetResponse { resource: Some(resource), index: state.table.position().index, stale }
}

fn read_list(state: &State, request: &v1::ListRequest) -> Result<v1::ListResponse, Status> {
    let limit = limit_in(request.limit).map_err(|e| invalid(&e))?;
    let prefix = request.prefix.as_str();
    // Names are in order: begin at the prefix, or after what the caller has seen.
    let from = if request.after.as_str() >= prefix { &request.after } else { "" };
    let after = match from {
        "" => None,
        name => Some(ResourceName::new(name).map_err(|e| invalid(&e))?),
    };
    let table = &state.table;
    let found = table.resources_with_prefix(prefix, after.as_ref());
    let mut found = found.take(limit + 1).peekable();
    let (mut resources, mut bytes) = (Vec::new(), 0);
    while resources.len() < limit
        && bytes < LIST_BYTES
        && let Some(view) = found.next()
    {
        let resource = resource_out(table, &view, Listed::AMONG_MANY);
        bytes += resource.encoded_len();
        resources.push(resource);
    }
    let more = found.peek().is_some();
    let index = table.position().index;
    Ok(v1::ListResponse { resources, more, index, stale: request.stale })
}

/// A grant on a resource, as a request names it.
fn named(resource: &str, token: u64) -> Result<(ResourceName, Token), Status> {
    let resource = ResourceName::new(resource).map_err(|e| invalid(&e))?;
    Ok((resource, token_in(token).map_err(|e| invalid(&e))?))
}

/// An outcome that this command never has: said as what it is, unknown.
pub(super) fn unexpected(done: &Done) -> Status {
    tracing::error!(?done, "an outcome that does not belong to its command");
    outcome_unknown()
}
