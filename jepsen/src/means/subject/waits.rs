//! The ways in which the product, its libraries and the standard library wait.

use std::sync::{Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How many ways there are.
pub const WAITS: usize = 8;

/// Which of them goes by the wall clock; all others go by the monotonic clock.
pub const WAIT_BY_WALL: usize = 6;

/// Waits for so long in each way, and returns how long each took by `Instant`, in nanoseconds.
pub fn each(wanted: Duration) -> Vec<i64> {
    let ways: [fn(Duration); WAITS] = [
        thread::sleep,
        thread::park_timeout,
        receive,
        condition,
        tokio_sleep,
        tokio_task,
        |wanted| c_condition(libc::CLOCK_REALTIME, wanted),
        |wanted| c_condition(libc::CLOCK_MONOTONIC, wanted),
    ];
    ways.iter()
        .map(|wait| {
            let start = Instant::now();
            wait(wanted);
            super::served::nanos(start.elapsed())
        })
        .collect()
}

fn receive(wanted: Duration) {
    let (_sender, receiver) = mpsc::channel::<()>();
    receiver.recv_timeout(wanted).expect_err("nobody sends");
}

fn condition(wanted: Duration) {
    let (mutex, condition) = (Mutex::new(()), Condvar::new());
    let guard = mutex.lock().expect("nobody panics with it");
    drop(condition.wait_timeout(guard, wanted).expect("nobody panics with it"));
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.enable_all().worker_threads(1).build().expect("threads can be started")
}

fn tokio_sleep(wanted: Duration) {
    runtime().block_on(async { tokio::time::sleep(wanted).await });
}

fn tokio_task(wanted: Duration) {
    let runtime = runtime();
    let task = runtime.spawn(async move { tokio::time::sleep(wanted).await });
    runtime.block_on(task).expect("a sleep does not panic");
}

/// Wakes whoever waits for a word that is nobody else's. The fourth argument, which a wake does
/// not have, is an address that cannot be read, as it may be when a register is left as it was.
#[allow(unsafe_code, reason = "a futex by the kernel's own interface")]
pub fn wake_nobody() -> i64 {
    let (word, junk) = (0u32, 1usize);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a wake looks at the word's address only.
    unsafe { libc::syscall(libc::SYS_futex, &raw const word, operation, 1, junk) }
}

/// `pthread_cond_timedwait` on a condition of this clock: RocksDB waits by the wall clock.
#[allow(unsafe_code, reason = "the C library's condition variables")]
fn c_condition(clock: libc::clockid_t, wanted: Duration) {
    // SAFETY: everything is initialised in this order before it is used, by one thread, does
    // not move in between, and is destroyed last.
    unsafe {
        let mut attributes: libc::pthread_condattr_t = std::mem::zeroed();
        let mut condition: libc::pthread_cond_t = std::mem::zeroed();
        let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
        libc::pthread_condattr_init(&raw mut attributes);
        libc::pthread_condattr_setclock(&raw mut attributes, clock);
        libc::pthread_cond_init(&raw mut condition, &raw const attributes);
        let mut until: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &raw mut until);
        until.tv_nsec += i64::from(wanted.subsec_nanos());
        until.tv_sec += wanted.as_secs().cast_signed() + until.tv_nsec / 1_000_000_000;
        until.tv_nsec %= 1_000_000_000;
        libc::pthread_mutex_lock(&raw mut mutex);
        while libc::pthread_cond_timedwait(&raw mut condition, &raw mut mutex, &raw const until)
            == 0
        {}
        libc::pthread_mutex_unlock(&raw mut mutex);
        libc::pthread_cond_destroy(&raw mut condition);
        libc::pthread_condattr_destroy(&raw mut attributes);
    }
}
