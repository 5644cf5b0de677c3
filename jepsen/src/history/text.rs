//! `history.txt`: one event a line in columns, for people.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::op::Op;

/// One event: milliseconds, process, kind, name, value, error and node, between tabs.
pub fn line(op: &Op) -> String {
    let ms = op.time / 1_000_000;
    let rest = op.time / 1_000 % 1_000;
    let process = op.process.to_string();
    let kind = op.kind.word();
    let mut line = format!("{ms:>7}.{rest:03}\t{process}\t:{kind}\t:{}\t{}", op.f, op.value);
    for more in [&op.error, &op.node].into_iter().flatten() {
        line.push('\t');
        line.push_str(more);
    }
    line
}

/// Writes all events to `path`, in order.
///
/// # Errors
/// An event cannot be read or the file cannot be written.
pub fn export(ops: impl Iterator<Item = Result<Op>>, path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::new(file);
    for op in ops {
        writeln!(out, "{}", line(&op?))?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_in_columns() {
        let op: Op = serde_json::from_str(
            r#"{"index":0,"time":12003456,"process":3,"type":"fail","f":"release","value":{"token":7},"error":"NOT_HELD","node":"n1"}"#,
        )
        .unwrap();
        assert_eq!(line(&op), "     12.003\t3\t:fail\t:release\t{\"token\":7}\tNOT_HELD\tn1");
    }
}
