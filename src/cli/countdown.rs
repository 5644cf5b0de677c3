//! When a command whose lease runs out is told to end, and when it is made to.
//! Pure: time is an argument.

use std::time::Duration;

use crate::clock::BootMoment;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing for so long.
    Wait(Duration),
    /// SIGTERM. Due once.
    Terminate,
    /// SIGKILL, now and for ever.
    Kill,
}

/// Counts down to the end of a lease that is renewed meanwhile, or is not.
///
/// Invariant: once the command was told to end, no renewal calls that off: it has
/// begun to clean up, and nobody knows how far it is.
#[derive(Debug)]
pub struct Countdown {
    grace: Duration,
    kill_at: BootMoment,
    told: bool,
}

impl Countdown {
    /// Leaves the command `grace` between SIGTERM and SIGKILL. It begins when it is
    /// first renewed.
    pub fn new(grace: Duration) -> Self {
        Self { grace, kill_at: BootMoment::from_nanos(u64::MAX), told: false }
    }

    /// Renewed: the command must not run beyond `kill_at` unless there is another
    /// renewal before.
    pub fn renewed(&mut self, kill_at: BootMoment) {
        if !self.told {
            self.kill_at = kill_at;
        }
    }

    /// The authority has ended the grant: there is nothing left to run out, and the
    /// grace is for cleaning up only.
    pub fn lost(&mut self, now: BootMoment) {
        if !self.told {
            self.kill_at = now.plus(self.grace);
        }
    }

    /// What is due now. After a pause beyond the end that is SIGKILL at once.
    pub fn step(&mut self, now: BootMoment) -> Step {
        let left = self.kill_at.since(now);
        if left.is_zero() && (self.told || !self.grace.is_zero()) {
            return Step::Kill;
        }
        if self.told {
            return Step::Wait(left);
        }
        if left > self.grace {
            return Step::Wait(left - self.grace);
        }
        self.told = true;
        Step::Terminate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_millis(2_000);

    fn at(ms: u64) -> BootMoment {
        BootMoment::from_nanos(ms * 1_000_000)
    }

    fn wait(ms: u64) -> Step {
        Step::Wait(Duration::from_millis(ms))
    }

    #[test]
    fn term_comes_a_grace_before_the_end_and_kill_at_the_end() {
        let mut countdown = Countdown::new(GRACE);
        assert!(matches!(countdown.step(at(50_000)), Step::Wait(_)), "not begun");
        countdown.renewed(at(9_000));
        assert_eq!(countdown.step(at(1_000)), wait(6_000));
        countdown.renewed(at(12_000));
        assert_eq!(countdown.step(at(9_999)), wait(1));
        assert_eq!(countdown.step(at(10_000)), Step::Terminate);
        assert_eq!(countdown.step(at(10_000)), wait(2_000));
        assert_eq!(countdown.step(at(12_000)), Step::Kill);
    }

    #[test]
    fn a_renewal_after_term_calls_nothing_off() {
        let mut countdown = Countdown::new(GRACE);
        countdown.renewed(at(9_000));
        assert_eq!(countdown.step(at(7_500)), Step::Terminate);
        countdown.renewed(at(19_000));
        countdown.lost(at(8_900));
        assert_eq!(countdown.step(at(9_000)), Step::Kill);
    }

    #[test]
    fn a_loss_that_is_told_is_term_at_once_and_kill_after_the_grace() {
        let mut countdown = Countdown::new(GRACE);
        countdown.renewed(at(60_000));
        countdown.lost(at(1_000));
        assert_eq!(countdown.step(at(1_000)), Step::Terminate);
        assert_eq!(countdown.step(at(2_999)), wait(1));
        assert_eq!(countdown.step(at(3_000)), Step::Kill);
    }

    #[test]
    fn after_a_pause_beyond_the_end_there_is_no_grace_left() {
        let mut countdown = Countdown::new(GRACE);
        countdown.renewed(at(9_000));
        assert_eq!(countdown.step(at(9_001)), Step::Kill);
    }

    #[test]
    fn without_grace_term_is_followed_by_kill() {
        let mut countdown = Countdown::new(Duration::ZERO);
        countdown.renewed(at(9_000));
        assert_eq!(countdown.step(at(8_999)), wait(1));
        assert_eq!(countdown.step(at(9_000)), Step::Terminate);
        assert_eq!(countdown.step(at(9_000)), Step::Kill);
    }
}
