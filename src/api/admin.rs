//! What administrators do by hand. Section 8 of the contract.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::locks::unexpected;
use super::node::Node;
use super::refusals::invalid;
use crate::locks::{Administered, Command, Done, Fence, Note, ResourceName, Token};
use crate::wire::api::{note_in, slots_in, token_in, within_in};
use crate::wire::v1;
use crate::wire::v1::admin_client::AdminClient;
use crate::wire::v1::admin_server::Admin;
use crate::wire::views::revision_out;

/// How many fences of removed slots one answer lists.
const REMOVED_LISTED_MAX: usize = 1_024;

/// `ringfence.v1.Admin`.
#[derive(Clone)]
pub struct AdminService(pub Arc<Node>);

#[tonic::async_trait]
impl Admin for AdminService {
    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeResponse>, Status> {
        let to_leader =
            |channel, request| async { AdminClient::new(channel).revoke(request).await };
        self.0.answer(request, revoke, to_leader).await
    }

    async fn freeze(
        &self,
        request: Request<v1::FreezeRequest>,
    ) -> Result<Response<v1::FreezeResponse>, Status> {
        let to_leader =
            |channel, request| async { AdminClient::new(channel).freeze(request).await };
        self.0.answer(request, freeze, to_leader).await
    }

    async fn thaw(
        &self,
        request: Request<v1::ThawRequest>,
    ) -> Result<Response<v1::ThawResponse>, Status> {
        let to_leader = |channel, request| async { AdminClient::new(channel).thaw(request).await };
        self.0.answer(request, thaw, to_leader).await
    }

    async fn resize(
        &self,
        request: Request<v1::ResizeRequest>,
    ) -> Result<Response<v1::ResizeResponse>, Status> {
        let to_leader =
            |channel, request| async { AdminClient::new(channel).resize(request).await };
        self.0.answer(request, resize, to_leader).await
    }

    async fn ask_release(
        &self,
        request: Request<v1::AskReleaseRequest>,
    ) -> Result<Response<v1::AskReleaseResponse>, Status> {
        let to_leader =
            |channel, request| async { AdminClient::new(channel).ask_release(request).await };
        self.0.answer(request, ask_release, to_leader).await
    }
}

async fn revoke(node: &Node, request: v1::RevokeRequest) -> Result<v1::RevokeResponse, Status> {
    let (resource, note) = named(&request.resource, request.note)?;
    let token = token_in(request.token).map_err(|e| invalid(&e))?;
    match node.propose(&Command::Revoke { resource, token, note }).await? {
        Done::Administered(Administered::Revoked { names, slot, token, floor }) => {
            let fences = names.into_iter().map(|name| fence(node, name, slot, token, floor));
            Ok(v1::RevokeResponse { fences: fences.collect() })
        }
        other => Err(unexpected(&other)),
    }
}

async fn freeze(node: &Node, request: v1::FreezeRequest) -> Result<v1::FreezeResponse, Status> {
    let (resource, note) = named(&request.resource, request.note)?;
    match node.propose(&Command::Freeze { resource: resource.clone(), note }).await? {
        Done::Administered(Administered::Frozen { token }) => {
            Ok(v1::FreezeResponse { fence: Some(fence(node, resource, None, token, token)) })
        }
        other => Err(unexpected(&other)),
    }
}

async fn thaw(node: &Node, request: v1::ThawRequest) -> Result<v1::ThawResponse, Status> {
    let (resource, note) = named(&request.resource, request.note)?;
    let token = token_in(request.token).map_err(|e| invalid(&e))?;
    match node.propose(&Command::Thaw { resource, token, note }).await? {
        Done::Administered(Administered::Thawed { at }) => {
            Ok(v1::ThawResponse { thawed_at: Some(revision_out(at)) })
        }
        other => Err(unexpected(&other)),
    }
}

async fn resize(node: &Node, request: v1::ResizeRequest) -> Result<v1::ResizeResponse, Status> {
    let (resource, note) = named(&request.resource, request.note)?;
    let slots = slots_in(request.slots).map_err(|e| invalid(&e))?;
    match node.propose(&Command::Resize { resource: resource.clone(), slots, note }).await? {
        Done::Administered(Administered::Resized { slots, token, floor, removed }) => {
            let of_slot = |slot| fence(node, resource.clone(), Some(slot), token, floor);
            Ok(v1::ResizeResponse {
                slots,
                token: token.get(),
                removed: removed.clone().take(REMOVED_LISTED_MAX).map(of_slot).collect(),
                removed_from: removed.start,
                removed_to: removed.end,
            })
        }
        other => Err(unexpected(&other)),
    }
}

async fn ask_release(
    node: &Node,
    request: v1::AskReleaseRequest,
) -> Result<v1::AskReleaseResponse, Status> {
    let (resource, note) = named(&request.resource, request.note)?;
    let token = token_in(request.token).map_err(|e| invalid(&e))?;
    let within = within_in(request.within_ms).map_err(|e| invalid(&e))?;
    match node.propose(&Command::AskRelease { resource, token, within, note }).await? {
        Done::Administered(Administered::Asked { at }) => {
            Ok(v1::AskReleaseResponse { asked_at: Some(revision_out(at)) })
        }
        other => Err(unexpected(&other)),
    }
}

fn named(resource: &str, note: Option<v1::Note>) -> Result<(ResourceName, Note), Status> {
    let resource = ResourceName::new(resource).map_err(|e| invalid(&e))?;
    Ok((resource, note_in(note).map_err(|e| invalid(&e))?))
}

fn fence(
    node: &Node,
    resource: ResourceName,
    slot: Option<u32>,
    token: Token,
    floor: Token,
) -> v1::Fence {
    let cluster = node.authority.lock().table.cluster();
    let cluster = cluster.expect("no command takes effect before the authority has its identity");
    (&Fence { cluster, resource, slot, token, floor }).into()
}
