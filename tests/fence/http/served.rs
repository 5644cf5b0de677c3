//! A service behind the layer, on a real socket, and a caller on another.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use ringfence::fence::Fence;
use ringfence::fence::http::{Body, insert};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tower_layer::Layer;
use tower_service::Service;

use crate::vectors::PATIENCE;

pub type Answer = Response<BoxBody<Bytes, Infallible>>;
type Answering<T> = Pin<Box<dyn Future<Output = Result<T, Infallible>> + Send>>;

/// What stands behind the layer.
#[derive(Clone)]
pub struct Handler(Arc<dyn Fn(Request<Incoming>) -> Answering<Answer> + Send + Sync>);

impl Handler {
    pub fn new<A>(handle: impl Fn(Request<Incoming>) -> A + Send + Sync + 'static) -> Self
    where
        A: Future<Output = Answer> + Send + 'static,
    {
        Self(Arc::new(move |request| {
            let answer = handle(request);
            Box::pin(async move { Ok(answer.await) })
        }))
    }
}

impl Service<Request<Incoming>> for Handler {
    type Response = Answer;
    type Error = Infallible;
    type Future = Answering<Answer>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        (self.0)(request)
    }
}

/// A short answer.
pub fn said(text: impl Into<Bytes>) -> Answer {
    Response::new(Full::new(text.into()).boxed())
}

/// A server on a free port and on threads of its own; gone when dropped.
pub struct Server {
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Server {
    pub fn start<L>(layer: L, handler: Handler) -> Self
    where
        L: Layer<Handler>,
        L::Service: Service<
                Request<Incoming>,
                Response = Response<Body<BoxBody<Bytes, Infallible>>>,
                Error = Infallible,
                Future = Answering<Response<Body<BoxBody<Bytes, Infallible>>>>,
            > + Clone
            + Send
            + 'static,
    {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it is a socket");
        let address = listener.local_addr().expect("it is bound");
        let service = TowerToHyperService::new(layer.layer(handler));
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("it does not block");
            while let Ok((stream, _)) = listener.accept().await {
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service.clone());
                // What becomes of a connection is its caller's to see.
                tokio::spawn(async move { drop(served.await) });
            }
        });
        Self { address, runtime: Some(runtime) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One connection to a server.
pub struct Caller(SendRequest<Full<Bytes>>);

/// What came back, read to its end.
pub struct Heard {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Heard {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).expect("it is JSON")
    }

    /// The last word of the problem's type.
    pub fn problem(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let (said, prefix) = (self.json(), "urn:ringfence:problem:");
        assert_eq!(said["status"], self.status.as_u16());
        let word = said["type"].as_str().and_then(|word| word.strip_prefix(prefix));
        word.expect("a problem of ours").to_owned()
    }
}

impl Caller {
    pub async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        // What becomes of it is seen by the calls.
        tokio::spawn(async move { drop(connection.await) });
        Self(sender)
    }

    pub async fn call(
        &mut self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: &str,
    ) -> hyper::Result<Heard> {
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        *request.headers_mut() = headers;
        request.headers_mut().insert("host", "destination".parse().expect("a name"));
        let called = async {
            self.0.ready().await?;
            let (parts, body) = self.0.send_request(request).await?.into_parts();
            let bytes = body.collect().await?.to_bytes();
            Ok(Heard { status: parts.status, headers: parts.headers, bytes })
        };
        tokio::time::timeout(PATIENCE, called).await.expect("it answers")
    }

    /// A write under these fences.
    pub async fn write(&mut self, path: &str, fences: &[Fence]) -> Heard {
        let mut headers = HeaderMap::new();
        insert(&mut headers, fences).expect("a set");
        self.call(Method::POST, path, headers, "").await.expect("it is served")
    }
}
