//! The tower layer.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::body::{Body, Hold};
use super::gate::{Asking, Gate, Holding, Marks, Parsing};
use super::headers::{parse, parse_asked};
use super::protocol::{Errand, Plain, Protocol};
use super::refusal::Refusal;
use super::scope::{Fences, Scope};
use crate::fence::hold::MarkStore;
use crate::fence::validation::{AskAuthority, Validator};

/// Puts a check of fences before a service. What a request writes is told by `scope`; a
/// request without the fences for it does not reach the service.
///
/// A fence is no credential: it says who is late, not who may. Whoever reaches the layer
/// can raise any mark to any token, so put authentication around it.
pub struct FenceLayer<G, F, P = Plain> {
    gate: Arc<G>,
    scope: Arc<F>,
    protocol: PhantomData<P>,
}

/// A service behind a [`FenceLayer`].
pub struct Fenced<S, G, F, P = Plain> {
    inner: S,
    gate: Arc<G>,
    scope: Arc<F>,
    protocol: PhantomData<P>,
}

impl<F> FenceLayer<Parsing, F>
where
    F: Fn(&Parts) -> Scope,
{
    /// Reads the fences and puts them among the request's extensions ([`Fences`]). They are
    /// **not checked**: the handler does so in the transaction that writes, with one of the
    /// adapters, and answers a refusal with [`super::problem()`].
    pub fn parsing(scope: F) -> Self {
        Self::new(Parsing, scope)
    }
}

impl<S, F> FenceLayer<Holding<S>, F>
where
    S: MarkStore,
    F: Fn(&Parts) -> Scope,
{
    /// Checks the fences and holds their marks while the service serves the request, up to
    /// the last byte of its answer, for writes that go where the marks are not. Serves
    /// raises and reads of marks too: see [`super::WELL_KNOWN`].
    ///
    /// A request that is not served after `bound` (the session's ttl is a good one) is
    /// dropped where it stands, and only then are its marks let go; so it is when its
    /// client goes away. A write that the handler has sent elsewhere by then is not called
    /// back, nor is a task that it has spawned: after that the mark protects against them
    /// no more. Let the handler await what it starts, and give its own calls less time.
    pub fn holding(store: S, bound: Duration, scope: F) -> Self {
        Self::new(Holding::new(store, bound), scope)
    }

    /// How long a request or a raise waits for its marks: 10 s if nothing is said.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { gate: Arc::new(self.gate.waiting(wait)), ..self }
    }
}

impl<A, F> FenceLayer<Asking<A>, F>
where
    A: AskAuthority,
    F: Fn(&Parts) -> Scope,
{
    /// **No fence**: asks the authority whether the grant is current, and lets the request
    /// through if it was. A request that is paused after that writes all the same.
    pub fn asking(validator: Validator<A>, scope: F) -> Self {
        Self::new(Asking(validator), scope)
    }
}

impl<G, F, P> FenceLayer<G, F, P> {
    fn new(gate: G, scope: F) -> Self {
        Self { gate: Arc::new(gate), scope: Arc::new(scope), protocol: PhantomData }
    }

    /// The same, answering in another protocol.
    #[cfg(feature = "grpc")]
    pub(in crate::fence) fn speaking<Q>(self) -> FenceLayer<G, F, Q> {
        FenceLayer { gate: self.gate, scope: self.scope, protocol: PhantomData }
    }
}

impl<G, F, P> Clone for FenceLayer<G, F, P> {
    fn clone(&self) -> Self {
        let (gate, scope) = (Arc::clone(&self.gate), Arc::clone(&self.scope));
        Self { gate, scope, protocol: PhantomData }
    }
}

impl<S: Clone, G, F, P> Clone for Fenced<S, G, F, P> {
    fn clone(&self) -> Self {
        let (gate, scope) = (Arc::clone(&self.gate), Arc::clone(&self.scope));
        Self { inner: self.inner.clone(), gate, scope, protocol: PhantomData }
    }
}

