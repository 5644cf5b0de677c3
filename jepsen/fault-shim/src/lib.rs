//! Placeholder of the preload library.
