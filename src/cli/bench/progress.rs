//! That something goes on: on stderr, for people.

use std::io::{IsTerminal, Write};

/// One line, written over itself on a terminal; elsewhere its first state only.
#[derive(Debug)]
pub struct Progress {
    what: String,
    terminal: bool,
}

impl Progress {
    /// Something begins.
    pub fn begin(what: String) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let progress = Self { what, terminal };
        let end = if terminal { "" } else { "\n" };
        write(&format!("{} …{end}", progress.what));
        progress
    }

    /// It has come this far.
    pub fn at(&self, far: &str) {
        if self.terminal {
            write(&format!("\r\x1b[K{}: {far}", self.what));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            write("\r\x1b[K");
        }
    }
}

fn write(text: &str) {
    // Nobody is left to tell when the terminal is gone.
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
