//! What goes to stdout: tables for people, or JSON.

use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

use comfy_table::{Table, presets};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tokio::sync::oneshot;

use super::exit::Failure;

/// How answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people; its layout may change
    Table,
    /// One document with stable field names; of what goes on, one object a line
    Json,
}

/// Writes text to stdout. A reader that has gone (`| head`) is no error.
///
/// # Errors
/// What stdout says.
pub fn text(text: &str) -> Result<(), Failure> {
    write(text).map(|_| ())
}

/// Writes text to stdout. False if its reader has gone.
fn write(text: &str) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

/// Writes one line of many. False if its reader has gone, and there is no use in more.
///
/// # Errors
/// What stdout says.
pub fn line(line: &str) -> Result<bool, Failure> {
    write(&format!("{line}\n"))
}

/// Writes one JSON object on a line of its own, one of many. False as for [`line`].
///
/// # Errors
/// What stdout says.
pub fn json_line(value: &impl Serialize) -> Result<bool, Failure> {
    line(&serde_json::to_string(value).map_err(std::io::Error::from)?)
}

/// Resolves when nobody reads stdout any more, also when there is nothing to write for
/// long. Never of a file.
pub async fn reader_gone() {
    let (gone, told) = oneshot::channel();
    // It goes down with the process.
    std::thread::spawn(move || {
        let stdout = std::io::stdout();
        // Without a wish poll tells errors only, and the end of a pipe's reader is one.
        let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        while poll(&mut watched, PollTimeout::NONE) == Err(Errno::EINTR) {}
        let _ = gone.send(());
    });
    let _ = told.await;
}

/// Writes one JSON document.
///
/// # Errors
/// What stdout says.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let document = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
    text(&format!("{document}\n"))
}

/// Rows under a header, one line each, as wide as they need.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table.add_rows(rows.into_iter().map(|row| row.into_iter().map(|cell| shown(&cell))));
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The text with its control characters escaped: labels come from anybody, and a
/// terminal obeys what it is sent.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// What stands for nothing in a table.
pub const NONE: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_one_line_per_row_and_no_blanks_at_its_end() {
        let rows =
            [vec!["job/7".to_owned(), "41".to_owned()], vec!["a".to_owned(), NONE.to_owned()]];
        assert_eq!(table(&["NAME", "TOKEN"], rows), "NAME    TOKEN\njob/7   41\na       -\n");
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(shown("é\u{1b}[2J\n"), "é\\u{1b}[2J\\n");
    }
}
