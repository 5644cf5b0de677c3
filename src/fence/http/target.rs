//! A destination behind HTTP, as strict handoff sees it.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::{Scheme, Uri};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::headers::insert;
use super::problem::read_problem;
use super::protocol::{RAISED, WELL_KNOWN};
use crate::fence::target::answered;
use crate::fence::{FenceError, FenceTarget, Raising};
use crate::locks::Fence;

/// The longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A service behind [`super::FenceLayer::holding`], raised with `POST` to
/// [`WELL_KNOWN`]. Each raise has a connection of its own, in plain HTTP/1.1: on one
/// machine or by a tunnel. Elsewhere make the request with a client that speaks TLS
/// ([`super::insert`], [`super::read_problem`]), in a [`crate::fence::target()`].
#[derive(Debug, Clone)]
pub struct Target {
    name: String,
    address: String,
}

/// Not a place that a [`Target`] can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoTarget(String);

impl Target {
    /// The service at `http://host:port`, without a path: it answers at the top.
    ///
    /// # Errors
    /// [`NoTarget`] for anything else, `https` and passwords included.
    pub fn new(url: &str) -> Result<Self, NoTarget> {
        let no = || NoTarget(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| no())?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or_else(no)?;
        if uri.scheme() != Some(&Scheme::HTTP) || !matches!(uri.path(), "" | "/") {
            return Err(no());
        }
        let port = authority.port_u16().unwrap_or(80);
        let address = format!("{}:{port}", authority.host());
        Ok(Self { name: format!("http://{authority}"), address })
    }

    async fn post(&self, fences: &[Fence]) -> Result<(), FenceError> {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(WELL_KNOWN);
        insert(request.headers_mut(), fences)?;
        let host = HeaderValue::from_str(&self.address).map_err(store)?;
        request.headers_mut().insert(HOST, host);

        let stream = TcpStream::connect(&self.address).await.map_err(store)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(store)?;
        let answer = async {
            let (parts, body) = sender.send_request(request).await.map_err(store)?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let bytes = body.map_err(FenceError::Store)?.to_bytes();
            match read_problem(parts.status, &bytes, fences) {
                Some(refused) => Err(refused),
                None if parts.status == StatusCode::NO_CONTENT
                    && parts.headers.get(RAISED).is_some_and(|raised| raised == "?1") =>
                {
                    Ok(())
                }
                // Many a server answers well to what it does not know.
                None => Err(FenceError::Store("no layer that holds marks answers there".into())),
            }
        };
        beside(connection, answer).await
    }
}

impl FenceTarget for Target {
    fn name(&self) -> &str {
        &self.name
    }

    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a> {
        Box::pin(answered(within, self.post(fences)))
    }
}

/// Drives the connection for as long as the answer takes, and not longer.
async fn beside<T>(connection: impl Future, answer: impl Future<Output = T>) -> T {
    let driven = async {
        connection.await;
        // The answer hears of it by itself.
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = driven => never,
    }
}

fn store(error: impl Error + Send + Sync + 'static) -> FenceError {
    FenceError::Store(Box::new(error))
}

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not of the form http://host:port", self.0)
    }
}

impl Error for NoTarget {}
