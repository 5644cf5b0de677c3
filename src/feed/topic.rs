//! What somebody watches.

use super::names_of;
use crate::locks::{Event, ResourceName};

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// All that happens, sessions included.
    Everything,
    /// All resources whose names begin so.
    Prefix(String),
    /// One resource.
    Resource(ResourceName),
}

impl Topic {
    /// Whether the resource is one of those.
    pub fn covers(&self, name: &ResourceName) -> bool {
        match self {
            Self::Everything => true,
            Self::Prefix(prefix) => name.as_str().starts_with(prefix.as_str()),
            Self::Resource(resource) => resource == name,
        }
    }

    /// Whether it belongs to what is watched: one name of a set is enough.
    pub fn includes(&self, event: &Event) -> bool {
        *self == Self::Everything || names_of(event).iter().any(|name| self.covers(name))
    }
}
