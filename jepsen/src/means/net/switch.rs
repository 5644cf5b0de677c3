//! The switch: one thread that carries every frame between the namespaces.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::poll::{Alarm, Poll};
use super::rule::{Counts, Rule, Tally, draw};

/// Frames that may be on their way at once; more are dropped and counted as overflowed.
pub const FRAMES_MAX: usize = 65_536;

/// Frames taken from one port before the others get their turn.
const BURST: usize = 64;

/// Room for one frame: the devices' MTU is 1500.
const FRAME_BYTES: usize = 2_048;

/// Rules and counters of every directed link, shared by the switch and its owner.
#[derive(Debug)]
struct Links {
    ports: usize,
    /// Row by row: the link from `a` to `b` is at `a * ports + b`.
    rules: Mutex<Vec<Rule>>,
    tallies: Vec<Tally>,
}

impl Links {
    fn at(&self, from: usize, to: usize) -> usize {
        assert!(from < self.ports && to < self.ports, "ports are counted from 0 to ports - 1");
        from * self.ports + to
    }
}

/// A running switch; it stops when dropped.
#[derive(Debug)]
pub struct Switch {
    links: Arc<Links>,
    alarm: Arc<Alarm>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Starts a switch. Port `n` is the far end of the device whose address ends in `n + 1`.
    /// The same seed and the same frames meet the same fates.
    ///
    /// # Errors
    /// The kernel has no descriptor or thread left.
    pub fn start(ports: Vec<File>, seed: u64) -> Result<Self> {
        let count = ports.len();
        let tallies = (0..count * count).map(|_| Tally::default()).collect();
        let rules = Mutex::new(vec![Rule::default(); count * count]);
        let links = Arc::new(Links { ports: count, rules, tallies });
        let poll = Poll::over(ports.iter().map(AsFd::as_fd))?;
        let alarm = Arc::clone(poll.alarm());
        let mut carrier = Carrier {
            ports,
            links: Arc::clone(&links),
            rng: ChaCha8Rng::seed_from_u64(seed),
            waiting: BinaryHeap::new(),
            sent: 0,
            last: vec![0; count * count],
        };
        let thread = thread::Builder::new()
            .name("switch".into())
            .spawn(move || carrier.run(&poll))
            .context("cannot start the switch's thread")?;
        Ok(Self { links, alarm, thread: Some(thread) })
    }

    /// Puts a rule in force on one directed link, for every frame from now on.
    pub fn set(&self, from: usize, to: usize, rule: Rule) {
        let at = self.links.at(from, to);
        self.links.rules.lock().unwrap_or_else(PoisonError::into_inner)[at] = rule;
    }

    /// Takes all rules back at once.
    pub fn heal(&self) {
        self.links.rules.lock().unwrap_or_else(PoisonError::into_inner).fill(Rule::default());
    }

    /// The rule of one directed link.
    #[must_use]
    pub fn rule(&self, from: usize, to: usize) -> Rule {
        let at = self.links.at(from, to);
        self.links.rules.lock().unwrap_or_else(PoisonError::into_inner)[at]
    }

    /// What one directed link has done since the start.
    #[must_use]
    pub fn counts(&self, from: usize, to: usize) -> Counts {
        self.links.tallies[self.links.at(from, to)].read()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.alarm.ring();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the switch's thread had panicked: frames went nowhere");
        }
    }
}

/// A frame on its way.
#[derive(Debug)]
struct Frame {
    due: Instant,
    /// Its place in the order in which frames came in.
    sent: u64,
    from: usize,
    to: usize,
    bytes: Vec<u8>,
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Frame {}

impl PartialOrd for Frame {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The greatest is the first that is due; among those due at once, the first that came in.
impl Ord for Frame {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.sent).cmp(&(self.due, self.sent))
    }
}

/// What the switch's thread owns.
struct Carrier {
    ports: Vec<File>,
    links: Arc<Links>,
    rng: ChaCha8Rng,
    waiting: BinaryHeap<Frame>,
    sent: u64,
    /// Per link the latest frame that has gone out.
    last: Vec<u64>,
}

impl Carrier {
    fn run(&mut self, poll: &Poll) {
        let mut ready = Vec::new();
        while !poll.wait(self.until_next(), &mut ready) {
            for &port in &ready {
                self.take(port);
            }
            self.deliver();
        }
    }

    fn until_next(&self) -> Option<Duration> {
        let next = self.waiting.peek()?;
        Some(next.due.saturating_duration_since(Instant::now()))
    }

    /// Takes in what a port has sent. A read error means that there is nothing now, or that the
    /// device went away with its namespace.
    fn take(&mut self, from: usize) {
        let mut buffer = [0; FRAME_BYTES];
        for _ in 0..BURST {
            let Ok(length) = (&self.ports[from]).read(&mut buffer) else { return };
            let frame = &buffer[..length];
            let Some((&first, &last)) = frame.first().zip(frame.get(5)) else { continue };
            if first & 1 == 1 {
                for to in (0..self.ports.len()).filter(|to| *to != from) {
                    self.carry(from, to, frame);
                }
            } else if let Some(to) = usize::from(last).checked_sub(1)
                && to < self.ports.len()
            {
                self.carry(from, to, frame);
            }
        }
    }

    /// Even a frame that is due at once goes by the heap, behind those due before it.
    fn carry(&mut self, from: usize, to: usize, frame: &[u8]) {
        let (links, at) = (Arc::clone(&self.links), self.links.at(from, to));
        let rule = links.rules.lock().unwrap_or_else(PoisonError::into_inner)[at];
        let tally = &links.tallies[at];
        let fate = draw(&rule, frame.len(), &mut self.rng, tally);
        self.sent += 1;
        for wait in fate.waits {
            if self.waiting.len() >= FRAMES_MAX {
                tally.overflowed.up();
                continue;
            }
            let mut bytes = frame.to_vec();
            if let Some((byte, bit)) = fate.flip {
                bytes[byte] ^= bit;
            }
            let due = Instant::now() + wait;
            self.waiting.push(Frame { due, sent: self.sent, from, to, bytes });
        }
    }

    fn deliver(&mut self) {
        let now = Instant::now();
        while self.waiting.peek().is_some_and(|frame| frame.due <= now) {
            let Some(frame) = self.waiting.pop() else { return };
            let (links, at) = (Arc::clone(&self.links), self.links.at(frame.from, frame.to));
            let tally = &links.tallies[at];
            if links.rules.lock().unwrap_or_else(PoisonError::into_inner)[at].cut {
                tally.cut.up();
                continue;
            }
            if frame.sent < self.last[at] {
                tally.overtaken.up();
            }
            self.last[at] = self.last[at].max(frame.sent);
            // A device takes a whole frame or none.
            match (&self.ports[frame.to]).write_all(&frame.bytes) {
                Ok(()) => tally.delivered.up(),
                Err(_) => tally.overflowed.up(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_in_the_order_of_their_time_then_of_their_coming() {
        let now = Instant::now();
        let frame = |wait_ms, sent| Frame {
            due: now + Duration::from_millis(wait_ms),
            sent,
            from: 0,
            to: 1,
            bytes: Vec::new(),
        };
        let mut heap: BinaryHeap<_> =
            [frame(5, 1), frame(0, 3), frame(0, 2), frame(9, 0)].into_iter().collect();
        let order: Vec<u64> = std::iter::from_fn(|| heap.pop()).map(|frame| frame.sent).collect();
        assert_eq!(order, [2, 3, 1, 0]);
    }
}
