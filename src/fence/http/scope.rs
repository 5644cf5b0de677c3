//! Which fences a request needs, and those it brought.

use std::collections::BTreeSet;

use super::refusal::Refusal;
use crate::locks::{Fence, ResourceName};

/// What a request writes, told by its method, path and headers: the layer asks before it
/// looks at the fences, and lets a fence authorise no other resource than its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Nothing that is protected: it passes, with or without a fence, unchecked.
    Open,
    /// These resources. It must bring a fence of each and of no other.
    Writes(Vec<ResourceName>),
    /// Only the handler can tell, as from the message of a gRPC call: the fences are
    /// checked for what they name, and **the handler must compare**, by writing only what
    /// [`Fences::of`] gives it a fence for.
    HandlerCompares,
    /// Nothing that there is: it is answered 404.
    Unknown,
}

impl Scope {
    /// Writes the resource of this name; [`Self::Unknown`] if it is no name.
    pub fn writes(name: impl AsRef<str>) -> Self {
        ResourceName::new(name.as_ref()).map_or(Self::Unknown, |name| Self::Writes(vec![name]))
    }

    /// The refusal, where the fences are not exactly those that are needed.
    pub(super) fn agrees(needed: &[ResourceName], fences: &[Fence]) -> Result<(), Refusal> {
        let needed: BTreeSet<_> = needed.iter().collect();
        let brought: BTreeSet<_> = fences.iter().map(|fence| &fence.resource).collect();
        let missing = needed.difference(&brought).next();
        match missing.or_else(|| brought.difference(&needed).next()) {
            Some(resource) => Err(Refusal::OtherResource { resource: (*resource).clone() }),
            None => Ok(()),
        }
    }
}

/// The fences that a request brought, among its extensions. They are handed out by the name
/// of what is written, so that one is not used for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fences(Vec<Fence>);

impl Fences {
    pub(in crate::fence) fn new(fences: Vec<Fence>) -> Self {
        Self(fences)
    }

    /// The fence for a write to this resource.
    ///
    /// # Errors
    /// [`Refusal::OtherResource`] if the request brought none.
    pub fn of(&self, resource: &ResourceName) -> Result<&Fence, Refusal> {
        let found = self.0.iter().find(|fence| fence.resource == *resource);
        found.ok_or_else(|| Refusal::OtherResource { resource: resource.clone() })
    }
}
