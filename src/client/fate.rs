//! How one call goes about it, and what is known of its effect on the way.

use std::time::Duration;

use super::deadline::Allowance;
use super::error::ClientError;
use crate::clock::Moment;
use crate::wire::reason::Told;

/// An attempt that was open this long had reached a node that answers pings.
const CONTACT: Duration = Duration::from_secs(5);

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub call: Duration,
    pub attempt: Duration,
    pub connect: Duration,
    pub allowance: Allowance,
}

/// How one call goes about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// The call ends here.
    pub until: Option<Moment>,
    /// How long an attempt of the first round may take; `None` for one that waits in
    /// a queue.
    pub attempt: Option<Duration>,
    /// How long attempts may fail before the call ends.
    pub patience: Option<Duration>,
    /// Whether only the leader can answer.
    pub leader: bool,
    /// Whether an attempt that may have taken effect may be made again: it has a request
    /// id, or changes nothing.
    pub repeats: bool,
}

impl Plan {
    /// Goes on until it is answered.
    pub fn endless(settings: &Settings) -> Self {
        let attempt = Some(settings.attempt);
        Self { until: None, attempt, patience: None, leader: true, repeats: true }
    }

    /// Ends after `within`.
    pub fn within(settings: &Settings, within: Duration) -> Self {
        Self { until: Some(Moment::now().plus(within)), ..Self::endless(settings) }
    }

    /// Ends with the first attempt that may have taken effect.
    pub fn once(settings: &Settings) -> Self {
        let attempt = Some(settings.call);
        Self { attempt, repeats: false, ..Self::within(settings, settings.call) }
    }

    /// How long the next attempt may take, after so many rounds over all nodes; an
    /// error if there is no time for one. Attempts grow, so that answers which take
    /// long because there is much to do are not asked for over and over.
    pub fn limit(&self, rounds: u32) -> Result<Option<Duration>, Failure> {
        let attempt = self.attempt.map(|limit| limit.saturating_mul(1 << rounds.min(4)));
        let Some(until) = self.until else { return Ok(attempt) };
        let left = until.since(Moment::now());
        if left.is_zero() {
            return Err(Failure::OutOfTime);
        }
        Ok(Some(attempt.map_or(left, |attempt| attempt.min(left))))
    }

    /// Sleeps, or ends the call: at once when attempts have failed for too long,
    /// or when its time is over before the pause is.
    pub async fn pause(&self, fate: &Fate, pause: Duration) -> Result<(), Failure> {
        let now = Moment::now();
        if let (Some(patience), Some(since)) = (self.patience, fate.failing_since)
            && now.since(since) >= patience
        {
            return Err(Failure::OutOfTime);
        }
        let left = self.until.map_or(Duration::MAX, |until| until.since(now));
        if !pause.is_zero() {
            tokio::time::sleep(pause.min(left)).await;
        }
        if pause >= left { Err(Failure::OutOfTime) } else { Ok(()) }
    }
}

/// What is known of a request's effect while no answer is.
#[derive(Debug, Default)]
pub(super) struct Fate {
    unknown: bool,
    /// When the attempt that is under way began.
    in_flight: Option<Moment>,
    failing_since: Option<Moment>,
    last: Option<String>,
}

impl Fate {
    /// Whether an attempt so far may have taken effect.
    pub fn is_unknown(&self) -> bool {
        self.unknown || self.in_flight.is_some()
    }

    /// Whether a node seems to be at work on it.
    pub fn is_in_contact(&self, now: Moment) -> bool {
        let long = self.in_flight.is_some_and(|began| now.since(began) >= CONTACT / 5);
        self.in_flight.is_some() && (self.failing_since.is_none() || long)
    }

    /// It has taken effect, or will, though there is no last answer yet.
    pub fn takes_effect(&mut self) {
        self.unknown = true;
    }

    /// The error of a call without a request id: nobody can ask what became of it.
    pub fn unseen(&self) -> ClientError {
        match self.unreachable() {
            ClientError::Unreachable { outcome_unknown: true, last } => {
                ClientError::OutcomeUnknown { last }
            }
            other => other,
        }
    }

    /// The error of a call that ran out of time.
    pub fn unreachable(&self) -> ClientError {
        let last = self.last.clone().unwrap_or_else(|| "an attempt is still open".to_owned());
        ClientError::Unreachable { outcome_unknown: self.is_unknown(), last }
    }

    /// An attempt begins.
    pub fn begin(&mut self, now: Moment) {
        self.in_flight = Some(now);
    }

    /// A node answered for good.
    pub fn answered(&mut self) {
        self.in_flight = None;
        self.failing_since = None;
    }

    /// The attempt failed; `unknown` if it may have taken effect all the same.
    pub fn failed(&mut self, unknown: bool, last: String) {
        let now = Moment::now();
        let began = self.in_flight.take().unwrap_or(now);
        self.unknown |= unknown;
        self.last = Some(last);
        if now.since(began) >= CONTACT {
            self.failing_since = Some(now);
        } else {
            self.failing_since.get_or_insert(began);
        }
    }
}

/// How a call ends without its answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// A refusal that no other attempt would change.
    Refused(Told),
    /// The plan's time is over, or it may not be repeated; see the [`Fate`].
    OutOfTime,
}

impl Failure {
    /// As the application is told.
    pub fn error(self, fate: &Fate) -> ClientError {
        match self {
            Self::Refused(told) => ClientError::refused(told, fate.is_unknown()),
            Self::OutOfTime => fate.unreachable(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_is_open_or_failed_unknown_leaves_the_outcome_unknown() {
        let mut fate = Fate::default();
        assert!(!fate.is_unknown());
        fate.begin(Moment::now());
        assert!(fate.is_unknown(), "it may take effect at any moment");
        fate.failed(false, "refused".to_owned());
        assert!(!fate.is_unknown());
        fate.begin(Moment::now());
        fate.failed(true, "broken".to_owned());
        fate.begin(Moment::now());
        fate.failed(false, "refused".to_owned());
        assert!(fate.is_unknown(), "a refusal at the door speaks for its attempt only");
    }

    #[tokio::test]
    async fn patience_counts_from_the_first_failure_and_ends_with_a_long_contact() {
        let patience = Duration::from_secs(3);
        let plan = Plan {
            until: None,
            attempt: None,
            patience: Some(patience),
            leader: true,
            repeats: true,
        };
        let now = Moment::now();
        let mut fate = Fate::default();
        fate.begin(now.minus(patience));
        fate.failed(true, String::new());
        assert!(plan.pause(&fate, Duration::ZERO).await.is_err());
        fate.begin(now.minus(CONTACT));
        fate.failed(true, String::new());
        assert!(plan.pause(&fate, Duration::ZERO).await.is_ok(), "it waited in a queue till now");
    }
}
