//! Questions that change nothing. The answers are those of the wire.

use std::time::Duration;

use tonic::{Response, Status};

use super::fate::{Fate, Plan};
use super::lanes::Lane;
use super::network::Target;
use super::operations::{ANSWER_BYTES_MAX, locks, sessions};
use super::{Address, Client, ClientError};
use crate::locks::{ResourceName, Token};
use crate::wire::v1;
use crate::wire::v1::cluster_client::ClusterClient;
use crate::wire::v1::watch_client::WatchClient;

/// How long one node may take to tell its status.
const STATUS_WITHIN: Duration = Duration::from_secs(2);

impl Client {
    /// Who holds a resource and who waits for it, after a confirmed round.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a bad name, [`ClientError::Unreachable`].
    pub async fn get(&self, resource: &str) -> Result<v1::GetResponse, ClientError> {
        let resource = ResourceName::new(resource)?.as_str().to_owned();
        self.ask(true, |target| {
            let message = v1::GetRequest { resource: resource.clone(), stale: false };
            async move { locks(&target).get(target.request(message)).await }
        })
        .await
    }

    /// Resources that are held or waited for, in order of their names. If `stale`
    /// is set any node answers from its memory, and says so.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a bad bound, [`ClientError::Unreachable`].
    pub async fn list(&self, request: v1::ListRequest) -> Result<v1::ListResponse, ClientError> {
        self.ask(!request.stale, |target| {
            let message = request.clone();
            async move { locks(&target).list(target.request(message)).await }
        })
        .await
    }

    /// The live sessions, in order of their ids.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a bad bound, [`ClientError::Unreachable`].
    pub async fn sessions(
        &self,
        request: v1::ListSessionsRequest,
    ) -> Result<v1::ListSessionsResponse, ClientError> {
        self.ask(
            true,
            |target| async move { sessions(&target).list(target.request(request)).await },
        )
        .await
    }

    /// Whether that grant is live and active now. For destinations that can keep no
    /// mark: it narrows the window, it does not close it.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a bad name, [`ClientError::Unreachable`].
    pub async fn check_token(
        &self,
        resource: &str,
        token: Token,
    ) -> Result<v1::CheckTokenResponse, ClientError> {
        let resource = ResourceName::new(resource)?.as_str().to_owned();
        self.ask(true, |target| {
            let message = v1::CheckTokenRequest { resource: resource.clone(), token: token.get() };
            async move { locks(&target).check_token(target.request(message)).await }
        })
        .await
    }

    /// Why a resource is held or closed, who waits in which order, and its last events.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] for a bad name, [`ClientError::Unreachable`].
    pub async fn explain(&self, resource: &str) -> Result<v1::ExplainResponse, ClientError> {
        let resource = ResourceName::new(resource)?.as_str().to_owned();
        self.ask(true, |target| {
            let message = v1::ExplainRequest { resource: resource.clone() };
            async move {
                let watch = WatchClient::new(target.channel.clone());
                let mut watch = watch.max_decoding_message_size(ANSWER_BYTES_MAX);
                watch.explain(target.request(message)).await
            }
        })
        .await
    }

    /// What every known node says of itself. Needs no leader and no majority.
    pub async fn status(&self) -> Vec<(Address, Result<v1::StatusResponse, ClientError>)> {
        let asked = self.nodes().into_iter().map(|node| {
            let client = self.clone();
            let asked = node.clone();
            (node, tokio::spawn(async move { client.status_of(&asked).await }))
        });
        let mut statuses = Vec::new();
        for (node, answer) in asked.collect::<Vec<_>>() {
            let gone = || ClientError::Unreachable {
                outcome_unknown: false,
                last: "the runtime is shutting down".to_owned(),
            };
            statuses.push((node, answer.await.unwrap_or_else(|_| Err(gone()))));
        }
        statuses
    }

    /// What this node says of itself.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub async fn status_of(&self, node: &Address) -> Result<v1::StatusResponse, ClientError> {
        let target = self.shared.network.target(node, Lane::Calls, false);
        let mut cluster = ClusterClient::new(target.channel.clone());
        let answer = cluster.status(target.request(v1::StatusRequest {}));
        let last = match tokio::time::timeout(STATUS_WITHIN, answer).await {
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) => status.message().to_owned(),
            Err(_) => "did not answer".to_owned(),
        };
        let last = format!("{node}: {last}");
        Err(ClientError::Unreachable { outcome_unknown: false, last })
    }

    async fn ask<T, A>(
        &self,
        leader: bool,
        attempt: impl FnMut(Target) -> A,
    ) -> Result<T, ClientError>
    where
        A: Future<Output = Result<Response<T>, Status>>,
    {
        let network = &self.shared.network;
        let plan = Plan { leader, ..Plan::within(&network.settings, network.settings.call) };
        let mut fate = Fate::default();
        let answer = network.call(plan, &mut fate, attempt).await;
        answer.map_err(|failure| match failure.error(&fate) {
            // A question has no outcome.
            ClientError::Unreachable { last, .. } => {
                ClientError::Unreachable { outcome_unknown: false, last }
            }
            other => other,
        })
    }
}
