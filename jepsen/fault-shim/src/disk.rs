//! Syncs and writes on the files of one folder: counted, held, made to fail.

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t, timespec};

use crate::clocks::{nanos, read_real};
use crate::page::Page;
use crate::real::real;
use crate::{count, page, set_errno};

/// How often a held call looks whether it still has to wait.
const LOOK: timespec = timespec { tv_sec: 0, tv_nsec: 5_000_000 };

static FOLDER: OnceLock<CString> = OnceLock::new();

/// From here on the faults act on files of this folder.
pub fn watch(folder: Option<CString>) {
    if let Some(folder) = folder {
        FOLDER.get_or_init(|| folder);
    }
}

/// The page, if the descriptor is the folder itself, or a file or folder in it.
fn page_for(file: c_int) -> Option<&'static Page> {
    let page = page()?;
    let folder = FOLDER.get()?.as_bytes();
    // SAFETY: `about` and `path` outlive the calls that fill them; the link's text ends in the
    // zero byte that `link` starts out with.
    unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        if libc::fstat(file, &raw mut about) != 0 {
            return None;
        }
        // Sockets and pipes, which are written most, cost no more than that.
        if !matches!(about.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR) {
            return None;
        }
        let mut link = [0u8; 32];
        libc::snprintf(link.as_mut_ptr().cast(), link.len(), c"/proc/self/fd/%d".as_ptr(), file);
        let mut path = [0u8; libc::PATH_MAX as usize];
        let length = libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len());
        let path = path.get(..usize::try_from(length).ok()?)?;
        let rest = path.strip_prefix(folder)?;
        matches!(rest, [] | [b'/', ..]).then_some(page)
    }
}

/// One class of calls: what is asked of it and where it is counted.
struct Faults {
    error: &'static AtomicI64,
    delay_us: &'static AtomicI64,
    calls: &'static AtomicI64,
    failed: &'static AtomicI64,
    delayed: &'static AtomicI64,
}

fn of_syncs(page: &'static Page) -> Faults {
    Faults {
        error: &page.sync_error,
        delay_us: &page.sync_delay_us,
        calls: &page.syncs,
        failed: &page.syncs_failed,
        delayed: &page.syncs_delayed,
    }
}

fn of_writes(page: &'static Page) -> Faults {
    Faults {
        error: &page.write_error,
        delay_us: &page.write_delay_us,
        calls: &page.writes,
        failed: &page.writes_failed,
        delayed: &page.writes_delayed,
    }
}

impl Faults {
    /// Counts the call, holds it as long as it is to be held, and says how it is to fail.
    fn strike(&self) -> Option<c_int> {
        count(self.calls);
        if self.delay_us.load(Ordering::Acquire) > 0 {
            count(self.delayed);
            self.hold();
        }
        let errno = c_int::try_from(self.error.load(Ordering::Acquire)).unwrap_or(libc::EIO);
        (errno != 0).then(|| {
            count(self.failed);
            errno
        })
    }

    /// Ends early when the delay is taken back.
    fn hold(&self) {
        type Sleep = unsafe extern "C" fn(*const timespec, *mut timespec) -> c_int;
        let sleep = real!(c"nanosleep" as Sleep);
        let start = real_now();
        let held_us = || real_now().saturating_sub(start) / 1000;
        while held_us() < self.delay_us.load(Ordering::Acquire) {
            // SAFETY: the time lives for ever and nothing is asked back.
            unsafe { sleep(&LOOK, std::ptr::null_mut()) };
        }
    }
}

fn real_now() -> i64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    read_real(libc::CLOCK_MONOTONIC, &raw mut now);
    nanos(now)
}

fn sync_fails(file: c_int) -> bool {
    fails(page_for(file).map(of_syncs))
}

fn write_fails(file: c_int) -> bool {
    fails(page_for(file).map(of_writes))
}

/// Whether the call is to fail; errno is set then, and left alone otherwise.
fn fails(faults: Option<Faults>) -> bool {
    match faults.and_then(|faults| faults.strike()) {
        Some(errno) => {
            set_errno(errno);
            true
        }
        None => false,
    }
}

macro_rules! stand_in {
    ($(#[doc = $doc:literal])* $fails:ident, $symbol:literal:
        $name:ident($first:ident: c_int $(, $rest:ident: $type:ty)*) -> $result:ty) => {
        $(#[doc = $doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($first: c_int $(, $rest: $type)*) -> $result {
            type Function = unsafe extern "C" fn(c_int $(, $type)*) -> $result;
            if $fails($first) {
                return -1;
            }
            let real = real!($symbol as Function);
            // SAFETY: what the caller gave goes to the C library as it came.
            unsafe { real($first $(, $rest)*) }
        }
    };
}

stand_in!(/// `fsync(2)`.
    sync_fails, c"fsync": fsync(file: c_int) -> c_int);
stand_in!(/// `fdatasync(2)`.
    sync_fails, c"fdatasync": fdatasync(file: c_int) -> c_int);
stand_in!(/// `write(2)`.
    write_fails, c"write": write(file: c_int, bytes: *const c_void, n: size_t) -> ssize_t);
stand_in!(/// `writev(2)`.
    write_fails, c"writev": writev(file: c_int, pieces: *const iovec, n: c_int) -> ssize_t);
stand_in!(/// `pwrite(2)`.
    write_fails, c"pwrite":
    pwrite(file: c_int, bytes: *const c_void, n: size_t, at: off_t) -> ssize_t);
stand_in!(/// `pwrite(2)` under its other name.
    write_fails, c"pwrite64":
    pwrite64(file: c_int, bytes: *const c_void, n: size_t, at: off_t) -> ssize_t);
stand_in!(/// `fallocate(2)`, with which RocksDB takes the room for its log.
    write_fails, c"fallocate":
    fallocate(file: c_int, mode: c_int, at: off_t, n: off_t) -> c_int);
