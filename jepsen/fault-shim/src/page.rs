//! The page of memory through which the harness speaks to one preloaded process.
//!
//! This file is compiled twice: into the preload library, which reads it, and into the harness
//! (`jepsen/src/means/shim.rs`), which writes it. `VERSION` keeps the two builds together.

use std::sync::atomic::{AtomicI64, Ordering};

/// Changes whenever the layout or the meaning of a field does.
pub const VERSION: i64 = 0x5246_0001;

/// Bytes of the file that holds a page.
pub const LENGTH: usize = 4096;

/// Names the page's file to the preloaded process.
pub const PAGE_VARIABLE: &str = "RINGFENCE_FAULT_PAGE";

/// Names the folder whose files the disk faults act on: absolute, without symbolic links.
pub const FOLDER_VARIABLE: &str = "RINGFENCE_FAULT_FOLDER";

/// The slowest rate that can be asked for: a tenth of real time, in parts per million off it.
pub const RATE_MIN_PPM: i64 = -900_000;

/// The fastest rate that can be asked for: ten times real time, in parts per million off it.
pub const RATE_MAX_PPM: i64 = 9_000_000;

const MILLION: i128 = 1_000_000;

/// How a process's monotonic clocks stand to the real one: they show `offset_ns` more at
/// `base_ns`, and from there on run `rate_ppm` faster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skew {
    /// The real moment at which `offset_ns` holds exactly.
    pub base_ns: i64,
    /// What is added at `base_ns`.
    pub offset_ns: i64,
    /// Parts per million that the clock gains on the real one; negative when it loses.
    pub rate_ppm: i64,
}

impl Skew {
    /// What the clock shows at a real moment.
    #[must_use]
    pub fn shown(self, real_ns: i64) -> i64 {
        let since = i128::from(real_ns) - i128::from(self.base_ns);
        let gained = since * i128::from(self.rate_ppm) / MILLION;
        saturate(i128::from(real_ns) + i128::from(self.offset_ns) + gained)
    }

    /// The first real moment at which the clock shows this much.
    #[must_use]
    pub fn real(self, shown_ns: i64) -> i64 {
        let start = i128::from(self.base_ns) + i128::from(self.offset_ns);
        let since = stretched(i128::from(shown_ns) - start, self.rate_ppm);
        saturate(i128::from(self.base_ns) + since)
    }

    /// How long it really takes until the clock has gone on by this much.
    #[must_use]
    pub fn lasts(self, shown_ns: i64) -> i64 {
        saturate(stretched(i128::from(shown_ns), self.rate_ppm))
    }

    /// The same clock with another rate from `real_ns` on; it does not jump there.
    #[must_use]
    pub fn at_rate(self, real_ns: i64, rate_ppm: i64) -> Self {
        let offset_ns = saturate(i128::from(self.shown(real_ns)) - i128::from(real_ns));
        Self { base_ns: real_ns, offset_ns, rate_ppm: rate_ppm.clamp(RATE_MIN_PPM, RATE_MAX_PPM) }
    }
}

/// The real length of a shown one, rounded up: no wait may end before its clock says so.
fn stretched(shown: i128, rate_ppm: i64) -> i128 {
    let speed = (MILLION + i128::from(rate_ppm)).max(1);
    let product = shown * MILLION;
    product.div_euclid(speed) + i128::from(product.rem_euclid(speed) != 0)
}

fn saturate(nanos: i128) -> i64 {
    i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

/// One of the two places for a skew; the page's generation says which one counts.
#[repr(C)]
#[derive(Debug, Default)]
struct SkewCell {
    base_ns: AtomicI64,
    offset_ns: AtomicI64,
    rate_ppm: AtomicI64,
}

/// What the harness asks of the process, and what the process has counted.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Page {
    version: AtomicI64,
    generation: AtomicI64,
    skews: [SkewCell; 2],
    /// Added to the wall clock, in nanoseconds.
    pub wall_offset_ns: AtomicI64,
    /// The errno of every fsync and fdatasync; 0 lets them through.
    pub sync_error: AtomicI64,
    /// How long every fsync and fdatasync is held first, in microseconds.
    pub sync_delay_us: AtomicI64,
    /// The errno of every write and allocation; 0 lets them through.
    pub write_error: AtomicI64,
    /// How long every write and allocation is held first, in microseconds.
    pub write_delay_us: AtomicI64,
    /// Processes that have loaded the library with this page.
    pub loads: AtomicI64,
    /// Clock reads that were answered.
    pub clock_reads: AtomicI64,
    /// fsync and fdatasync calls on files of the folder.
    pub syncs: AtomicI64,
    /// Those of them that were made to fail.
    pub syncs_failed: AtomicI64,
    /// Those of them that were held.
    pub syncs_delayed: AtomicI64,
    /// Write and allocation calls on files of the folder.
    pub writes: AtomicI64,
    /// Those of them that were made to fail.
    pub writes_failed: AtomicI64,
    /// Those of them that were held.
    pub writes_delayed: AtomicI64,
}

impl Page {
    /// Marks a zeroed page as one of this build.
    pub fn stamp(&self) {
        self.version.store(VERSION, Ordering::Release);
    }

    /// Whether the page was made by a harness of the same build.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.version.load(Ordering::Acquire) == VERSION
    }

    /// The skew that holds now. Never waits: a writer fills the cell that does not count and
    /// then turns the generation, so a reader that saw it turn looks again.
    #[must_use]
    pub fn skew(&self) -> Skew {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let cell = &self.skews[usize::from(generation & 1 != 0)];
            let skew = Skew {
                base_ns: cell.base_ns.load(Ordering::Acquire),
                offset_ns: cell.offset_ns.load(Ordering::Acquire),
                rate_ppm: cell.rate_ppm.load(Ordering::Acquire),
            };
            if self.generation.load(Ordering::Acquire) == generation {
                return skew;
            }
        }
    }

    /// Puts another skew in force. The harness is the only writer, one call at a time.
    pub fn set_skew(&self, skew: Skew) {
        let next = self.generation.load(Ordering::Acquire).wrapping_add(1);
        let cell = &self.skews[usize::from(next & 1 != 0)];
        cell.base_ns.store(skew.base_ns, Ordering::Release);
        cell.offset_ns.store(skew.offset_ns, Ordering::Release);
        cell.rate_ppm.store(skew.rate_ppm, Ordering::Release);
        self.generation.store(next, Ordering::Release);
    }
}

const _: () = assert!(size_of::<Page>() <= LENGTH, "a page is one page of memory");
