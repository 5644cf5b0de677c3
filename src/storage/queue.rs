//! The one FIFO between everyone who asks and the one thread that writes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::op::{Op, stopped};
use super::options::StorageOptions;

pub(super) struct Queue {
    state: Mutex<State>,
    /// The writer has something to do.
    work: Condvar,
    /// There is room again, for threads and for tasks.
    room: Condvar,
    room_async: Notify,
    limits: Limits,
}

struct Limits {
    group_bytes: usize,
    group_operations: usize,
    queue_bytes: usize,
    linger: Duration,
}

#[derive(Default)]
struct State {
    ops: VecDeque<Op>,
    /// Sum of `Op::bytes` over `ops`.
    bytes: usize,
    /// Operations in `ops` that somebody waits for.
    awaited: usize,
    /// Set once: nothing is accepted any more, for this reason.
    stopped: Option<Arc<str>>,
}

impl Queue {
    pub fn new(options: &StorageOptions) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            room_async: Notify::new(),
            limits: Limits {
                group_bytes: options.group_bytes,
                group_operations: options.group_operations,
                queue_bytes: options.queue_bytes,
                linger: options.linger,
            },
        }
    }

    /// Queues it behind everything queued before. Never waits.
    ///
    /// # Errors
    /// The storage has stopped; the operation has been answered so.
    pub fn push(&self, op: Op) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(why) = state.stopped.clone() {
            drop(state);
            op.fail(&why);
            return Err(stopped(&why));
        }
        let was_empty = state.ops.is_empty();
        let was_urgent = state.is_urgent(&self.limits);
        state.bytes += op.bytes();
        state.awaited += usize::from(op.is_awaited());
        state.ops.push_back(op);
        // Anything further finds the writer on its way.
        if was_empty || (!was_urgent && state.is_urgent(&self.limits)) {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Waits until the writer is no further behind than the limit. Only a disk that
    /// does not keep up makes this wait.
    pub async fn room(&self) {
        loop {
            let freed = self.room_async.notified();
            if self.has_room(&self.state.lock()) {
                return;
            }
            freed.await;
        }
    }

    /// As [`Self::room`], for a caller that is no task.
    pub fn room_blocking(&self) {
        let mut state = self.state.lock();
        while !self.has_room(&state) {
            self.room.wait(&mut state);
        }
    }

    /// Waits for the next group and moves it into `group`, in order. What nobody
    /// waits for is left to gather for a while. False when the queue has been closed
    /// and is empty.
    pub fn take(&self, group: &mut Vec<Op>) -> bool {
        let mut state = self.state.lock();
        while state.stopped.is_none() && !state.is_urgent(&self.limits) {
            if state.ops.is_empty() {
                self.work.wait(&mut state);
            } else if self.work.wait_for(&mut state, self.limits.linger).timed_out() {
                break;
            }
        }
        if state.ops.is_empty() {
            return false;
        }
        let mut bytes = 0;
        while group.len() < self.limits.group_operations && bytes < self.limits.group_bytes {
            let Some(op) = state.ops.pop_front() else { break };
            bytes += op.bytes();
            state.awaited -= usize::from(op.is_awaited());
            // A view is of what came before it and of nothing after.
            let ends_group = matches!(op, Op::View(_));
            group.push(op);
            if ends_group {
                break;
            }
        }
        state.bytes -= bytes;
        drop(state);
        self.room.notify_all();
        self.room_async.notify_waiters();
        true
    }

    /// Accepts nothing more, and hands the writer what is there.
    pub fn close(&self, why: &str) {
        let mut state = self.state.lock();
        state.stopped.get_or_insert_with(|| why.into());
        self.work.notify_one();
    }

    /// Accepts nothing more, and answers everything that is there with `why`.
    pub fn fail(&self, why: &Arc<str>) {
        let ops = {
            let mut state = self.state.lock();
            state.stopped = Some(Arc::clone(why));
            state.bytes = 0;
            state.awaited = 0;
            std::mem::take(&mut state.ops)
        };
        self.room.notify_all();
        self.room_async.notify_waiters();
        for op in ops {
            op.fail(why);
        }
    }

    /// Why nothing is accepted any more.
    pub fn stopped(&self) -> Option<io::Error> {
        self.state.lock().stopped.as_ref().map(stopped)
    }

    fn has_room(&self, state: &State) -> bool {
        state.bytes < self.limits.queue_bytes || state.stopped.is_some()
    }
}

impl State {
    fn is_urgent(&self, limits: &Limits) -> bool {
        self.awaited > 0 || self.bytes >= limits.group_bytes
    }
}
