//! Waits that end at a deadline or after a length: futexes, condition variables, semaphores
//! and epoll.

use libc::{
    c_int, c_long, clockid_t, epoll_event, pthread_cond_t, pthread_mutex_t, sem_t, sigset_t,
    timespec,
};

use crate::clocks::{Kind, deadline, kind, length};
use crate::page;
use crate::real::real;

/// A deadline below this many seconds is none of the wall clock, which passed it in 2001. The
/// harness keeps the origins of monotonic clocks below it.
const WALL_SECONDS_MIN: i64 = 1_000_000_000;

/// `syscall(2)`, through which Rust's standard library and `parking_lot` wait on futexes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    type Function =
        unsafe extern "C" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;
    let real = real!(c"syscall" as Function);
    // Whoever calls with fewer arguments leaves anything at all in the others: only in a wait
    // may `d` be read.
    let real_time = match futex_wait(b as c_int) {
        Some(wait) if number == libc::SYS_futex && d != 0 && page().is_some() => {
            // SAFETY: a futex wait has a fourth argument, which is null or the address of a
            // time that the caller keeps alive.
            Some(wait(unsafe { *(d as *const timespec) }))
        }
        Some(_) | None => None,
    };
    let d = real_time.as_ref().map_or(d, |time| std::ptr::from_ref(time) as c_long);
    // SAFETY: the call goes to the C library as it came, but for the time.
    unsafe { real(number, a, b, c, d, e, f) }
}

/// What turns the time of a futex operation into real time, if it is one that waits.
fn futex_wait(operation: c_int) -> Option<fn(timespec) -> timespec> {
    match operation & libc::FUTEX_CMD_MASK {
        libc::FUTEX_WAIT => Some(length),
        libc::FUTEX_WAIT_BITSET if operation & libc::FUTEX_CLOCK_REALTIME != 0 => {
            Some(|time| deadline(Kind::Wall, time))
        }
        libc::FUTEX_WAIT_BITSET => Some(|time| deadline(Kind::Monotonic, time)),
        _ => None,
    }
}

/// `pthread_cond_timedwait(3)`. The clock is one of the condition's attributes, which cannot be
/// asked for; the size of the deadline tells it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    type Function =
        unsafe extern "C" fn(*mut pthread_cond_t, *mut pthread_mutex_t, *const timespec) -> c_int;
    // On x86-64 the plain name may give the condition variables of before 2003.
    let real = real!(c"pthread_cond_timedwait" at c"GLIBC_2.3.2" as Function);
    // SAFETY: the deadline must be there by the function's contract; the rest goes as it came.
    unsafe {
        let clock = if (*until).tv_sec < WALL_SECONDS_MIN { Kind::Monotonic } else { Kind::Wall };
        let until = deadline(clock, *until);
        real(condition, mutex, &raw const until)
    }
}

/// `pthread_cond_clockwait(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    type Function = unsafe extern "C" fn(
        *mut pthread_cond_t,
        *mut pthread_mutex_t,
        clockid_t,
        *const timespec,
    ) -> c_int;
    let real = real!(c"pthread_cond_clockwait" as Function);
    // SAFETY: the deadline must be there by the function's contract; the rest goes as it came.
    unsafe {
        let until = deadline(kind(clock), *until);
        real(condition, mutex, clock, &raw const until)
    }
}

/// `sem_timedwait(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_timedwait(semaphore: *mut sem_t, until: *const timespec) -> c_int {
    type Function = unsafe extern "C" fn(*mut sem_t, *const timespec) -> c_int;
    let real = real!(c"sem_timedwait" as Function);
    // SAFETY: the deadline must be there by the function's contract; the rest goes as it came.
    unsafe {
        let until = deadline(Kind::Wall, *until);
        real(semaphore, &raw const until)
    }
}

/// `sem_clockwait(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sem_clockwait(
    semaphore: *mut sem_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    type Function = unsafe extern "C" fn(*mut sem_t, clockid_t, *const timespec) -> c_int;
    let real = real!(c"sem_clockwait" as Function);
    // SAFETY: the deadline must be there by the function's contract; the rest goes as it came.
    unsafe {
        let until = deadline(kind(clock), *until);
        real(semaphore, clock, &raw const until)
    }
}

/// `epoll_wait(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int) -> c_int;
    let real = real!(c"epoll_wait" as Function);
    // SAFETY: all but the timeout goes as it came.
    unsafe { real(epoll, events, room, real_ms(timeout_ms)) }
}

/// `epoll_pwait(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    room: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    type Function =
        unsafe extern "C" fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    let real = real!(c"epoll_pwait" as Function);
    // SAFETY: all but the timeout goes as it came.
    unsafe { real(epoll, events, room, real_ms(timeout_ms), mask) }
}

/// The real timeout, rounded up; zero and "for ever" stay what they are.
fn real_ms(shown_ms: c_int) -> c_int {
    if shown_ms <= 0 {
        return shown_ms;
    }
    let Some(page) = page() else { return shown_ms };
    let nanos = page.skew().lasts(i64::from(shown_ms) * 1_000_000);
    c_int::try_from((nanos + 999_999) / 1_000_000).unwrap_or(c_int::MAX)
}
