//! How long no majority of the cluster has been heard of on this node: a leader hears
//! of one by its rounds, and tells the others with each heartbeat. What such a node
//! does not learn may be much. It says nothing about safety.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::config::Timing;

/// Longer than an election takes that succeeds at once or at the second attempt.
const ELECTIONS: u32 = 3;
/// Nothing was heard since the node was started.
const NEVER: u64 = u64::MAX / 2;

/// Whether this node is in contact with a majority, through a leader or as one.
///
/// It counts the beats that this process has lived through, not a clock: a process that
/// did not run has missed nothing yet that is on its way to it.
#[derive(Debug)]
pub(crate) struct Contact {
    /// For so long, in milliseconds.
    silent_ms: AtomicU64,
    beat: Duration,
    lost_ms: u64,
    kept: watch::Sender<bool>,
}

impl Contact {
    /// There was none yet. Counts until it is dropped.
    pub fn begin(timing: &Timing) -> Arc<Self> {
        let contact = Arc::new(Self::new(timing));
        let (beat, counted) = (contact.beat, Arc::downgrade(&contact));
        tokio::spawn(async move {
            let mut beats = tokio::time::interval(beat);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beats.tick().await;
                let Some(contact) = counted.upgrade() else { return };
                contact.pass();
            }
        });
        contact
    }

    fn new(timing: &Timing) -> Self {
        // A leader that applies slowly is heard of once a round, and a round may take so long.
        let round = timing.confirm.saturating_add(timing.heartbeat * 2);
        let lost_ms = ms(timing.election_max.saturating_mul(ELECTIONS).max(round));
        let (silent_ms, beat) = (AtomicU64::new(NEVER), timing.heartbeat);
        Self { silent_ms, beat, lost_ms, kept: watch::Sender::new(false) }
    }

    /// A majority was heard of, so many milliseconds ago.
    pub fn heard(&self, ago_ms: u64) {
        self.silent_ms.fetch_min(ago_ms, Ordering::Relaxed);
        self.tell();
    }

    /// For how many milliseconds none was; very many if there never was.
    pub fn silent_ms(&self) -> u64 {
        self.silent_ms.load(Ordering::Relaxed)
    }

    /// Whether there is contact, and each change of that.
    pub fn kept(&self) -> watch::Receiver<bool> {
        self.kept.subscribe()
    }

    fn pass(&self) {
        self.silent_ms.fetch_add(ms(self.beat), Ordering::Relaxed);
        self.tell();
    }

    fn tell(&self) {
        self.kept.send_if_modified(|known| {
            let kept = self.silent_ms() < self.lost_ms;
            std::mem::replace(known, kept) != kept
        });
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_whose_rounds_take_their_time_is_not_out_of_contact() {
        let timing = Timing { election_max: Duration::from_millis(100), ..Timing::default() };
        let contact = Contact::new(&timing);
        contact.heard(0);
        for _ in 0..timing.confirm.as_millis() / timing.heartbeat.as_millis() + 1 {
            contact.pass();
        }
        assert!(*contact.kept().borrow());
        contact.pass();
        assert!(!*contact.kept().borrow());
    }

    #[test]
    fn contact_is_lost_when_nothing_was_heard_for_some_elections_and_not_before() {
        let timing = Timing::default();
        let contact = Contact::new(&timing);
        let kept = contact.kept();
        assert!(!*kept.borrow(), "nothing was heard yet");
        contact.heard(0);
        assert!(*kept.borrow());
        let lost = timing.election_max * ELECTIONS;
        for _ in 1..lost.as_millis() / timing.heartbeat.as_millis() {
            contact.pass();
        }
        assert!(*kept.borrow());
        // A leader that has no majority itself is no news.
        contact.heard(contact.silent_ms() + 1);
        contact.pass();
        assert!(!*kept.borrow());
        contact.heard(ms(lost));
        assert!(!*kept.borrow());
        contact.heard(ms(lost) - 1);
        assert!(*kept.borrow());
    }
}
