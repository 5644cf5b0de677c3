//! The client's own deadline. Pure: time is an argument.

use std::time::Duration;

use crate::clock::BootMoment;

/// How much earlier than the authority the client counts, for clocks that run at
/// different rates. Section 3 of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Parts in a thousand of the ttl; 10 by default.
    pub permille: u32,
    /// The least; 10 ms by default.
    pub least: Duration,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { permille: 10, least: Duration::from_millis(10) }
    }
}

impl Allowance {
    /// What is taken off this ttl.
    pub fn of(self, ttl: Duration) -> Duration {
        (ttl.saturating_mul(self.permille) / 1_000).max(self.least)
    }
}

/// When the client's time is up, whatever the network does.
///
/// Invariant: [`LeaseClock::deadline`] never lies after the authority's own
/// deadline for the last acknowledged renewal, as long as clock rates differ by
/// less than the allowance. (I2)
#[derive(Debug, Clone)]
pub(super) struct LeaseClock {
    /// Just before the latest of the acknowledged renewals was sent.
    acknowledged: BootMoment,
    /// As last settled.
    ttl: Duration,
    /// Sent and not settled: the lower of this and `ttl` counts.
    asked: Option<Duration>,
    /// When `ttl` was settled. Renewals sent later tell the ttl in force; `None`
    /// while a change of unknown outcome may still reach the authority.
    settled: Option<BootMoment>,
    allowance: Allowance,
}

impl LeaseClock {
    /// The session was opened by a request that was sent just after `sent`.
    pub fn opened(sent: BootMoment, ttl: Duration, allowance: Allowance) -> Self {
        Self { acknowledged: sent, ttl, asked: None, settled: Some(sent), allowance }
    }

    /// The ttl that counts.
    pub fn ttl(&self) -> Duration {
        self.asked.map_or(self.ttl, |asked| asked.min(self.ttl))
    }

    /// From here on the client must not act.
    pub fn deadline(&self) -> BootMoment {
        let ttl = self.ttl();
        self.acknowledged.plus(ttl.saturating_sub(self.allowance.of(ttl)))
    }

    /// What is left; zero when the time is up.
    pub fn left(&self, now: BootMoment) -> Duration {
        self.deadline().since(now)
    }

    /// Just before the latest acknowledged renewal was sent.
    pub fn acknowledged_at(&self) -> BootMoment {
        self.acknowledged
    }

    /// The renewal that was sent just after `sent` is acknowledged, with the ttl
    /// then in force. A late answer to an early renewal moves nothing back.
    pub fn acknowledge(&mut self, sent: BootMoment, ttl: Duration) {
        let current = self.settled.is_some_and(|settled| sent >= settled);
        if self.asked.is_none() && current {
            self.ttl = ttl;
        }
        self.acknowledged = self.acknowledged.max(sent);
    }

    /// Another ttl is about to be asked for. One at a time.
    pub fn ask(&mut self, ttl: Duration) {
        debug_assert!(self.asked.is_none(), "ttl changes are sent one at a time");
        self.asked = Some(ttl);
    }

    /// The ttl that was asked for, first sent just after `sent`, is in force. It
    /// counts as a renewal.
    pub fn settle(&mut self, sent: BootMoment, now: BootMoment, ttl: Duration) {
        self.asked = None;
        self.ttl = ttl;
        self.settled = Some(now);
        self.acknowledged = self.acknowledged.max(sent);
    }

    /// The change was refused and has not and will not take effect.
    pub fn withdraw(&mut self) {
        self.asked = None;
    }

    /// Nobody will learn whether the change took effect or will: the lower of both
    /// counts until another change is settled.
    pub fn give_up(&mut self) {
        self.ttl = self.ttl();
        self.asked = None;
        self.settled = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootMoment {
        BootMoment::from_nanos(ms * 1_000_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn opened() -> LeaseClock {
        LeaseClock::opened(at(1_000), ms(10_000), Allowance::default())
    }

    #[test]
    fn the_allowance_is_one_percent_and_at_least_ten_milliseconds() {
        assert_eq!(Allowance::default().of(ms(10_000)), ms(100));
        assert_eq!(Allowance::default().of(ms(500)), ms(10));
        assert_eq!(Allowance::default().of(Duration::ZERO), ms(10));
    }

    #[test]
    fn time_counts_from_before_the_sending_and_ends_before_the_ttl() {
        let clock = opened();
        assert_eq!(clock.deadline(), at(10_900));
        assert_eq!(clock.left(at(10_899)), ms(1));
        assert_eq!(clock.left(at(10_900)), Duration::ZERO);
    }

    #[test]
    fn a_late_answer_to_an_early_renewal_moves_nothing_back() {
        let mut clock = opened();
        clock.acknowledge(at(4_000), ms(10_000));
        clock.acknowledge(at(2_000), ms(10_000));
        assert_eq!(clock.deadline(), at(13_900));
    }

    #[test]
    fn the_lower_ttl_counts_from_the_asking_until_it_is_settled() {
        let mut clock = opened();
        clock.ask(ms(2_000));
        assert_eq!(clock.deadline(), at(2_980));
        clock.acknowledge(at(2_000), ms(10_000));
        assert_eq!(clock.deadline(), at(3_980), "an answer from before the change");
        clock.settle(at(1_500), at(2_100), ms(2_000));
        assert_eq!(clock.deadline(), at(3_980));
    }

    #[test]
    fn a_higher_ttl_counts_only_when_it_is_settled() {
        let mut clock = opened();
        clock.ask(ms(20_000));
        assert_eq!(clock.deadline(), at(10_900));
        clock.settle(at(3_000), at(3_001), ms(20_000));
        assert_eq!(clock.deadline(), at(22_800));
    }

    #[test]
    fn an_answer_from_before_the_change_does_not_bring_the_old_ttl_back() {
        let mut clock = opened();
        clock.ask(ms(2_000));
        clock.settle(at(3_000), at(3_500), ms(2_000));
        clock.acknowledge(at(3_400), ms(10_000));
        assert_eq!(clock.deadline(), at(5_380));
        clock.acknowledge(at(3_600), ms(3_000));
        assert_eq!(clock.ttl(), ms(3_000), "a renewal sent later tells the ttl in force");
    }

    #[test]
    fn a_refused_change_leaves_the_ttl_and_a_forgotten_one_the_lower_of_both() {
        let mut clock = opened();
        clock.ask(ms(2_000));
        clock.withdraw();
        assert_eq!(clock.ttl(), ms(10_000));
        clock.ask(ms(2_000));
        clock.give_up();
        clock.acknowledge(at(6_000), ms(10_000));
        assert_eq!(clock.ttl(), ms(2_000), "the change may still arrive");
        clock.ask(ms(3_000));
        clock.settle(at(7_000), at(7_001), ms(3_000));
        assert_eq!(clock.ttl(), ms(3_000));
    }
}
