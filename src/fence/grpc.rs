//! Destinations behind gRPC: fences in request metadata, under the names of the headers of
//! [`super::http`], and the same layer with gRPC's statuses.
//!
//! | | |
//! | --- | --- |
//! | client | [`Fencing`], an interceptor; [`insert`] for one request |
//! | server, handler checks in its own transaction | [`parse`], an interceptor, then [`status`] |
//! | server, handler writes elsewhere | [`FenceLayer::grpc`](super::http::FenceLayer::grpc) around the whole server |
//!
//! A refusal is a status with a `google.rpc.ErrorInfo`: domain `ringfence`, a reason such as
//! `STALE_FENCE`, and the members that HTTP's problem has as metadata.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::service::Interceptor;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::{ErrorDetails, StatusExt};

use super::http::{self as plain, Errand, FenceLayer, Fenced, Fences, Own, Protocol, Refusal};
use super::target::answered;
use super::{FenceError, FenceTarget, Raising};
use crate::locks::{ClusterId, Fence, ResourceName, Token};
use crate::wire::reason::{DOMAIN, key};

/// The method by which marks are raised: an empty message under the metadata of a write,
/// answered by an empty one.
pub const RAISE: &str = "/ringfence.fence.v1.Fence/Raise";

/// gRPC's statuses.
#[derive(Debug, Clone, Copy)]
pub struct OverGrpc;

impl<G, F> FenceLayer<G, F> {
    /// The same layer, for a gRPC server: it refuses with statuses and, if it holds marks,
    /// serves [`RAISE`]. A call's message is not read before its handler is called: where
    /// only that names the resource, the scope is [`plain::Scope::HandlerCompares`].
    #[must_use]
    pub fn grpc(self) -> FenceLayer<G, F, OverGrpc> {
        self.speaking()
    }
}

impl<S: NamedService, G, F> NamedService for Fenced<S, G, F, OverGrpc> {
    const NAME: &'static str = S::NAME;
}

/// Puts the fences of one grant into the metadata of every call.
#[derive(Debug, Clone)]
pub struct Fencing {
    headers: HeaderMap,
}

impl Fencing {
    /// Calls under these fences.
    ///
    /// # Errors
    /// [`FenceError::Set`], as [`plain::insert`].
    pub fn new(fences: &[Fence]) -> Result<Self, FenceError> {
        let mut headers = HeaderMap::new();
        plain::insert(&mut headers, fences)?;
        Ok(Self { headers })
    }
}

impl Interceptor for Fencing {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        put(request.metadata_mut(), self.headers.clone());
        Ok(request)
    }
}

/// Puts the fences of a write into the metadata of its request, instead of those there.
///
/// # Errors
/// [`FenceError::Set`], as [`plain::insert`].
pub fn insert<T>(request: &mut Request<T>, fences: &[Fence]) -> Result<(), FenceError> {
    let fencing = Fencing::new(fences)?;
    put(request.metadata_mut(), fencing.headers);
    Ok(())
}

fn put(metadata: &mut MetadataMap, fencing: HeaderMap) {
    let mut headers = std::mem::take(metadata).into_headers();
    for name in [plain::RESOURCE, plain::TOKEN, plain::FLOOR, plain::SLOT, plain::CLUSTER] {
        headers.remove(name);
    }
    headers.remove(plain::FENCES);
    headers.extend(fencing);
    *metadata = MetadataMap::from_headers(headers);
}

/// An interceptor for a service whose handlers check fences in their own transactions:
/// reads the fences into the request's extensions ([`Fences`]). They are **not checked**.
///
/// # Errors
/// `INVALID_ARGUMENT` for a missing or malformed fence.
pub fn parse(mut request: Request<()>) -> Result<Request<()>, Status> {
    // A copy of the map is what the type gives away; calls have few headers.
    let headers = request.metadata().clone().into_headers();
    let fences = plain::parse(&headers).map_err(|refusal| refused(&refusal))?;
    request.extensions_mut().insert(Fences::new(fences));
    Ok(request)
}

/// The status of a handler that checks fences in its own transaction and was refused. An
/// error of its store is an unknown outcome: it may be the commit that failed.
pub fn status(error: FenceError) -> Status {
    let refusal = Refusal::of_handler(error);
    refusal.log();
    refused(&refusal)
}

