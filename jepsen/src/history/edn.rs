//! `history.edn`: the form that Knossos and Elle read. One map a line, keywords in kebab-case.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::op::{Kind, Op, Process};

/// Fields whose text is one of a few words, and so a keyword.
const WORDS: &[&str] = &["mode", "outcome", "phase", "cause", "role"];

/// How many events are held while the histories of resources are written.
const HELD_MAX: u32 = 16_384;

/// One event as an EDN map, without a line end.
pub fn line(op: &Op) -> String {
    let mut out = format!("{{:index {}, :time {}, :process ", op.index, op.time);
    match op.process {
        Process::Client(number) => put(&mut out, format_args!("{number}")),
        Process::Nemesis => out.push_str(":nemesis"),
    }
    put(&mut out, format_args!(", :type :{}, :f {}, :value ", op.kind.word(), keyword(&op.f)));
    value(&mut out, &op.value, false);
    if let Some(error) = &op.error {
        out.push_str(", :error ");
        word(&mut out, error);
    }
    if let Some(node) = &op.node {
        out.push_str(", :node ");
        text(&mut out, node);
    }
    if let Some(term) = op.term {
        put(&mut out, format_args!(", :term {term}"));
    }
    if let Some(index) = op.log_index {
        put(&mut out, format_args!(", :log-index {index}"));
    }
    out.push('}');
    out
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

/// Writes for each resource the events of the clients that name it, to
/// `independent/<resource>/history.edn` under `folder`, with indexes of their own. The name of
/// the folder is the resource's with everything but letters, digits, `.`, `_` and `-` as `%` and
/// two hexadecimal digits. What names no resource, a renewal say, is in none of them.
///
/// # Errors
/// An event cannot be read or a file cannot be written.
pub fn export_independent(ops: impl Iterator<Item = Result<Op>>, folder: &Path) -> Result<()> {
    let folder = folder.join("independent");
    let mut files: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut held = 0;
    for op in ops {
        let mut op = op?;
        let Some(resource) = op.value.get("resource").and_then(Value::as_str) else { continue };
        if op.process == Process::Nemesis {
            continue;
        }
        let (next, lines) = files.entry(directory(resource)).or_default();
        op.index = *next;
        *next += 1;
        lines.push_str(&line(&op));
        lines.push('\n');
        held += 1;
        if held == HELD_MAX {
            flush(&folder, &mut files)?;
            held = 0;
        }
    }
    flush(&folder, &mut files)
}

/// Appends what is held of each file, and keeps its count.
fn flush(folder: &Path, files: &mut BTreeMap<String, (u64, String)>) -> Result<()> {
    for (name, (_, lines)) in files.iter_mut().filter(|(_, (_, lines))| !lines.is_empty()) {
        let path = folder.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let file = File::options().append(true).create(true).open(path.join("history.edn"));
        file.with_context(|| format!("cannot write to {}", path.display()))?
            .write_all(lines.as_bytes())?;
        lines.clear();
    }
    Ok(())
}

/// A resource's name as that of one folder.
pub fn directory(resource: &str) -> String {
    let mut name = String::new();
    for byte in resource.bytes() {
        let dot = byte == b'.' && !name.is_empty();
        if byte.is_ascii_alphanumeric() || dot || matches!(byte, b'_' | b'-') {
            name.push(char::from(byte));
        } else {
            put(&mut name, format_args!("%{byte:02x}"));
        }
    }
    name
}

/// A word of ours as a keyword.
pub fn keyword(word: &str) -> String {
    format!(":{}", word.replace(['_', ' '], "-").replace(',', "").to_ascii_lowercase())
}

fn put(out: &mut String, what: std::fmt::Arguments<'_>) {
    out.write_fmt(what).expect("a string takes all that is written to it");
}

/// A keyword if it can be one, else text.
fn word(out: &mut String, of: &str) {
    let first = of.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    if first && of.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) {
        out.push_str(&keyword(of));
    } else {
        text(out, of);
    }
}

/// A value in EDN.
pub fn value(out: &mut String, of: &Value, as_word: bool) {
    match of {
        Value::Null => out.push_str("nil"),
        Value::Bool(is) => put(out, format_args!("{is}")),
        Value::Number(number) => put(out, format_args!("{number}")),
        Value::String(string) if as_word => word(out, string),
        Value::String(string) => text(out, string),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                value(out, item, as_word);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (at, (name, field)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push_str(", ");
                }
                out.push_str(&keyword(name));
                out.push(' ');
                value(out, field, WORDS.contains(&name.as_str()));
            }
            out.push('}');
        }
    }
}

