//! Destinations behind HTTP: fences in request headers, and a tower layer that checks them.
//!
//! | the handler writes | layer |
//! | --- | --- |
//! | to the store that holds the marks | [`FenceLayer::parsing`]: it checks in its own transaction |
//! | elsewhere | [`FenceLayer::holding`]: a [`MarkStore`](crate::fence::hold::MarkStore) is held meanwhile |
//! | elsewhere, and nothing can keep a mark | [`FenceLayer::asking`]: no fence |
//!
//! Prefer the first: there the check and the write are one transaction. In the second they
//! are two stores, and what keeps a stale write out is that a raise waits until the handler
//! is done: see [`crate::fence::hold`] for what that means for a handler that is cut off.
//!
//! The headers and answers are section 10 of docs/fence-spec.md.

mod body;
mod gate;
mod headers;
mod layer;
mod percent;
mod problem;
mod protocol;
mod refusal;
mod scope;
mod target;

pub use self::body::Body;
pub use self::gate::{Asking, Gate, Holding, Marks, Nothing, Parsing};
pub use self::headers::{CLUSTER, FENCES, FENCES_MAX, FLOOR, RESOURCE, SLOT, TOKEN};
pub use self::headers::{headers, insert};
pub use self::layer::{FenceLayer, Fenced};
pub use self::problem::{PROBLEM, PROBLEM_JSON, problem, read_problem, refused};
pub use self::protocol::{Errand, Own, Plain, Protocol, WELL_KNOWN};
pub use self::refusal::Refusal;
pub use self::scope::{Fences, Scope};
pub use self::target::{NoTarget, Target};

#[cfg(feature = "grpc")]
pub(in crate::fence) use self::headers::parse;
