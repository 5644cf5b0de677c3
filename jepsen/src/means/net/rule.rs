//! What a link does to the frames that pass it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Bytes at the start of a frame that are never corrupted: the addresses and the type, without
/// which the switch would not know where it goes.
const HEADER: usize = 14;

/// What one directed link does to frames. The default lets them pass untouched, at once and in
/// order. Probabilities are from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rule {
    /// Nothing passes, not even what is already on its way.
    pub cut: bool,
    /// Every frame takes this long.
    pub delay: Duration,
    /// And up to this much longer, drawn per frame: frames may overtake each other.
    pub jitter: Duration,
    /// How likely a frame is lost.
    pub loss: f64,
    /// How likely a frame arrives twice.
    pub duplicate: f64,
    /// How likely a frame is held back by `hold`, so that later ones overtake it.
    pub reorder: f64,
    /// How long a reordered frame is held back.
    pub hold: Duration,
    /// How likely one bit of a frame behind its header is flipped. The receiver's checksums
    /// find nearly all of these.
    pub corrupt: f64,
}

impl Rule {
    /// Nothing passes.
    #[must_use]
    pub fn cut() -> Self {
        Self { cut: true, ..Self::default() }
    }

    /// Frames take so long.
    #[must_use]
    pub fn delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Frames are lost with this probability.
    #[must_use]
    pub fn loss(loss: f64) -> Self {
        Self { loss, ..Self::default() }
    }
}

/// What a link has done so far: the proof that a rule acted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that came in at the near end.
    pub entered: u64,
    /// Frames that went out at the far end, copies included.
    pub delivered: u64,
    /// Frames that a cut swallowed.
    pub cut: u64,
    /// Frames that were lost at random.
    pub lost: u64,
    /// Frames that were held by delay or jitter.
    pub delayed: u64,
    /// Frames that were sent twice.
    pub duplicated: u64,
    /// Frames that were held back to be overtaken.
    pub reordered: u64,
    /// Frames that went out after one that had come in later.
    pub overtaken: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that found the switch or the far end full.
    pub overflowed: u64,
}

/// One number of [`Counts`], counted by the switch and read by anyone.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The running counters of one link.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) entered: Counter,
    pub(super) delivered: Counter,
    pub(super) cut: Counter,
    pub(super) lost: Counter,
    pub(super) delayed: Counter,
    pub(super) duplicated: Counter,
    pub(super) reordered: Counter,
    pub(super) overtaken: Counter,
    pub(super) corrupted: Counter,
    pub(super) overflowed: Counter,
}

impl Tally {
    pub(super) fn read(&self) -> Counts {
        Counts {
            entered: self.entered.get(),
            delivered: self.delivered.get(),
            cut: self.cut.get(),
            lost: self.lost.get(),
            delayed: self.delayed.get(),
            duplicated: self.duplicated.get(),
            reordered: self.reordered.get(),
            overtaken: self.overtaken.get(),
            corrupted: self.corrupted.get(),
            overflowed: self.overflowed.get(),
        }
    }
}

/// What becomes of one frame: how long each of its copies waits, and which bit is flipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) waits: Vec<Duration>,
    pub(super) flip: Option<(usize, u8)>,
}

/// Draws the fate of a frame of `length` bytes, and counts it.
pub(super) fn draw(rule: &Rule, length: usize, rng: &mut ChaCha8Rng, tally: &Tally) -> Fate {
    tally.entered.up();
    if rule.cut {
        tally.cut.up();
        return Fate::default();
    }
    if hit(rng, rule.loss) {
        tally.lost.up();
        return Fate::default();
    }
    let mut fate = Fate { waits: vec![wait(rule, rng, tally)], flip: None };
    if hit(rng, rule.duplicate) {
        tally.duplicated.up();
        fate.waits.push(wait(rule, rng, tally));
    }
    if length > HEADER && hit(rng, rule.corrupt) {
        tally.corrupted.up();
        fate.flip = Some((rng.random_range(HEADER..length), 1 << rng.random_range(0..8)));
    }
    fate
}

fn wait(rule: &Rule, rng: &mut ChaCha8Rng, tally: &Tally) -> Duration {
    let mut wait = rule.delay + rule.jitter.mul_f64(rng.random::<f64>());
    if !wait.is_zero() {
        tally.delayed.up();
    }
    if hit(rng, rule.reorder) {
        tally.reordered.up();
        wait += rule.hold;
    }
    wait
}

/// Draws only where there is a chance, so that a rule that is off costs nothing.
fn hit(rng: &mut ChaCha8Rng, probability: f64) -> bool {
    probability > 0.0 && rng.random::<f64>() < probability
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const FRAMES: u64 = 10_000;

    fn drawn(rule: &Rule) -> (Vec<Fate>, Counts) {
        let (mut rng, tally) = (ChaCha8Rng::seed_from_u64(7), Tally::default());
        let fates = (0..FRAMES).map(|_| draw(rule, 100, &mut rng, &tally)).collect();
        (fates, tally.read())
    }

    #[test]
    fn without_a_rule_every_frame_passes_once_at_once_and_untouched() {
        let (fates, counts) = drawn(&Rule::default());
        let untouched = Fate { waits: vec![Duration::ZERO], flip: None };
        assert!(fates.iter().all(|fate| *fate == untouched));
        assert_eq!(counts, Counts { entered: FRAMES, ..Counts::default() });
    }

    #[test]
    fn a_cut_swallows_all_and_counts_them() {
        let (fates, counts) = drawn(&Rule::cut());
        assert!(fates.iter().all(|fate| fate.waits.is_empty()));
        assert_eq!(counts.cut, FRAMES);
    }

    #[test]
    fn chances_are_met_and_counted() {
        let rule = Rule { loss: 0.3, duplicate: 0.1, corrupt: 0.2, ..Rule::default() };
        let (fates, counts) = drawn(&rule);
        let copies: usize = fates.iter().map(|fate| fate.waits.len()).sum();
        assert_eq!(copies as u64, FRAMES - counts.lost + counts.duplicated);
        assert!((2_800..3_200).contains(&counts.lost), "{counts:?}");
        assert!((600..800).contains(&counts.duplicated), "{counts:?}");
        assert!((1_250..1_550).contains(&counts.corrupted), "{counts:?}");
        let flips: Vec<_> = fates.iter().filter_map(|fate| fate.flip).collect();
        assert!(flips.iter().all(|(at, bit)| (HEADER..100).contains(at) && bit.count_ones() == 1));
    }

    #[test]
    fn waits_lie_between_delay_and_delay_plus_jitter_plus_hold() {
        let ms = Duration::from_millis;
        let rule =
            Rule { delay: ms(20), jitter: ms(5), reorder: 0.5, hold: ms(100), ..Rule::default() };
        let (fates, counts) = drawn(&rule);
        let (held, plain): (Vec<_>, Vec<_>) =
            fates.iter().map(|fate| fate.waits[0]).partition(|wait| *wait >= ms(120));
        assert!(plain.iter().all(|wait| (ms(20)..=ms(25)).contains(wait)));
        assert!(held.iter().all(|wait| (ms(120)..=ms(125)).contains(wait)));
        assert_eq!(held.len() as u64, counts.reordered);
        assert_eq!(counts.delayed, FRAMES);
    }

    #[test]
    fn the_same_seed_draws_the_same_fates() {
        let rule = Rule { loss: 0.5, jitter: Duration::from_millis(1), ..Rule::default() };
        assert_eq!(drawn(&rule).0, drawn(&rule).0);
    }
}