fn text(out: &mut String, of: &str) {
    out.push('"');
    for c in of.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => put(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// What is wrong with a history that others are to read. None if nothing is.
pub fn fault(ops: &[Op]) -> Option<String> {
    let mut rules = super::rules::Rules::default();
    let mut asked: HashMap<Process, &Value> = HashMap::new();
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    for op in ops {
        if let Err(breach) = rules.admit(op) {
            return Some(breach.to_string());
        }
        if op.process == Process::Nemesis {
            *faults.entry(&op.f).or_default() += 1;
        } else if op.kind == Kind::Invoke {
            asked.insert(op.process, &op.value);
        } else if let Some(arguments) = asked.remove(&op.process).and_then(Value::as_object)
            && let Some(name) = arguments.keys().find(|name| op.value.get(name).is_none())
        {
            return Some(format!("event {} lacks the argument {name}", op.index));
        }
    }
    let odd = faults.iter().find(|(_, count)| *count % 2 == 1);
    odd.map(|(f, _)| format!("the fault {f} was begun and not ended"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn op(line: &str) -> Op {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn an_event_has_the_form_that_knossos_reads() {
        let ok = op(
            r#"{"index":41,"time":1203344551,"process":3,"type":"ok","f":"acquire","value":{"mode":"x","owner":"w3","request":"w3-17","resource":"mx/4","token":912,"ttl_ms":2000},"node":"n2","error":null,"term":4,"log_index":912}"#,
        );
        assert_eq!(
            line(&ok),
            r#"{:index 41, :time 1203344551, :process 3, :type :ok, :f :acquire, :value {:mode :x, :owner "w3", :request "w3-17", :resource "mx/4", :token 912, :ttl-ms 2000}, :node "n2", :term 4, :log-index 912}"#
        );
        let cut = op(
            r#"{"index":42,"time":1203399000,"process":"nemesis","type":"info","f":"power-cut","value":{"outcome":"installed","targets":["n1","n3"]}}"#,
        );
        assert_eq!(
            line(&cut),
            r#"{:index 42, :time 1203399000, :process :nemesis, :type :info, :f :power-cut, :value {:outcome :installed, :targets ["n1" "n3"]}}"#
        );
        let fail = op(
            r#"{"index":0,"time":1,"process":0,"type":"fail","f":"check_token","value":{"a":null,"b":[1,-2.5],"c":"\"x\"\n"},"error":"NOT_HELD"}"#,
        );
        assert_eq!(
            line(&fail),
            r#"{:index 0, :time 1, :process 0, :type :fail, :f :check-token, :value {:a nil, :b [1 -2.5], :c "\"x\"\n"}, :error :not-held}"#
        );
    }

    #[test]
    fn each_resource_has_a_history_of_its_own_with_dense_indexes() {
        let folder = tempfile::tempdir().unwrap();
        let lines = [
            r#"{"index":0,"time":1,"process":0,"type":"invoke","f":"get","value":{"resource":"mx/4"}}"#,
            r#"{"index":1,"time":2,"process":1,"type":"invoke","f":"get","value":{"resource":"../b"}}"#,
            r#"{"index":2,"time":3,"process":0,"type":"ok","f":"get","value":{"resource":"mx/4"}}"#,
        ];
        export_independent(lines.iter().map(|line| Ok(op(line))), folder.path()).unwrap();
        let read = |name: &str| {
            fs::read_to_string(folder.path().join("independent").join(name).join("history.edn"))
        };
        let mx = read("mx%2f4").unwrap();
        assert_eq!(mx.lines().count(), 2);
        assert!(mx.lines().nth(1).unwrap().starts_with("{:index 1, :time 3, :process 0"));
        assert_eq!(read("%2e.%2fb").unwrap().lines().count(), 1);
    }

    #[test]
    fn the_rules_of_an_exported_history_are_told_apart() {
        let mut invoke = op(
            r#"{"index":0,"time":1,"process":0,"type":"invoke","f":"get","value":{"resource":"a"}}"#,
        );
        let mut end = op(
            r#"{"index":1,"time":2,"process":0,"type":"ok","f":"get","value":{"resource":"a","holders":[]}}"#,
        );
        let kill =
            op(r#"{"index":2,"time":2,"process":"nemesis","type":"info","f":"kill","value":null}"#);
        let ended = Op { index: 3, ..kill.clone() };
        let all = [invoke.clone(), end.clone(), kill.clone(), ended];
        assert_eq!(fault(&all), None);
        assert_eq!(fault(&all[..3]).unwrap(), "the fault kill was begun and not ended");
        end.value = json!({"holders": []});
        assert_eq!(fault(&[invoke.clone(), end]).unwrap(), "event 1 lacks the argument resource");
        invoke.index = 1;
        assert_eq!(fault(&[invoke]).unwrap(), "event 1 came where 0 was due");
    }
}
