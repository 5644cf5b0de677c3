//! From the files of a run to [`Evidence`]. The fields are those of the table in `mod.rs`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::beside::{self, Line};
use super::evidence::{
    Acquire, Admin, Evidence, Fault, Hand, Mode, NEVER, Name, Named, Read, Reason, Renewal,
    Session, Shown, Span, Use, Write,
};
use super::settings::Settings;
use crate::history::pair::Paired;
use crate::history::{self, Call, Kind, Op, pairs};

/// The nemesis event after which the final phase begins.
pub const HEALED: &str = "healed";

/// Reads what `folder` holds: `history.jsonl`, and as far as they are there `audit.jsonl`,
/// `dest-ledger.jsonl`, `nodes/*/status.jsonl` and the `check` part of `test.json`.
///
/// # Errors
/// A file cannot be read, or a line breaks its form or a rule.
pub fn load(folder: &Path) -> Result<(Evidence, Settings)> {
    let mut evidence = from_ops(history::open(folder)?)?;
    if let Some(lines) = lines::<Line>(&folder.join("audit.jsonl"))? {
        evidence.audit =
            Some(lines.map(|line| Ok(line?.event(&mut evidence.names))).collect::<Result<_>>()?);
    }
    if let Some(lines) = lines::<beside::Entry>(&folder.join("dest-ledger.jsonl"))? {
        evidence.ledger =
            Some(lines.map(|line| Ok(line?.entry(&mut evidence.names))).collect::<Result<_>>()?);
    }
    nodes(&mut evidence, &folder.join("nodes"))?;
    Ok((evidence, settings(&folder.join("test.json"))?))
}

fn settings(path: &Path) -> Result<Settings> {
    if !path.exists() {
        return Ok(Settings::default());
    }
    let mut test: Value = serde_json::from_slice(&fs::read(path)?)
        .with_context(|| format!("{} is not JSON", path.display()))?;
    match test.get_mut("check") {
        Some(check) => Ok(serde_json::from_value(check.take()).context("test.json: check")?),
        None => Ok(Settings::default()),
    }
}

fn nodes(evidence: &mut Evidence, folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let mut nodes: Vec<_> = fs::read_dir(folder)?.collect::<std::io::Result<_>>()?;
    nodes.sort_by_key(fs::DirEntry::file_name);
    for node in nodes {
        let name = evidence.names.number(&node.file_name().to_string_lossy());
        let Some(lines) = lines::<beside::Status>(&node.path().join("status.jsonl"))? else {
            continue;
        };
        for line in lines {
            evidence.statuses.push(line?.status(name, &mut evidence.names));
        }
    }
    Ok(())
}

/// The lines of a file, without a last one that was torn; none if there is no file.
fn lines<T: DeserializeOwned>(
    path: &Path,
) -> Result<Option<impl Iterator<Item = Result<T>> + use<T>>> {
    if !path.exists() {
        return Ok(None);
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut input = BufReader::new(file);
    let path = path.to_owned();
    let mut line = String::new();
    Ok(Some(std::iter::from_fn(move || {
        line.clear();
        if let Err(error) = input.read_line(&mut line) {
            return Some(Err(error.into()));
        }
        line.ends_with('\n').then(|| {
            let value = serde_json::from_str(&line);
            value.with_context(|| format!("{}: {}", path.display(), line.trim_end()))
        })
    })))
}

/// Reads the events of a history.
///
/// # Errors
/// An event is broken, or lacks a field that its name demands.
pub fn from_ops(ops: impl Iterator<Item = Result<Op>>) -> Result<Evidence> {
    let mut evidence = Evidence::default();
    let mut healed = NEVER;
    for pair in pairs(ops) {
        match pair? {
            Paired::Nemesis(op) => {
                if op.f == HEALED {
                    healed = op.time;
                }
                evidence.events += 1;
                let outcome = op.value.get("outcome").and_then(Value::as_str).unwrap_or_default();
                let outcome = outcome.to_owned();
                evidence.faults.push(Fault { index: op.index, time: op.time, f: op.f, outcome });
            }
            Paired::Call(call) => {
                evidence.events += 1 + u64::from(call.completion.is_some());
                let after = call.t_inv() >= healed;
                if call.kind() == Kind::Ok {
                    *evidence.ok.entry((call.invoke.f.clone(), after)).or_default() += 1;
                }
                take(&mut evidence, &call)
                    .with_context(|| format!("event {} ({})", call.invoke.index, call.invoke.f))?;
            }
        }
    }
    evidence.faults.sort_by_key(|fault| fault.index);
    Ok(evidence)
}

fn span(call: &Call) -> Span {
    let end = call.completion.as_ref();
    let error = end.and_then(|op| op.error.as_deref());
    Span {
        inv: call.invoke.index,
        ret: end.map_or(call.invoke.index, |op| op.index),
        t_inv: call.t_inv(),
        t_ret: call.t_ret().unwrap_or(NEVER),
        kind: call.kind(),
        reason: reason(error),
        log_index: end.and_then(|op| op.log_index).unwrap_or(0),
    }
}

/// The refusal of this name.
pub fn reason(error: Option<&str>) -> Reason {
    match error {
        Some("SESSION_EXPIRED" | "SESSION_UNKNOWN") => Reason::SessionOver,
        Some("NOT_HELD") => Reason::NotHeld,
        Some("GRANT_ENDED") => Reason::GrantEnded,
        Some("FENCED") => Reason::Fenced,
        Some(_) | None => Reason::Other,
    }
}

/// Fields of a value.
struct Fields<'a>(&'a Value);

