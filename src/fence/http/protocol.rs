//! How the layer answers in its own name.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::json;

use super::problem::{answer, json_answer};
use super::refusal::Refusal;
use crate::locks::{ResourceName, Token};

/// Where marks are raised (`POST`) and read (`GET`), by the same headers that a write has.
pub const WELL_KNOWN: &str = "/.well-known/ringfence/fence";

/// The bytes and the trailers of an answer.
pub type Own = (Bytes, Option<HeaderMap>);

/// What the layer does itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Raises the marks of the fences that the request brings.
    Raise,
    /// Tells the mark of the resource, or of its slot, that the request names.
    Mark,
}

/// A protocol on top of HTTP: [`Plain`], and gRPC.
pub trait Protocol: Send + Sync + 'static {
    /// What the layer is asked to do itself, if anything.
    fn errand(parts: &Parts) -> Option<Errand>;
    /// An answer that refuses.
    fn refuse(refusal: &Refusal) -> Response<Own>;
    /// The answer to a raise.
    fn raised() -> Response<Own>;
    /// The answer to a question for a mark.
    fn mark(resource: &ResourceName, slot: Option<u32>, mark: Option<Token>) -> Response<Own>;
}

/// HTTP with statuses and problem details.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Protocol for Plain {
    fn errand(parts: &Parts) -> Option<Errand> {
        match (&parts.method, parts.uri.path()) {
            (&Method::POST, WELL_KNOWN) => Some(Errand::Raise),
            (&Method::GET, WELL_KNOWN) => Some(Errand::Mark),
            _ => None,
        }
    }

    fn refuse(refusal: &Refusal) -> Response<Own> {
        answer(refusal).map(|bytes| (bytes, None))
    }

    fn raised() -> Response<Own> {
        let mut response = Response::new((Bytes::new(), None));
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    }

    fn mark(resource: &ResourceName, slot: Option<u32>, mark: Option<Token>) -> Response<Own> {
        let mark = mark.map(Token::get);
        let said = json!({ "resource": resource.as_str(), "slot": slot, "mark": mark });
        let bytes = Bytes::from(said.to_string());
        json_answer(StatusCode::OK, "application/json", bytes).map(|bytes| (bytes, None))
    }
}
