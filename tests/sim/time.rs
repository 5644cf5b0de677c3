//! True time, and the clocks that run beside it.

use std::time::Duration;

use ringfence::leases::Moment;
use ringfence::locks::Millis;

/// Microseconds of true time since the run began. Only the world and the checkers
/// know it; nodes and clients have a [`Clock`].
pub type Micros = u64;

pub const MS: Micros = 1000;
const MILLION: u64 = 1_000_000;

/// A clock with an origin of its own that runs up to 0.4 % fast or slow.
#[derive(Clone, Copy)]
pub struct Clock {
    origin: u64,
    /// Parts per million of true speed: 996,000 to 1,004,000.
    speed: u64,
}

impl Clock {
    pub const SPEED: (u64, u64) = (996_000, 1_004_000);

    pub fn new(origin: u64, speed: u64) -> Self {
        Self { origin, speed }
    }

    pub fn at(&self, now: Micros) -> Moment {
        Moment(self.origin + now * self.speed / 1000)
    }

    /// When the clock shows this. Rounded down.
    pub fn when(&self, shown: Moment) -> Micros {
        shown.0.saturating_sub(self.origin) * 1000 / self.speed
    }

    /// How long a length on this clock truly is. Rounded down.
    pub fn truly(&self, length: Duration) -> Micros {
        length.as_micros() as u64 * MILLION / self.speed
    }
}

/// What a client may count of a ttl: less 1 %, at least 10 ms. Section 3.
pub fn counted(ttl: Millis) -> Duration {
    ttl.duration() - Duration::from_micros((ttl.0 * 10).max(10_000))
}
