//! What happened in a run, as it was seen from outside.
//!
//! Two events make an operation: its invocation, and its completion, which says `ok`, `fail`
//! (it certainly had no effect) or `info` (nobody knows, and it may still take effect later).
//! [`Journal`] writes events to `history.jsonl` as they happen and keeps the rules of histories;
//! [`read`] reads them back under the same rules; [`pairs`] joins the two events of each
//! operation. `edn` and `text` write the forms that other checkers and people read.

pub mod edn;
pub mod journal;
pub mod op;
pub mod pair;
pub mod rules;
pub mod text;

pub use journal::{Completion, Journal, read};
pub use op::{Kind, Op, Process};
pub use pair::{Call, pairs};

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result};

/// The events of the history in `folder`, in order.
///
/// # Errors
/// There is no `history.jsonl`. What is wrong within it is told by the iterator.
pub fn open(folder: &Path) -> Result<impl Iterator<Item = Result<Op>> + use<>> {
    let path = folder.join("history.jsonl");
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(read(BufReader::with_capacity(1 << 20, file)))
}

/// Writes the other forms of the history in `folder` beside it: `history.edn`, `history.txt` and
/// `independent/`.
///
/// # Errors
/// The history breaks a rule, or a file cannot be written.
pub fn export(folder: &Path) -> Result<()> {
    edn::export(open(folder)?, &folder.join("history.edn"))?;
    text::export(open(folder)?, &folder.join("history.txt"))?;
    edn::export_independent(open(folder)?, folder)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_history_is_read_in_order_and_exported_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(&folder.path().join("history.jsonl")).unwrap();
        for time in 0..9_000 {
            journal.invoke(time, 0, "get", json!({"resource": "a"}), None).unwrap();
            journal.complete(time, 0, Completion::new(Kind::Ok, json!({"holders": []}))).unwrap();
        }
        let ops: Vec<Op> = open(folder.path()).unwrap().collect::<Result<_>>().unwrap();
        assert_eq!(ops.len(), 18_000);
        assert_eq!(edn::fault(&ops), None);
        export(folder.path()).unwrap();
        for name in ["history.edn", "history.txt", "independent/a/history.edn"] {
            let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert_eq!(text.lines().count(), 18_000, "{name}");
        }
    }
}
