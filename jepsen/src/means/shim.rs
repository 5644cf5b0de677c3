//! Clocks and disk errors of one process, through the preload library of `jepsen/fault-shim`.

use std::env;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};

use super::Run;

#[path = "../../fault-shim/src/page.rs"]
mod page;

use page::{FOLDER_VARIABLE, LENGTH, PAGE_VARIABLE, Page};
pub use page::{RATE_MAX_PPM, RATE_MIN_PPM, Skew};

/// The library's file, beside the harness's own.
const LIBRARY: &str = "libringfence_fault_shim.so";

/// The latest origin of a monotonic clock: ten years. The library takes a deadline of more than
/// thirty for one of the wall clock.
pub const ORIGIN_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How calls of one class are made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskError {
    /// EIO: the disk is broken.
    Io,
    /// ENOSPC: the disk is full.
    NoSpace,
}

impl DiskError {
    fn errno(error: Option<Self>) -> i64 {
        i64::from(match error {
            None => 0,
            Some(Self::Io) => libc::EIO,
            Some(Self::NoSpace) => libc::ENOSPC,
        })
    }
}

/// What a process has counted: the proof that a fault acted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShimCounts {
    /// Processes that were started with this shim and loaded it.
    pub loads: i64,
    /// Clock reads that were answered.
    pub clock_reads: i64,
    /// Syncs of files of the folder.
    pub syncs: i64,
    /// Those of them that were made to fail.
    pub syncs_failed: i64,
    /// Those of them that were held.
    pub syncs_delayed: i64,
    /// Writes and allocations of files of the folder.
    pub writes: i64,
    /// Those of them that were made to fail.
    pub writes_failed: i64,
    /// Those of them that were held.
    pub writes_delayed: i64,
}

/// The faults of one process, over all its starts. Changes act on the running process at once.
#[derive(Debug)]
pub struct Shim {
    library: PathBuf,
    path: PathBuf,
    folder: PathBuf,
    mapping: Mapping,
    /// One writer at a time.
    turn: Mutex<()>,
    _run: Arc<Run>,
}

/// Finds the preload library: beside this program, or one folder up, where cargo leaves it for
/// its tests.
///
/// # Errors
/// It has not been built.
pub fn library() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot tell where this program lies")?;
    let folders = program.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(LIBRARY)).find(|path| path.is_file());
    found.with_context(|| {
        format!("no {LIBRARY} beside {}: cargo build -p ringfence-fault-shim", program.display())
    })
}

impl Shim {
    /// Makes the page of a process. Disk faults will act on the files of `folder`, which must
    /// be there.
    ///
    /// # Errors
    /// The library has not been built, or there is no such folder.
    pub fn make(run: &Arc<Run>, name: &str, folder: &Path) -> Result<Self> {
        let folder = folder
            .canonicalize()
            .with_context(|| format!("no folder {} for disk faults", folder.display()))?;
        let path = run.folder().join(format!("{name}.page"));
        ensure!(!path.exists(), "two shims are named {name}");
        let mapping = Mapping::make(&path)?;
        mapping.page().stamp();
        assert!(mapping.page().is_ours(), "the library will accept what was just stamped");
        let library = library()?;
        Ok(Self { library, path, folder, mapping, turn: Mutex::new(()), _run: Arc::clone(run) })
    }

    /// What the process must find in its environment.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, OsString); 3] {
        [
            ("LD_PRELOAD", self.library.clone().into()),
            (PAGE_VARIABLE, self.path.clone().into()),
            (FOLDER_VARIABLE, self.folder.clone().into()),
        ]
    }

    /// How far the wall clock is ahead, in nanoseconds; behind, if negative.
    pub fn set_wall_offset_ns(&self, offset_ns: i64) {
        self.page().wall_offset_ns.store(offset_ns, Ordering::Release);
    }

    /// Lets the monotonic clocks, `CLOCK_BOOTTIME` among them, begin again: the real ones plus
    /// an offset of at most [`ORIGIN_MAX`], at the real rate. For a process that is down: a
    /// clock that jumps while a process runs is no fault that a kernel has.
    pub fn set_origin(&self, offset: Duration) {
        let offset = offset.min(ORIGIN_MAX).as_nanos();
        let offset_ns = i64::try_from(offset).expect("ORIGIN_MAX fits");
        self.set_skew(|_, now| Skew { base_ns: now, offset_ns, rate_ppm: 0 });
    }

    /// Lets the monotonic clocks run so many parts per million too fast (too slow, if
    /// negative) from now on, without a jump. Kept within [`RATE_MIN_PPM`] and
    /// [`RATE_MAX_PPM`]. A wait that has begun keeps the end it was given.
    pub fn set_rate_ppm(&self, rate_ppm: i64) {
        self.set_skew(|skew, now| skew.at_rate(now, rate_ppm));
    }

    /// Lets the monotonic clocks jump, as a hypervisor may do to a virtual machine. A wait that
    /// has begun keeps the end it was given.
    pub fn jump_monotonic(&self, ahead: Duration) {
        let ahead_ns = i64::try_from(ahead.min(ORIGIN_MAX).as_nanos()).expect("ORIGIN_MAX fits");
        self.set_skew(|skew, _| Skew {
            offset_ns: skew.offset_ns.saturating_add(ahead_ns),
            ..skew
        });
    }

    /// How the monotonic clocks stand now.
    #[must_use]
    pub fn skew(&self) -> Skew {
        self.page().skew()
    }

    /// Makes every sync fail, or none.
    pub fn fail_syncs(&self, error: Option<DiskError>) {
        self.page().sync_error.store(DiskError::errno(error), Ordering::Release);
    }

    /// Holds every sync for so long. Taking the delay back sets free those that are held.
    pub fn delay_syncs(&self, delay: Duration) {
        self.page().sync_delay_us.store(micros(delay), Ordering::Release);
    }

    /// Makes every write and allocation fail, or none.
    pub fn fail_writes(&self, error: Option<DiskError>) {
        self.page().write_error.store(DiskError::errno(error), Ordering::Release);
    }

    /// Holds every write for so long. Taking the delay back sets free those that are held.
    pub fn delay_writes(&self, delay: Duration) {
        self.page().write_delay_us.store(micros(delay), Ordering::Release);
    }

    /// Takes all faults back: right wall clock, real rate from now on, a sound disk. The
    /// monotonic clocks do not jump, so they keep what they have gained.
    pub fn heal(&self) {
        self.set_wall_offset_ns(0);
        self.set_rate_ppm(0);
        self.fail_syncs(None);
        self.delay_syncs(Duration::ZERO);
        self.fail_writes(None);
        self.delay_writes(Duration::ZERO);
    }

    /// What has been counted since the shim was made.
    #[must_use]
    pub fn counts(&self) -> ShimCounts {
        let read = |counter: &AtomicI64| counter.load(Ordering::Acquire);
        let page = self.page();
        ShimCounts {
            loads: read(&page.loads),
            clock_reads: read(&page.clock_reads),
            syncs: read(&page.syncs),
            syncs_failed: read(&page.syncs_failed),
            syncs_delayed: read(&page.syncs_delayed),
            writes: read(&page.writes),
            writes_failed: read(&page.writes_failed),
            writes_delayed: read(&page.writes_delayed),
        }
    }

    fn set_skew(&self, change: impl FnOnce(Skew, i64) -> Skew) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let page = self.page();
        page.set_skew(change(page.skew(), real_monotonic_ns()));
    }

    fn page(&self) -> &Page {
        self.mapping.page()
    }
}

