//! Waiting for several descriptors at once, to the nanosecond.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;

/// What stands for the alarm among the numbers of the descriptors.
const ALARM: u64 = u64::MAX;

/// Descriptors told apart by their place, and an alarm.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    alarm: Arc<Alarm>,
}

/// Rings once, for good, from any thread.
#[derive(Debug)]
pub struct Alarm(File);

impl Alarm {
    /// Ends the wait of the [`Poll`] and every later one.
    pub fn ring(&self) {
        (&self.0).write_all(&1u64.to_ne_bytes()).expect("an event counter takes a first 1");
    }
}

#[allow(unsafe_code, reason = "epoll by the kernel's own interface")]
impl Poll {
    /// Waits for these to become readable; they must stay open as long as it does.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn over<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>) -> Result<Self> {
        // SAFETY: both calls return descriptors of our own, or -1, which `result` finds.
        let (epoll, counter) = unsafe {
            let epoll = Errno::result(libc::epoll_create1(libc::EPOLL_CLOEXEC))
                .context("cannot make an epoll")?;
            let epoll = OwnedFd::from_raw_fd(epoll);
            let counter = Errno::result(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))
                .context("cannot make an eventfd")?;
            (epoll, File::from_raw_fd(counter))
        };
        let poll = Self { epoll, alarm: Arc::new(Alarm(counter)) };
        for (place, descriptor) in (0u64..).zip(descriptors) {
            poll.add(descriptor, place)?;
        }
        poll.add(poll.alarm.0.as_fd(), ALARM)?;
        Ok(poll)
    }

    fn add(&self, descriptor: BorrowedFd<'_>, place: u64) -> Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: place };
        let (epoll, add) = (self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD);
        // SAFETY: the kernel copies the event during the call.
        let result = unsafe { libc::epoll_ctl(epoll, add, descriptor.as_raw_fd(), &raw mut event) };
        Errno::result(result).map(drop).context("cannot watch a descriptor")
    }

    /// Waits until a descriptor is readable or the time is over, and puts the places of the
    /// readable ones into `ready`. Returns whether the alarm has rung.
    pub fn wait(&self, limit: Option<Duration>, ready: &mut Vec<usize>) -> bool {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let room = events.len();
        // SAFETY: `events` has that much room, `limit` is null or outlives the call, and there
        // is no signal mask. (An `epoll_wait` would round the time to milliseconds.)
        let found = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                events.as_mut_ptr(),
                room,
                limit,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        // An interrupted wait found nothing.
        let found = usize::try_from(found).unwrap_or(0);
        let places = events[..found].iter().map(|event| event.u64);
        ready.extend(places.clone().filter_map(|place| usize::try_from(place).ok()));
        ready.retain(|place| *place as u64 != ALARM);
        places.into_iter().any(|place| place == ALARM)
    }

    /// What ends its waits.
    #[must_use]
    pub fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }
}
