//! Times, and what is said of many of them.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Three digits of every time, whatever its size.
const DIGITS: u8 = 3;

/// Many times, in microseconds.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

/// Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Half took no longer.
    pub p50_us: u64,
    /// 99 of 100 took no longer.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

impl Times {
    /// None yet.
    pub fn new() -> Self {
        Self(Histogram::new(DIGITS).expect("0 to 5 digits are possible"))
    }

    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        self.add_many(time, 1);
    }

    /// Adds the same time for so many.
    pub fn add_many(&mut self, time: Duration, count: u64) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // The histogram grows as it needs to; only beyond 584,000 years it cannot.
        let _ = self.0.record_n(micros, count);
    }

    /// Adds all of them.
    pub fn add_all(&mut self, others: &Self) {
        self.0.add(&others.0).expect("the histogram grows as it needs to");
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Of all of them.
    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50_us: self.0.value_at_quantile(0.5),
            p99_us: self.0.value_at_quantile(0.99),
            max_us: self.0.max(),
        }
    }
}

/// As people read it.
pub fn shown(micros: u64) -> String {
    let (millis, rest) = (micros / 1_000, micros % 1_000 / 10);
    if millis < 100 { format!("{millis}.{rest:02} ms") } else { format!("{millis} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_that_was_added() {
        let (mut one, mut other) = (Times::new(), Times::new());
        one.add_many(Duration::from_millis(1), 98);
        other.add_many(Duration::from_millis(5), 1);
        other.add(Duration::from_millis(250));
        one.add_all(&other);
        assert_eq!(one.count(), 100);
        let Percentiles { p50_us, p99_us, max_us } = one.percentiles();
        assert_eq!([p50_us, p99_us, max_us].map(shown), ["1.00 ms", "5.00 ms", "250 ms"]);
    }
}
