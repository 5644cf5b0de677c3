//! Refusals as problem details, RFC 9457, and back.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::{Map, Value, json};

use super::refusal::Refusal;
use crate::fence::FenceError;
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// Before the word of a problem's type. The words are section 10 of docs/fence-spec.md.
pub const PROBLEM: &str = "urn:ringfence:problem:";

/// The media type of an answer that refuses.
pub const PROBLEM_JSON: &str = "application/problem+json";

const RETRY: &str = "1";

/// The answer of a handler that checks fences in its own transaction and was refused.
/// Other than in the layer's answers, [`FenceError::Store`] is an unknown outcome here: it
/// may be the commit that failed.
pub fn problem(error: FenceError) -> Response<Full<Bytes>> {
    let refusal = Refusal::of_handler(error);
    refusal.log();
    let (parts, bytes) = answer(&refusal).into_parts();
    Response::from_parts(parts, Full::new(bytes))
}

/// The same of any refusal, such as that of [`super::Fences::of`].
pub fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let (parts, bytes) = answer(refusal).into_parts();
    Response::from_parts(parts, Full::new(bytes))
}

pub(super) fn answer(refusal: &Refusal) -> Response<Bytes> {
    let told = refusal.told();
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("type", format!("{PROBLEM}{}", told.word).into());
    put("title", told.title.into());
    put("status", told.status.as_u16().into());
    put("detail", refusal.detail().into());
    if let Some(applied) = told.applied {
        put("applied", applied.into());
    }
    for (name, value) in members_of(refusal) {
        put(name, value);
    }
    let bytes = Bytes::from(Value::Object(members).to_string());
    let mut response = json_answer(told.status, PROBLEM_JSON, bytes);
    if told.status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY));
    }
    response
}

pub(super) fn json_answer(
    status: StatusCode,
    media: &'static str,
    bytes: Bytes,
) -> Response<Bytes> {
    let mut response = Response::new(bytes);
    *response.status_mut() = status;
    let mut put = |name: HeaderName, value| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    put(CONTENT_TYPE, media);
    // What a mark is, or whether a token is stale, is true for a moment.
    put(CACHE_CONTROL, "no-store");
    response
}

fn members_of(refusal: &Refusal) -> Vec<(&'static str, Value)> {
    match refusal {
        Refusal::Missing { header } | Refusal::Malformed { header, .. } => {
            vec![("header", json!(header.as_str()))]
        }
        Refusal::OtherResource { resource } => vec![("resource", json!(resource.as_str()))],
        Refusal::NotCurrent { resource, token } => {
            vec![("resource", json!(resource.as_str())), ("token", json!(token.get()))]
        }
        Refusal::Fence(FenceError::Stale { resource, token, mark, slot }) => vec![
            ("resource", json!(resource.as_str())),
            ("token", json!(token.get())),
            ("mark", json!(mark.get())),
            ("slot", json!(slot)),
        ],
        Refusal::Fence(FenceError::ForeignCluster { resource, known, offered }) => vec![
            ("resource", json!(resource.as_str())),
            ("known", json!(known.to_string())),
            ("offered", json!(offered.to_string())),
        ],
        Refusal::Fence(_)
        | Refusal::NoSuchResource
        | Refusal::StoreFailed(_)
        | Refusal::Unanswered(_)
        | Refusal::CutOff
        | Refusal::OutcomeUnknown(_) => Vec::new(),
    }
}

/// What a destination that refused `fences` says, read by its client. None for a status of
/// success. Where the answer is none of ours, or the outcome is unknown, it is
/// [`FenceError::Store`]; where the authority or the mark's store is to be asked again,
/// [`FenceError::Busy`].
pub fn read_problem(status: StatusCode, body: &[u8], fences: &[Fence]) -> Option<FenceError> {
    if status.is_success() {
        return None;
    }
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let word = said["type"].as_str().and_then(|of| of.strip_prefix(PROBLEM)).unwrap_or_default();
    let read = match word {
        "stale-fence" => stale(&said),
        "foreign-authority" => foreign(&said),
        "malformed-fence" => floor_above_token(fences),
        "busy" | "store-failed" | "authority-silent" => {
            Some(FenceError::Busy(what(status, &said).into()))
        }
        _ => None,
    };
    Some(read.unwrap_or_else(|| FenceError::Store(what(status, &said).into())))
}

fn what(status: StatusCode, said: &Value) -> String {
    let part = |name: &str| said[name].as_str().unwrap_or("nothing").to_owned();
    format!("the destination answers {status}: {}: {}", part("title"), part("detail"))
}

fn stale(said: &Value) -> Option<FenceError> {
    Some(FenceError::Stale {
        resource: resource(said)?,
        token: token(&said["token"])?,
        mark: token(&said["mark"])?,
        slot: said["slot"].as_u64().and_then(|slot| slot.try_into().ok()),
    })
}

fn foreign(said: &Value) -> Option<FenceError> {
    let cluster = |name: &str| ClusterId::from_hex(said[name].as_str()?).ok();
    Some(FenceError::ForeignCluster {
        resource: resource(said)?,
        known: cluster("known")?,
        offered: cluster("offered")?,
    })
}

fn floor_above_token(fences: &[Fence]) -> Option<FenceError> {
    let above = fences.iter().find(|fence| fence.floor > fence.token)?;
    Some(FenceError::FloorAboveToken {
        resource: above.resource.clone(),
        token: above.token,
        floor: above.floor,
    })
}

fn resource(said: &Value) -> Option<ResourceName> {
    ResourceName::new(said["resource"].as_str()?).ok()
}

fn token(number: &Value) -> Option<Token> {
    Token::new(number.as_u64()?).ok()
}