impl Fields<'_> {
    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    fn small(&self, name: &str) -> Option<u32> {
        self.number(name).and_then(|number| u32::try_from(number).ok())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    fn need(&self, name: &str) -> Result<u64> {
        self.number(name).with_context(|| format!("no whole number {name} in {}", self.0))
    }

    fn need_text(&self, name: &str) -> Result<&str> {
        self.text(name).with_context(|| format!("no text {name} in {}", self.0))
    }

    fn session(&self) -> Result<Session> {
        Ok(Session { cluster: self.cluster(), id: self.need("session")? })
    }

    fn cluster(&self) -> u32 {
        self.small("cluster").unwrap_or(0)
    }

    fn mode(&self) -> Result<Mode> {
        mode(self.text("mode").unwrap_or("exclusive"))
    }
}

fn mode(word: &str) -> Result<Mode> {
    Ok(match word {
        "exclusive" => Mode::Exclusive,
        "shared" => Mode::Shared,
        "slots" => Mode::Slots,
        other => bail!("no mode {other}"),
    })
}

fn take(evidence: &mut Evidence, call: &Call) -> Result<()> {
    let at = span(call);
    let fields = Fields(call.value());
    match call.invoke.f.as_str() {
        "acquire" => evidence.acquires.push(acquire(&mut evidence.names, at, &fields)?),
        "release" => evidence.releases.push(named(&mut evidence.names, at, &fields)?),
        "confirm" => evidence.confirms.push(named(&mut evidence.names, at, &fields)?),
        "open" => {
            let id = fields.number("session").unwrap_or(0);
            let session = Session { cluster: fields.cluster(), id };
            if fields.flag("library") {
                evidence.libraries.insert(session);
            }
            evidence.opens.push(Renewal { at, session, ttl_ms: fields.need("ttl_ms")? });
        }
        "renew" => {
            let renewal =
                Renewal { at, session: fields.session()?, ttl_ms: fields.need("ttl_ms")? };
            evidence.renewals.push(renewal);
        }
        "close" => evidence.closes.push(Use { at, session: fields.session()?, ttl_ms: 0 }),
        "cancel" | "set_value" | "set_ttl" | "held" => {
            let ttl_ms = fields.number("ttl_ms").unwrap_or(0);
            evidence.uses.push(Use { at, session: fields.session()?, ttl_ms });
        }
        "get" | "check_token" => {
            let asked =
                (call.invoke.f == "check_token").then(|| fields.need("token")).transpose()?;
            evidence.reads.push(shown(&mut evidence.names, at, &fields, asked)?);
        }
        "revoke" => admin(evidence, at, &fields, Hand::Revoke)?,
        "freeze" => admin(evidence, at, &fields, Hand::Freeze)?,
        "thaw" => admin(evidence, at, &fields, Hand::Thaw)?,
        "write" => {
            let resource = evidence.names.number(fields.need_text("resource")?);
            let element = evidence.names.number(fields.need_text("element")?);
            let (token, slot) = (fields.need("token")?, fields.small("slot"));
            evidence.writes.push(Write { at, resource, token, slot, element });
        }
        _ => {}
    }
    Ok(())
}

fn acquire(names: &mut super::evidence::Names, at: Span, fields: &Fields<'_>) -> Result<Acquire> {
    let more = fields.0.get("more").and_then(Value::as_array);
    let more = more.into_iter().flatten().filter_map(Value::as_str).map(|name| names.number(name));
    let more: Box<[Name]> = more.collect();
    let token = if at.ok() { fields.number("token") } else { None };
    let queued = at.ok() && token.is_none() && fields.number("queued_ahead").is_some();
    Ok(Acquire {
        at,
        session: fields.session()?,
        request: fields.need("request")?,
        resource: names.number(fields.need_text("resource")?),
        more,
        mode: fields.mode()?,
        slots: fields.small("slots").unwrap_or(0),
        barrier_ms: fields.flag("strict").then(|| fields.number("barrier_ms").unwrap_or(0)),
        confirmed: fields.flag("confirmed"),
        token,
        slot: fields.small("slot"),
        floor: fields.number("floor").or(token).unwrap_or(0),
        queued,
        last: fields.flag("final"),
    })
}

fn named(names: &mut super::evidence::Names, at: Span, fields: &Fields<'_>) -> Result<Named> {
    let resource = names.number(fields.need_text("resource")?);
    Ok(Named { at, session: fields.session()?, resource, token: fields.need("token")? })
}

fn admin(evidence: &mut Evidence, at: Span, fields: &Fields<'_>, hand: Hand) -> Result<()> {
    let resource = evidence.names.number(fields.need_text("resource")?);
    let token = match hand {
        Hand::Revoke | Hand::Thaw => fields.need("token")?,
        Hand::Freeze => 0,
    };
    let by = if at.ok() { fields.number("by") } else { None };
    evidence.admin.push(Admin { at, hand, resource, token, by });
    Ok(())
}

fn shown(
    names: &mut super::evidence::Names,
    at: Span,
    fields: &Fields<'_>,
    asked: Option<u64>,
) -> Result<Read> {
    let mut holders = Vec::new();
    for holder in fields.0.get("holders").and_then(Value::as_array).into_iter().flatten() {
        let holder = Fields(holder);
        holders.push(Shown {
            token: holder.need("token")?,
            mode: holder.mode()?,
            slot: holder.small("slot"),
            active: holder.text("phase") != Some("barrier"),
        });
    }
    if let Some(token) = asked.filter(|_| fields.flag("current")) {
        let (mode, slot) = (fields.mode()?, fields.small("slot"));
        holders.push(Shown { token, mode, slot, active: true });
    }
    Ok(Read {
        at,
        resource: names.number(fields.need_text("resource")?),
        asked,
        holders: holders.into(),
        stale: fields.flag("stale"),
    })
}
