//! A point on one node's monotonic clock, as a plain number: time is an argument.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since an arbitrary origin of one clock of one process. Moments of
/// different nodes, or of one node before and after a restart, do not compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// The point that lies so many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point that lies `duration` later, or the last there is.
    #[must_use]
    pub const fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// How long after `earlier` this is; zero if it is before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This much earlier, or the clock's origin.
    #[must_use]
    pub const fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        self.plus(by)
    }
}

/// Whole nanoseconds; saturates after 584 years.
#[allow(clippy::cast_possible_truncation, reason = "checked just before")]
const fn nanos(of: Duration) -> u64 {
    let nanos = of.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}
