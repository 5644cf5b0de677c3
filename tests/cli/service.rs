//! The rules as gRPC services. While the authority is silent, calls stay open.

use std::pin::Pin;

use ringfence::wire::v1;
use ringfence::wire::v1::cluster_server::{Cluster, ClusterServer};
use ringfence::wire::v1::locks_server::{Locks, LocksServer};
use ringfence::wire::v1::sessions_server::{Sessions, SessionsServer};
use ringfence::wire::v1::watch_server::{Watch, WatchServer};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::authority::Rules;

#[derive(Clone)]
struct Service(Rules);

pub async fn serve(rules: Rules, listener: TcpListener) {
    let service = Service(rules);
    Server::builder()
        .add_service(SessionsServer::new(service.clone()))
        .add_service(LocksServer::new(service.clone()))
        .add_service(WatchServer::new(service.clone()))
        .add_service(ClusterServer::new(service))
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
        .unwrap();
}

type Answer<T> = Result<Response<T>, Status>;

impl Service {
    /// Reads and answers only while the authority speaks.
    async fn play<Q, T>(
        &self,
        request: Request<Q>,
        effect: impl AsyncFnOnce(&Rules, Q) -> Result<T, Status>,
    ) -> Answer<T> {
        self.0.lit().await;
        let answer = effect(&self.0, request.into_inner()).await;
        self.0.lit().await;
        answer.map(Response::new)
    }
}

#[tonic::async_trait]
impl Sessions for Service {
    async fn open(&self, r: Request<v1::OpenSessionRequest>) -> Answer<v1::OpenSessionResponse> {
        self.play(r, async |rules, m| rules.open(m)).await
    }

    type KeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<v1::KeepAliveResponse, Status>> + Send + 'static>>;

    async fn keep_alive(
        &self,
        request: Request<Streaming<v1::KeepAliveRequest>>,
    ) -> Answer<Self::KeepAliveStream> {
        self.0.lit().await;
        let (answers, stream) = mpsc::channel(16);
        let rules = self.0.clone();
        tokio::spawn(async move {
            let mut messages = request.into_inner();
            while let Ok(Some(message)) = messages.message().await {
                rules.lit().await;
                let answered =
                    message.renewals.iter().map(|renewal| rules.renew(renewal)).collect();
                rules.lit().await;
                if answers.send(Ok(v1::KeepAliveResponse { answers: answered })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn set_ttl(&self, _: Request<v1::SetTtlRequest>) -> Answer<v1::SetTtlResponse> {
        Err(Status::unimplemented("the command line never asks"))
    }

    async fn close(&self, r: Request<v1::CloseSessionRequest>) -> Answer<v1::CloseSessionResponse> {
        let effect = async |rules: &Rules, m: v1::CloseSessionRequest| {
            rules.close(m.session).map(|()| v1::CloseSessionResponse {})
        };
        self.play(r, effect).await
    }

    async fn list(&self, r: Request<v1::ListSessionsRequest>) -> Answer<v1::ListSessionsResponse> {
        self.play(r, async |rules, m| Ok(rules.list_sessions(m))).await
    }
}

#[tonic::async_trait]
impl Locks for Service {
    async fn acquire(&self, r: Request<v1::AcquireRequest>) -> Answer<v1::AcquireResponse> {
        self.play(r, async |rules, m| rules.acquire(&m).await).await
    }

    async fn confirm(&self, _: Request<v1::ConfirmRequest>) -> Answer<v1::ConfirmResponse> {
        Err(Status::unimplemented("the command line never asks"))
    }

    async fn set_value(&self, _: Request<v1::SetValueRequest>) -> Answer<v1::SetValueResponse> {
        Err(Status::unimplemented("the command line never asks"))
    }

    async fn release(&self, r: Request<v1::ReleaseRequest>) -> Answer<v1::ReleaseResponse> {
        self.play(r, async |rules, m| rules.release(&m)).await
    }

    async fn cancel(&self, r: Request<v1::CancelRequest>) -> Answer<v1::CancelResponse> {
        self.play(r, async |rules, m| Ok(rules.cancel(&m))).await
    }

    async fn held(&self, r: Request<v1::HeldRequest>) -> Answer<v1::HeldResponse> {
        self.play(r, async |rules, m| rules.held(m.session)).await
    }

    async fn check_token(
        &self,
        r: Request<v1::CheckTokenRequest>,
    ) -> Answer<v1::CheckTokenResponse> {
        let effect = async |rules: &Rules, m: v1::CheckTokenRequest| {
            let view = rules.get(&m.resource);
            let holders = view.resource.map(|resource| resource.holders).unwrap_or_default();
            let grant = holders.into_iter().find(|grant| grant.token == m.token);
            let (current, index) = (grant.is_some(), view.index);
            Ok(v1::CheckTokenResponse { current, grant, index })
        };
        self.play(r, effect).await
    }

    async fn get(&self, r: Request<v1::GetRequest>) -> Answer<v1::GetResponse> {
        self.play(r, async |rules, m| Ok(rules.get(&m.resource))).await
    }

    async fn list(&self, r: Request<v1::ListRequest>) -> Answer<v1::ListResponse> {
        self.play(r, async |rules, m| Ok(rules.list(&m))).await
    }
}

#[tonic::async_trait]
impl Watch for Service {
    type WatchStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchResponse, Status>> + Send + 'static>>;

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Answer<Self::WatchStream> {
        Err(Status::unimplemented("real nodes are watched"))
    }

    async fn explain(&self, r: Request<v1::ExplainRequest>) -> Answer<v1::ExplainResponse> {
        self.play(r, async |rules, _| Ok(rules.explain())).await
    }
}

#[tonic::async_trait]
impl Cluster for Service {
    async fn status(&self, r: Request<v1::StatusRequest>) -> Answer<v1::StatusResponse> {
        self.play(r, async |rules, _| Ok(rules.status())).await
    }
}
