//! The terminal belongs to one process group at a time: while the command runs, to
//! the command's.

use std::io::IsTerminal;

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::child::Group;

/// The terminal, lent to the command. Dropped, it is taken back.
#[derive(Debug)]
pub struct Lent {
    owner: Pid,
}

impl Lent {
    /// Lends the terminal at stdin, if there is one and it is ours to lend: a job in
    /// the background has none.
    pub fn to(group: Group) -> Option<Self> {
        let stdin = std::io::stdin();
        let owner = getpgrp();
        if !stdin.is_terminal() || tcgetpgrp(&stdin) != Ok(owner) {
            return None;
        }
        tcsetpgrp(&stdin, group.id()).ok()?;
        // A command that read from it before it was lent was stopped for that.
        group.signal(Signal::SIGCONT);
        // From the background, taking it back, and perhaps writing to it, would stop
        // this process.
        let _ = background().thread_block();
        Some(Self { owner })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // A terminal that hung up is nobody's.
        let _ = tcsetpgrp(std::io::stdin(), self.owner);
        let _ = background().thread_unblock();
    }
}

fn background() -> SigSet {
    SigSet::from(Signal::SIGTTOU)
}
