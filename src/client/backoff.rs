//! How long to pause between rounds. Pure: the roll of the dice is an argument.

use std::time::Duration;

/// The longest first pause.
pub(super) const FIRST: Duration = Duration::from_millis(25);
/// The longest pause of all.
pub(super) const LAST: Duration = Duration::from_millis(400);
/// How long one that lost its node waits at most before it goes to the next one,
/// so that the clients of a node that died do not come there in step.
pub(super) const SPREAD: Duration = Duration::from_millis(50);

/// Jittered exponential pauses: anything between none and a bound that
/// doubles, so that many clients that lost one node do not come back in step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// The next pause; `roll` is even in 0..1.
    pub fn pause(&mut self, roll: f64) -> Duration {
        let bound = FIRST.saturating_mul(1 << self.rounds.min(10)).min(LAST);
        self.rounds = self.rounds.saturating_add(1);
        bound.mul_f64(roll.clamp(0.0, 1.0))
    }

    /// Something answered: the next pause is a short one again.
    pub fn reset(&mut self) {
        self.rounds = 0;
    }
}

/// A little more than the authority asked for, so that those it told the same do
/// not come back together; never less. `roll` is even in 0..1.
pub(super) fn at_least(asked: Duration, roll: f64) -> Duration {
    asked.saturating_add(asked.min(LAST).mul_f64(roll.clamp(0.0, 1.0) / 2.0))
}

/// When to renew after a renewal: a third of the ttl, up to a fifth of it less.
/// `roll` is even in 0..1.
pub(super) fn renew_after(ttl: Duration, roll: f64) -> Duration {
    (ttl / 3).mul_f64(1.0 - roll.clamp(0.0, 1.0) / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_bound_and_start_anew() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..8).map(|_| backoff.pause(1.0).as_millis()).collect();
        assert_eq!(pauses, [25, 50, 100, 200, 400, 400, 400, 400]);
        backoff.reset();
        assert_eq!(backoff.pause(0.5), FIRST / 2);
        assert_eq!(Backoff { rounds: u32::MAX }.pause(1.0), LAST);
    }

    #[test]
    fn jitter_reaches_down_to_no_pause() {
        assert_eq!(Backoff { rounds: 3 }.pause(0.0), Duration::ZERO);
    }

    #[test]
    fn a_delay_that_was_asked_for_is_kept() {
        let asked = Duration::from_millis(100);
        assert_eq!(at_least(asked, 0.0), asked);
        assert_eq!(at_least(asked, 1.0), Duration::from_millis(150));
    }

    #[test]
    fn renewals_come_within_a_third_of_the_ttl() {
        let ttl = Duration::from_millis(3_000);
        assert_eq!(renew_after(ttl, 0.0), Duration::from_millis(1_000));
        assert_eq!(renew_after(ttl, 1.0), Duration::from_millis(800));
    }
}
