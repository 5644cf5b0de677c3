//! What happened, in order: a hash always, text when asked for.

use std::fmt::Arguments;

use crate::time::Micros;

/// The story of one run.
#[derive(Default)]
pub struct Trace {
    /// Whether text is kept.
    pub told: bool,
    pub lines: Vec<String>,
    hash: u64,
}

impl Trace {
    pub fn new(told: bool) -> Self {
        Self { told, ..Self::default() }
    }

    pub fn line(&mut self, now: Micros, what: Arguments<'_>) {
        if self.told {
            self.lines.push(format!("{:>6}.{:03} {what}", now / 1000, now % 1000));
        }
    }

    /// Takes numbers of an event in: two runs with the same hash went the same way.
    pub fn mix(&mut self, numbers: [u64; 3]) {
        for n in numbers {
            self.hash = (self.hash ^ n).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// Adds a line to the world's trace; formatted only if somebody reads it.
#[macro_export]
macro_rules! tell {
    ($world:expr, $($what:tt)*) => {
        if $world.trace.told {
            $world.trace.line($world.now, format_args!($($what)*));
        }
    };
}