/// The status of any refusal, such as that of [`Fences::of`].
pub fn refused(refusal: &Refusal) -> Status {
    let told = refusal.told();
    let mut metadata = HashMap::new();
    let mut put = |name: &str, value: String| metadata.insert(name.to_owned(), value);
    match refusal {
        Refusal::Fence(FenceError::Stale { resource, token, mark, slot }) => {
            put(key::RESOURCE, resource.to_string());
            put(key::TOKEN, token.to_string());
            put(key::MARK, mark.to_string());
            if let Some(slot) = slot {
                put(SLOT, slot.to_string());
            }
        }
        Refusal::Fence(FenceError::ForeignCluster { resource, known, offered }) => {
            put(key::RESOURCE, resource.to_string());
            put(KNOWN, known.to_string());
            put(OFFERED, offered.to_string());
        }
        Refusal::NotCurrent { resource, token } => {
            put(key::RESOURCE, resource.to_string());
            put(key::TOKEN, token.to_string());
        }
        Refusal::OtherResource { resource } => {
            put(key::RESOURCE, resource.to_string());
        }
        Refusal::Missing { header } | Refusal::Malformed { header, .. } => {
            put(key::FIELD, header.to_string());
        }
        Refusal::Fence(_)
        | Refusal::NoSuchResource
        | Refusal::StoreFailed(_)
        | Refusal::Unanswered(_)
        | Refusal::CutOff
        | Refusal::OutcomeUnknown(_) => {}
    }
    let reason = told.word.to_ascii_uppercase().replace('-', "_");
    let details = ErrorDetails::with_error_info(reason, DOMAIN, metadata);
    let message = format!("{}: {}", told.title, refusal.detail());
    Status::with_error_details(told.code, message, details)
}

/// Further names of metadata.
const SLOT: &str = "slot";
const KNOWN: &str = "known";
const OFFERED: &str = "offered";

/// What the status of a destination that refused says, read by its client; none if it is
/// none of a fence. An unknown outcome is [`FenceError::Store`].
pub fn read_status(status: &Status) -> Option<FenceError> {
    let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN)?;
    let said = |name: &str| info.metadata.get(name).map(String::as_str);
    let resource = || ResourceName::new(said(key::RESOURCE)?).ok();
    let token = |name: &str| Token::new(said(name)?.parse().ok()?).ok();
    let cluster = |name: &str| ClusterId::from_hex(said(name)?).ok();
    let other = || status.message().to_owned().into();
    Some(match info.reason.as_str() {
        "STALE_FENCE" => FenceError::Stale {
            resource: resource()?,
            token: token(key::TOKEN)?,
            mark: token(key::MARK)?,
            slot: said(SLOT).and_then(|slot| slot.parse().ok()),
        },
        "FOREIGN_AUTHORITY" => FenceError::ForeignCluster {
            resource: resource()?,
            known: cluster(KNOWN)?,
            offered: cluster(OFFERED)?,
        },
        "BUSY" | "STORE_FAILED" | "AUTHORITY_SILENT" => FenceError::Busy(other()),
        _ => FenceError::Store(other()),
    })
}

impl Protocol for OverGrpc {
    fn errand(parts: &Parts) -> Option<Errand> {
        let raise = parts.method == Method::POST && parts.uri.path() == RAISE;
        raise.then_some(Errand::Raise)
    }

    fn refuse(refusal: &Refusal) -> Response<Own> {
        refused(refusal).into_http::<()>().map(|()| (Bytes::new(), None))
    }

    fn raised() -> Response<Own> {
        /// Not compressed, and no byte long.
        const EMPTY_MESSAGE: &[u8] = &[0; 5];
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        let mut response = Response::new((Bytes::from_static(EMPTY_MESSAGE), Some(trailers)));
        let media = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(http::header::CONTENT_TYPE, media);
        response
    }

    /// Marks are not read over gRPC: [`Self::errand`] never says so.
    fn mark(_: &ResourceName, _: Option<u32>, _: Option<Token>) -> Response<Own> {
        Self::refuse(&Refusal::NoSuchResource)
    }
}

/// A gRPC server behind [`FenceLayer::grpc`] that holds marks, raised with [`RAISE`].
#[derive(Debug, Clone)]
pub struct Target {
    name: String,
    channel: Channel,
}

impl Target {
    /// The server at this endpoint, which is connected to when it is needed. Encryption and
    /// credentials are the endpoint's. To be made inside a runtime.
    pub fn new(endpoint: &Endpoint) -> Self {
        let uri = endpoint.uri();
        let host = uri.authority().map_or_else(String::new, |authority| {
            authority.as_str().rsplit('@').next().unwrap_or_default().to_owned()
        });
        Self { name: format!("grpc://{host}"), channel: endpoint.connect_lazy() }
    }

    async fn call(&self, fences: &[Fence]) -> Result<(), FenceError> {
        let mut request = Request::new(());
        insert(&mut request, fences)?;
        let mut grpc = Grpc::new(self.channel.clone());
        let failed = |error| FenceError::Store(Box::new(error));
        grpc.ready().await.map_err(failed)?;
        let path = PathAndQuery::from_static(RAISE);
        let answer = grpc.unary(request, path, ProstCodec::<(), ()>::default()).await;
        let read = |status: Status| read_status(&status).unwrap_or_else(|| of_no_fence(status));
        answer.map(drop).map_err(read)
    }
}

fn of_no_fence(status: Status) -> FenceError {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            FenceError::Busy(Box::new(status))
        }
        _ => FenceError::Store(Box::new(status)),
    }
}

impl FenceTarget for Target {
    fn name(&self) -> &str {
        &self.name
    }

    fn raise<'a>(&'a self, fences: &'a [Fence], within: Duration) -> Raising<'a> {
        Box::pin(answered(within, self.call(fences)))
    }
}
