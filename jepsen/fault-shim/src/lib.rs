//! A preload library (`LD_PRELOAD`) that gives one process other clocks and a failing disk.
//!
//! The harness maps a page ([`page::Page`]) into its own memory and into the process's, and
//! changes it while the process runs. Without a page every call goes straight through.
//!
//! - Clocks: the wall clock gets an offset; the monotonic clocks, `CLOCK_BOOTTIME` among them,
//!   get an offset and a rate. Deadlines and lengths of waits are turned back into real time,
//!   or a process whose clock stands ahead would wait for ever.
//! - Disk: on the files of one folder, syncs and writes are counted, held and made to fail.
//!
//! It acts on programs that call the C library through dynamic linking. A program that reads
//! the kernel's clock page or enters the kernel by itself is out of its reach, as are
//! `timerfd`, timed locks of pthread mutexes and rwlocks, `select` and `poll`.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use libc::{c_int, c_void};

mod clocks;
mod disk;
pub mod page;
mod real;
mod waits;

use page::Page;

static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());

/// The page of this process, if it was given one.
fn page() -> Option<&'static Page> {
    // SAFETY: the pointer is null or a mapping of a whole page that is never unmapped; zeroes
    // and whatever the harness writes are valid, as every field is an atomic integer.
    unsafe { PAGE.load(Ordering::Acquire).as_ref() }
}

fn count(counter: &AtomicI64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// Ends the process before it can be taken for one that is under faults.
fn refuse(why: &CStr) -> ! {
    for piece in [c"ringfence-fault-shim: ", why, c"\n"] {
        // SAFETY: writes bytes that are there to standard error.
        unsafe { libc::write(2, piece.as_ptr().cast(), piece.count_bytes()) };
    }
    // SAFETY: ends the process without running anything of it.
    unsafe { libc::_exit(125) }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = load;

extern "C" fn load() {
    let Some(path) = variable(page::PAGE_VARIABLE) else { return };
    let Some(mapped) = map(&path) else {
        refuse(c"RINGFENCE_FAULT_PAGE names no page that can be mapped");
    };
    PAGE.store(mapped, Ordering::Release);
    let Some(page) = page() else { return };
    if !page.is_ours() {
        refuse(c"the page is of another build: build jepsen and the library together");
    }
    disk::watch(variable(page::FOLDER_VARIABLE));
    count(&page.loads);
}

fn variable(name: &str) -> Option<CString> {
    let name = CString::new(name).ok()?;
    // SAFETY: at load no other thread changes the environment; the value is copied at once.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_owned())
    }
}

fn map(path: &CStr) -> Option<*mut Page> {
    let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: the path ends in a zero byte; the file is checked to hold the whole page before
    // it is mapped, and the descriptor is this function's own.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let mut about: libc::stat = std::mem::zeroed();
        let holds = libc::fstat(file, &raw mut about) == 0 && about.st_size >= page::LENGTH as i64;
        let at = if holds {
            libc::mmap(std::ptr::null_mut(), page::LENGTH, read_write, shared, file, 0)
        } else {
            libc::MAP_FAILED
        };
        libc::close(file);
        (at != libc::MAP_FAILED).then_some(at.cast::<c_void>().cast())
    }
}