impl<S, G, F, P> Layer<S> for FenceLayer<G, F, P> {
    type Service = Fenced<S, G, F, P>;

    fn layer(&self, inner: S) -> Self::Service {
        let (gate, scope) = (Arc::clone(&self.gate), Arc::clone(&self.scope));
        Fenced { inner, gate, scope, protocol: PhantomData }
    }
}

impl<S, G, F, P, B, R> Service<Request<B>> for Fenced<S, G, F, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    G: Gate,
    F: Fn(&Parts) -> Scope + Send + Sync + 'static,
    P: Protocol,
    B: Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled to be ready serves; its copy may not be.
        let copy = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, copy);
        let (gate, scope) = (Arc::clone(&self.gate), Arc::clone(&self.scope));
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            if let Some((errand, marks)) = P::errand(&parts).zip(gate.marks()) {
                let answer = run::<P>(errand, &parts, marks).await;
                return Ok(answer.unwrap_or_else(|refusal| refuse::<P>(&refusal)).map(own));
            }
            match admitted(&*gate, &*scope, &mut parts).await {
                Err(refusal) => Ok(refuse::<P>(&refusal).map(own)),
                Ok(hold) => {
                    serve::<S, B, R, P>(inner, Request::from_parts(parts, body), hold).await
                }
            }
        })
    }
}

/// What a request has to hold while it is served; none if it needs no fence.
async fn admitted<G: Gate>(
    gate: &G,
    scope: &(impl Fn(&Parts) -> Scope + Sync),
    parts: &mut Parts,
) -> Result<Option<Hold>, Refusal> {
    let fences = match scope(parts) {
        Scope::Open => return Ok(None),
        Scope::Unknown => return Err(Refusal::NoSuchResource),
        Scope::HandlerCompares => parse(&parts.headers)?,
        Scope::Writes(needed) => {
            let fences = parse(&parts.headers)?;
            Scope::agrees(&needed, &fences)?;
            fences
        }
    };
    let held = gate.admit(&fences).await?;
    parts.extensions.insert(Fences::new(fences));
    Ok(Some(Hold::new(held, gate.bound().map(tokio::time::sleep))))
}

async fn serve<S, B, R, P>(
    mut inner: S,
    request: Request<B>,
    hold: Option<Hold>,
) -> Result<Response<Body<R>>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    P: Protocol,
    R: http_body::Body<Data = Bytes>,
{
    let Some(mut hold) = hold else {
        return Ok(inner.call(request).await?.map(|body| Body::served(body, None)));
    };
    // Declared after the hold, so it is dropped before it, however this ends.
    let mut serving = Box::pin(inner.call(request));
    let served = tokio::select! {
        biased;
        () = std::future::poll_fn(|cx| hold.poll_over(cx)) => None,
        served = &mut serving => Some(served?),
    };
    drop(serving);
    Ok(match served {
        Some(response) => response.map(|body| Body::served(body, Some(hold))),
        None => refuse::<P>(&Refusal::CutOff).map(own),
    })
}

async fn run<P: Protocol>(
    errand: Errand,
    parts: &Parts,
    marks: &dyn Marks,
) -> Result<Response<super::protocol::Own>, Refusal> {
    match errand {
        Errand::Raise => {
            marks.raise(&parse(&parts.headers)?).await?;
            Ok(P::raised())
        }
        Errand::Mark => {
            let (resource, slot) = parse_asked(&parts.headers)?;
            Ok(P::mark(&resource, slot, marks.mark(&resource, slot).await?))
        }
    }
}

fn refuse<P: Protocol>(refusal: &Refusal) -> Response<super::protocol::Own> {
    refusal.log();
    P::refuse(refusal)
}

fn own<R: http_body::Body>((bytes, trailers): super::protocol::Own) -> Body<R> {
    Body::own(bytes, trailers)
}
