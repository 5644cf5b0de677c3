//! Open, keep alive, change, close and list sessions.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Request, Response, Status, Streaming};

use super::keep_alive::{self, Answers};
use super::node::Node;
use super::refusals::{invalid, outcome_unknown};
use super::route::{Route, forwarded, of_forwarding};
use crate::locks::{Command, Done, Millis, OwnerId, SessionId};
use crate::wire::api::{header_in, labels_in, limit_in, session_in};
use crate::wire::v1;
use crate::wire::v1::sessions_client::SessionsClient;
use crate::wire::v1::sessions_server::Sessions;

/// `ringfence.v1.Sessions`.
#[derive(Clone)]
pub struct SessionService(pub Arc<Node>);

#[tonic::async_trait]
impl Sessions for SessionService {
    type KeepAliveStream = Answers;

    async fn open(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let to_leader =
            |channel, request| async { SessionsClient::new(channel).open(request).await };
        self.0.answer(request, open, to_leader).await
    }

    /// Renewals of many sessions. On a node that does not lead, the whole stream goes
    /// to the leader.
    async fn keep_alive(
        &self,
        request: Request<Streaming<v1::KeepAliveRequest>>,
    ) -> Result<Response<Self::KeepAliveStream>, Status> {
        match self.0.route(request.metadata())? {
            Route::Here => Ok(Response::new(keep_alive::serve(&self.0, request.into_inner()))),
            Route::Leader(channel) => {
                let request = forwarded(request).map(keep_alive::pass_on);
                let answers = SessionsClient::new(channel).keep_alive(request).await;
                let answers = answers.map_err(of_forwarding)?;
                Ok(answers.map(|answers| Box::pin(answers) as Answers))
            }
        }
    }

    async fn set_ttl(
        &self,
        request: Request<v1::SetTtlRequest>,
    ) -> Result<Response<v1::SetTtlResponse>, Status> {
        let to_leader =
            |channel, request| async { SessionsClient::new(channel).set_ttl(request).await };
        self.0.answer(request, set_ttl, to_leader).await
    }

    async fn close(
        &self,
        request: Request<v1::CloseSessionRequest>,
    ) -> Result<Response<v1::CloseSessionResponse>, Status> {
        let to_leader =
            |channel, request| async { SessionsClient::new(channel).close(request).await };
        self.0.answer(request, close, to_leader).await
    }

    async fn list(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsResponse>, Status> {
        let to_leader =
            |channel, request| async { SessionsClient::new(channel).list(request).await };
        self.0.answer(request, list, to_leader).await
    }
}

async fn open(
    node: &Node,
    request: v1::OpenSessionRequest,
) -> Result<v1::OpenSessionResponse, Status> {
    let owner = OwnerId::from_slice(&request.owner_id).map_err(|e| invalid(&e))?;
    let labels = labels_in(request.labels).map_err(|e| invalid(&e))?;
    let command = Command::OpenSession { owner, ttl: Millis(request.ttl_ms), labels };
    match node.propose(&command).await? {
        Done::Opened { session, ttl, created } => {
            let cluster = node.authority.lock().table.cluster();
            let cluster = cluster.ok_or_else(outcome_unknown)?;
            Ok(v1::OpenSessionResponse {
                session: session.0,
                ttl_ms: ttl.0,
                cluster_id: Bytes::copy_from_slice(cluster.as_bytes()),
                created,
            })
        }
        _ => Err(outcome_unknown()),
    }
}

async fn set_ttl(node: &Node, request: v1::SetTtlRequest) -> Result<v1::SetTtlResponse, Status> {
    let header = header_in(request.header).map_err(|e| invalid(&e))?;
    match node.propose(&Command::SetTtl { header, ttl: Millis(request.ttl_ms) }).await? {
        Done::TtlSet { ttl } => Ok(v1::SetTtlResponse { ttl_ms: ttl.0 }),
        _ => Err(outcome_unknown()),
    }
}

async fn close(
    node: &Node,
    request: v1::CloseSessionRequest,
) -> Result<v1::CloseSessionResponse, Status> {
    let owner = OwnerId::from_slice(&request.owner_id).map_err(|e| invalid(&e))?;
    let session = session_in(request.session).map_err(|e| invalid(&e))?;
    node.propose(&Command::CloseSession { owner, session }).await?;
    Ok(v1::CloseSessionResponse {})
}

async fn list(
    node: &Node,
    request: v1::ListSessionsRequest,
) -> Result<v1::ListSessionsResponse, Status> {
    let limit = limit_in(request.limit).map_err(|e| invalid(&e))?;
    node.confirm().await?;
    let state = node.authority.lock();
    let found = state.table.sessions_after(SessionId(request.after)).take(limit + 1);
    let view = |view: crate::locks::SessionView<'_>| v1::SessionView {
        session: view.row.session.0,
        ttl_ms: view.row.ttl.0,
        labels: view.row.labels.clone(),
        grants: u32::try_from(view.grants().len()).unwrap_or(u32::MAX),
        waits: u32::try_from(view.waits().len()).unwrap_or(u32::MAX),
    };
    let mut sessions: Vec<_> = found.map(view).collect();
    let more = sessions.len() > limit;
    sessions.truncate(limit);
    Ok(v1::ListSessionsResponse { sessions, more, index: state.table.position().index })
}