fn micros(delay: Duration) -> i64 {
    i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)
}

fn real_monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}

/// The page in this process's memory.
#[derive(Debug)]
struct Mapping(*mut Page);

#[allow(unsafe_code, reason = "memory shared with another process")]
mod mapping {
    use super::*;

    // SAFETY: a page is made of atomic integers.
    unsafe impl Send for Mapping {}
    // SAFETY: as above.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(super) fn make(path: &Path) -> Result<Self> {
            let mut open = OpenOptions::new();
            let file = open.read(true).write(true).create_new(true).open(path);
            let file = file.with_context(|| format!("cannot make {}", path.display()))?;
            file.set_len(LENGTH as u64).context("cannot make a page")?;
            let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let at = std::ptr::null_mut();
            // SAFETY: a new mapping of a whole page that the file has.
            let at = unsafe { libc::mmap(at, LENGTH, access, shared, file.as_raw_fd(), 0) };
            if at == libc::MAP_FAILED {
                return Err(Errno::last()).context("cannot map a page");
            }
            Ok(Self(at.cast()))
        }

        pub(super) fn page(&self) -> &Page {
            // SAFETY: mapped until `drop`, page-aligned, and zeroes are a valid page.
            unsafe { &*self.0 }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: mapped by `make`; no reference outlives the owner.
            unsafe { libc::munmap(self.0.cast(), LENGTH) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_change_of_rate_does_not_move_the_clock() {
        let skew = Skew { base_ns: 5 * SECOND, offset_ns: 7 * SECOND, rate_ppm: 100_000 };
        let later = skew.at_rate(15 * SECOND, -500_000);
        assert_eq!(skew.shown(15 * SECOND), 23 * SECOND);
        assert_eq!(later.shown(15 * SECOND), 23 * SECOND);
        assert_eq!(later.shown(17 * SECOND), 24 * SECOND);
    }

    #[test]
    fn a_deadline_is_never_before_its_clock_shows_it() {
        for rate_ppm in [RATE_MIN_PPM, -333_333, -1, 0, 1, 77_777, RATE_MAX_PPM] {
            let skew = Skew { base_ns: 1_000, offset_ns: 123_456_789, rate_ppm };
            for real in [1_000, 1_001, 5 * SECOND + 3, 90_000 * SECOND] {
                let back = skew.real(skew.shown(real));
                assert!(skew.shown(back) >= skew.shown(real), "{rate_ppm} {real} {back}");
                assert!(skew.shown(back - 1) <= skew.shown(real), "{rate_ppm} {real} {back}");
            }
        }
    }

    #[test]
    fn nothing_overflows() {
        let skew = Skew { base_ns: i64::MIN, offset_ns: i64::MAX, rate_ppm: RATE_MAX_PPM };
        assert_eq!(skew.shown(i64::MAX), i64::MAX);
        assert_eq!(skew.at_rate(i64::MAX, i64::MAX).rate_ppm, RATE_MAX_PPM);
        assert_eq!(Skew { rate_ppm: RATE_MIN_PPM, ..skew }.lasts(i64::MAX), i64::MAX);
    }

    #[test]
    fn a_reader_never_sees_half_a_change() {
        let page = Page::default();
        let whole = |n: i64| Skew { base_ns: n, offset_ns: n, rate_ppm: n };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..200_000).for_each(|n| page.set_skew(whole(n))));
            let mut seen = 0;
            while !writer.is_finished() {
                let skew = page.skew();
                assert_eq!(skew, whole(skew.base_ns));
                assert!(skew.base_ns >= seen);
                seen = skew.base_ns;
            }
        });
    }
}
