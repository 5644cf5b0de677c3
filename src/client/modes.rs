//! Guards of the modes, and of sets. Each is a [`Guard`] that knows what more there is
//! to know.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::ClientError;
use super::guard::Guard;
use crate::locks::ResourceName;

/// How a grant is handed to the application; sealed.
pub trait Form: Send + 'static {
    /// Takes the form. The grant was made as it was asked for.
    #[doc(hidden)]
    fn form(guard: Guard) -> Self;
}

/// The guards: [`Guard`] itself (exclusive), [`SharedGuard`], [`SlotGuard`],
/// [`SetGuard`] and [`Leadership`](super::Leadership). Any of them can be turned into
/// a plain [`Guard`] by those who treat all alike. Sealed.
pub trait Hold: Form + Into<Guard> + fmt::Debug {}

impl Form for Guard {
    fn form(guard: Guard) -> Self {
        guard
    }
}

impl Hold for Guard {}

/// A guard of its own kind that is a [`Guard`] too.
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[must_use = "a guard that is dropped is released"]
        pub struct $name(Guard);

        impl $name {
            /// As [`Guard::release`].
            ///
            /// # Errors
            /// See [`Guard::release_within`].
            pub async fn release(self) -> Result<(), ClientError> {
                self.0.release().await
            }

            /// As [`Guard::release_within`].
            ///
            /// # Errors
            /// See [`Guard::release_within`].
            pub async fn release_within(self, within: Duration) -> Result<(), ClientError> {
                self.0.release_within(within).await
            }
        }

        impl Form for $name {
            fn form(guard: Guard) -> Self {
                Self(guard)
            }
        }

        impl Hold for $name {}

        impl Deref for $name {
            type Target = Guard;

            fn deref(&self) -> &Guard {
                &self.0
            }
        }

        impl From<$name> for Guard {
            fn from(guard: $name) -> Self {
                guard.0
            }
        }
    };
}
pub(super) use guard;

guard! {
    /// Authority that many may have at once, while nobody has it exclusively. A holder
    /// that only reads raises its fence once before the first read, if it relies on
    /// nobody writing.
    SharedGuard
}

guard! {
    /// Authority over one numbered slot of a resource. Its fence names the slot: the
    /// destination refuses the slot's former holder, and leaves the other slots alone.
    SlotGuard
}

guard! {
    /// Authority over several resources, granted and given back together, under one
    /// token.
    SetGuard
}

impl SlotGuard {
    /// The slot, from 0.
    pub fn slot(&self) -> u32 {
        self.fence().slot.expect("an answer without a slot was refused as malformed")
    }
}

impl SetGuard {
    /// What is held, in the order of names; [`Guard::fences`] has a fence for each.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &ResourceName> {
        self.fences().iter().map(|fence| &fence.resource)
    }
}
