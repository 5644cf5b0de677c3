//! Reading clocks, and sleeping by them.

use std::sync::atomic::Ordering;

use libc::{c_int, clockid_t, time_t, timespec, timeval};

use crate::page::Skew;
use crate::real::real;
use crate::{count, page};

const SECOND: i64 = 1_000_000_000;

/// Which of the page's two clocks a clock of the kernel belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Offset only.
    Wall,
    /// Offset and rate.
    Monotonic,
    /// CPU time and others: left alone.
    Other,
}

/// The kind of a clock of the kernel.
pub fn kind(clock: clockid_t) -> Kind {
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => Kind::Wall,
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME => Kind::Monotonic,
        _ => Kind::Other,
    }
}

/// Nanoseconds of a time of the kernel.
pub fn nanos(time: timespec) -> i64 {
    time.tv_sec.saturating_mul(SECOND).saturating_add(time.tv_nsec)
}

/// The time of the kernel with so many nanoseconds.
pub fn timespec(nanos: i64) -> timespec {
    timespec { tv_sec: nanos.div_euclid(SECOND), tv_nsec: nanos.rem_euclid(SECOND) }
}

/// What a clock of this kind shows when the real one shows this.
fn shown(kind: Kind, real_ns: i64) -> i64 {
    let Some(page) = page() else { return real_ns };
    match kind {
        Kind::Wall => real_ns.saturating_add(page.wall_offset_ns.load(Ordering::Relaxed)),
        Kind::Monotonic => page.skew().shown(real_ns),
        Kind::Other => real_ns,
    }
}

/// The real deadline for one that the process has read off a clock of this kind. Negative
/// ones, which the kernel would refuse, have passed.
pub fn deadline(kind: Kind, shown: timespec) -> timespec {
    let Some(page) = page() else { return shown };
    let shown_ns = nanos(shown);
    let real_ns = match kind {
        Kind::Wall => shown_ns.saturating_sub(page.wall_offset_ns.load(Ordering::Relaxed)),
        Kind::Monotonic => page.skew().real(shown_ns),
        Kind::Other => return shown,
    };
    timespec(real_ns.max(0))
}

/// The real length of a wait that the process means by its own clock.
pub fn length(shown: timespec) -> timespec {
    match page().map(|page| page.skew()) {
        Some(skew) if skew.rate_ppm != 0 && shown.tv_sec >= 0 => timespec(skew.lasts(nanos(shown))),
        Some(Skew { .. }) | None => shown,
    }
}

/// The real clock.
pub fn read_real(clock: clockid_t, into: *mut timespec) -> c_int {
    type Function = unsafe extern "C" fn(clockid_t, *mut timespec) -> c_int;
    let real = real!(c"clock_gettime" as Function);
    // SAFETY: passes on what the caller of the C function gave.
    unsafe { real(clock, into) }
}

/// `clock_gettime(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, into: *mut timespec) -> c_int {
    let result = read_real(clock, into);
    let Some(page) = page() else { return result };
    if result == 0 && kind(clock) != Kind::Other {
        count(&page.clock_reads);
        // SAFETY: the kernel has just written a time there.
        unsafe { *into = timespec(shown(kind(clock), nanos(*into))) };
    }
    result
}

fn wall() -> timespec {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` outlives the call.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut now) };
    now
}

/// `gettimeofday(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(into: *mut timeval, _zone: *mut libc::c_void) -> c_int {
    let now = wall();
    if !into.is_null() {
        // SAFETY: the caller gives a place for the answer.
        unsafe { *into = timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1000 } };
    }
    0
}

/// `time(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(into: *mut time_t) -> time_t {
    let now = wall().tv_sec;
    if !into.is_null() {
        // SAFETY: the caller gives a place for the answer, or null.
        unsafe { *into = now };
    }
    now
}

/// `nanosleep(2)`. What remains after a signal is told in real time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(wanted: *const timespec, left: *mut timespec) -> c_int {
    type Function = unsafe extern "C" fn(*const timespec, *mut timespec) -> c_int;
    let real = real!(c"nanosleep" as Function);
    // SAFETY: a null goes to the C library as it came; else the caller gives a time to read.
    unsafe {
        match wanted.as_ref() {
            Some(&wanted) => real(&length(wanted), left),
            None => real(wanted, left),
        }
    }
}

/// `clock_nanosleep(2)`. What remains after a signal is told in real time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    wanted: *const timespec,
    left: *mut timespec,
) -> c_int {
    type Function = unsafe extern "C" fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int;
    let real = real!(c"clock_nanosleep" as Function);
    // SAFETY: a null goes to the C library as it came; else the caller gives a time to read.
    unsafe {
        let Some(&wanted) = wanted.as_ref() else { return real(clock, flags, wanted, left) };
        let converted = if flags & libc::TIMER_ABSTIME != 0 {
            deadline(kind(clock), wanted)
        } else {
            length(wanted)
        };
        real(clock, flags, &raw const converted, left)
    }
}
