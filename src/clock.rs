//! The only reader of clocks. Everything else is handed a point in time, so
//! that it can be tested and simulated with any.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

pub use crate::leases::Moment;

/// A point on this machine's `CLOCK_BOOTTIME`, which also counts suspend:
/// nanoseconds since an origin that only this boot knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootMoment(u64);

impl Moment {
    /// Reads `CLOCK_MONOTONIC`, which stands still in suspend.
    pub fn now() -> Self {
        Self(read(ClockId::Monotonic))
    }
}

impl BootMoment {
    /// Reads the clock.
    pub fn now() -> Self {
        Self(read(COUNTS_SUSPEND))
    }

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
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The point that lies `duration` earlier, or the origin.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(target_os = "linux")]
const COUNTS_SUSPEND: ClockId = ClockId::Boottime;
/// Elsewhere this clock may stand still in suspend: as after a stop by a
/// hypervisor, only the token protects then.
#[cfg(not(target_os = "linux"))]
const COUNTS_SUSPEND: ClockId = ClockId::Monotonic;

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Now, for tokio's timers, which count on a clock of their own.
pub fn timer() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Wall-clock time in whole seconds since 1970, for display and for the token
/// floor of a restore. No deadline may depend on it.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_stops_at_both_ends() {
        let early = BootMoment::from_nanos(5);
        assert_eq!(early.minus(Duration::from_secs(1)), BootMoment::from_nanos(0));
        assert_eq!(early.plus(Duration::MAX), BootMoment::from_nanos(u64::MAX));
        assert_eq!(early.since(BootMoment::from_nanos(9)), Duration::ZERO);
        assert_eq!(BootMoment::from_nanos(9).since(early), Duration::from_nanos(4));
    }

    #[test]
    fn neither_clock_goes_back() {
        let (monotonic, boot) = (Moment::now(), BootMoment::now());
        assert!(monotonic > Moment::default() && boot > BootMoment::default());
        assert!(Moment::now() >= monotonic);
        assert!(BootMoment::now() >= boot);
    }
}
