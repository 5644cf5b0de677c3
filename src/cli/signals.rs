//! Signals that `lock` is sent, and passes on.

use std::future::poll_fn;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];

/// From its making on, these signals do not end the process: they wait here.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Listens. What the process was started to ignore (`nohup`) stays ignored,
    /// here and in the command.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen() -> std::io::Result<Self> {
        let ignored = ignored();
        let heeded = PASSED_ON.into_iter().filter(|&s| ignored & (1 << (s as u32 - 1)) == 0);
        let streams = heeded.map(|s| Ok((s, unix::signal(SignalKind::from_raw(s as i32))?)));
        streams.collect::<std::io::Result<_>>().map(Self)
    }

    /// The next one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next one that asks for an end; the others mean nothing before there is a
    /// command.
    pub async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
            if ends.contains(&signal) {
                return signal;
            }
        }
    }
}

/// The set of signals that this process ignores, signal n at bit n - 1. None where
/// the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
