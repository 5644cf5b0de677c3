//! What is said of grants, waiters and closed resources, for people. Whatever others
//! chose (names, labels, reasons, values) is escaped: a terminal obeys what it is sent.

use std::time::{Duration, UNIX_EPOCH};

use super::output::{NONE, shown};
use super::view::{Asked, Closure, Frozen, Grant, Note, Resource, Revision, Waiter};
use crate::clock::unix_seconds;
use crate::locks::Labels;

/// Label under which `lock` tells operators when it was started: wall-clock time
/// of its machine, for display only.
pub const STARTED: &str = "started";

/// The header of [`who`].
pub const WHO: [&str; 4] = ["HOST", "PID", "PURPOSE", "STARTED"];

/// A session's owner, by its labels, as cells of a table.
pub fn who(labels: &Labels) -> [String; 4] {
    ["host", "pid", "purpose", STARTED]
        .map(|key| labels.get(key).map_or_else(|| NONE.to_owned(), Clone::clone))
}

/// Host and pid of a session, as far as it tells them: `host web-3 pid 7 `, or nothing.
fn place(labels: &Labels) -> String {
    let told = ["host", "pid"].into_iter().filter_map(|key| Some((key, labels.get(key)?)));
    told.map(|(key, value)| format!("{key} {} ", shown(value))).collect()
}

fn purpose(labels: &Labels) -> Option<String> {
    labels.get("purpose").filter(|purpose| !purpose.is_empty()).map(|purpose| shown(purpose))
}

/// Whose session it is: `host web-3 pid 7 (sh, session s12)`.
pub fn owner(labels: &Labels, session: u64) -> String {
    let purpose = purpose(labels).map(|purpose| format!("{purpose}, ")).unwrap_or_default();
    match place(labels) {
        place if place.is_empty() && purpose.is_empty() => format!("session s{session}"),
        place => format!("{place}({purpose}session s{session})"),
    }
}

/// A grant in half a sentence, for a message.
pub fn holder(grant: &Grant) -> String {
    let mut text = format!("held with token {}", grant.token);
    let place = place(&grant.labels);
    if !place.is_empty() {
        text += &format!(" by {}", place.trim_end());
    }
    if let Some(purpose) = purpose(&grant.labels) {
        text += &format!(" ({purpose})");
    }
    if let Some(started) = grant.labels.get(STARTED) {
        text += &format!(", started {}", shown(started));
    }
    text
}

/// What keeps a resource from being granted, in half a sentence; `None` if nothing is
/// seen to.
pub fn obstacle(resource: &Resource) -> Option<String> {
    if let Some(by) = &resource.frozen {
        return Some(frozen(by));
    }
    if let Some(grant) = resource.holders.first() {
        let more = resource.holders.len() - 1;
        let more = if more > 0 { format!(" and by {more} more") } else { String::new() };
        return Some(holder(grant) + &more);
    }
    resource.closures.first().map(closure)
}

/// How a grant shares its resource: `exclusive`, `shared`, `slot 1 of 3`; and the phase,
/// where it is not the usual one.
pub fn share(grant: &Grant) -> String {
    let mode = match grant.slot {
        Some(slot) => format!("slot {slot} of {}", grant.slots),
        None => grant.mode.to_owned(),
    };
    if grant.phase == "active" { mode } else { format!("{mode}, {}", grant.phase) }
}

/// How a waiter wants to share the resource `name`.
pub fn wish(waiter: &Waiter, name: &str) -> String {
    if !waiter.set.is_empty() {
        return format!("exclusive, with {}", others(&waiter.set, name));
    }
    if waiter.slots > 0 { format!("a slot of {}", waiter.slots) } else { waiter.mode.to_owned() }
}

/// The names of a set but this one, at most three of them.
pub fn others(set: &[String], name: &str) -> String {
    let others: Vec<_> = set.iter().filter(|other| *other != name).collect();
    let mut text = others.iter().take(3).map(|name| shown(name)).collect::<Vec<_>>().join(", ");
    if others.len() > 3 {
        text += &format!(" and {} more", others.len() - 3);
    }
    text
}

/// The state of a resource in a word or two, for a list.
pub fn state(resource: &Resource) -> String {
    let held = resource.holders.len();
    match resource.holders.first() {
        _ if resource.frozen.is_some() => "frozen".to_owned(),
        Some(grant) if grant.slot.is_some() => format!("slots {held}/{}", resource.slots),
        Some(grant) if grant.mode == "shared" => format!("shared {held}"),
        Some(grant) => share(grant),
        None if !resource.closures.is_empty() => "closed".to_owned(),
        None => "awaited".to_owned(),
    }
}

/// Who keeps a resource frozen, since when and why.
pub fn frozen(frozen: &Frozen) -> String {
    let (by, why) = note(frozen.note.as_ref());
    format!("frozen by {by} since {} with token {}{why}", at(frozen.since), frozen.token)
}

/// What a lock delay keeps closed, and for how long.
pub fn closure(closure: &Closure) -> String {
    let what = closure.slot.map(|slot| format!("(slot {slot}) ")).unwrap_or_default();
    let time = match closure.left_ms {
        Some(left) => format!("for another {} by the lock delay", lasting(left)),
        None => format!("by the lock delay of {}", lasting(closure.delay_ms)),
    };
    format!("closed {what}{time} after token {}", closure.token)
}

/// Who wants a grant back, until when and why.
pub fn asked(asked: &Asked) -> String {
    let (by, why) = note(asked.note.as_ref());
    format!("{by} asked for it at {}, within {}{why}", at(asked.at), lasting(asked.within_ms))
}

/// Who, and `: why` if that was said.
pub fn note(note: Option<&Note>) -> (String, String) {
    let said = |text: &str| Some(shown(text)).filter(|text| !text.is_empty());
    let by = note.and_then(|note| said(&note.actor)).unwrap_or_else(|| "somebody".to_owned());
    let why = note.and_then(|note| said(&note.reason)).map(|reason| format!(": {reason}"));
    (by, why.unwrap_or_default())
}

/// A revision, as `--from` reads it.
pub fn at(revision: Option<Revision>) -> String {
    match revision {
        None => NONE.to_owned(),
        // After all of an entry, however much that was.
        Some(at) if at.ordinal == u32::MAX => at.index.to_string(),
        Some(at) => format!("{}.{}", at.index, at.ordinal),
    }
}

/// A time that is left or was given: tenths of a second below a minute.
pub fn lasting(ms: u64) -> String {
    match ms {
        0..60_000 if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        0..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000.. => humantime::format_duration(Duration::from_secs(ms / 1_000)).to_string(),
    }
}

/// Several names in a row.
pub fn names(names: &[String]) -> String {
    names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")
}

/// The word as a shell takes it, if it is given on a command line.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@%+=,".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", shown(word).replace('\'', r"'\''"))
}

/// Wall-clock time so much later than now, in UTC and whole seconds: for display only.
pub fn wall_clock(later: Duration) -> String {
    let since_1970 = Duration::from_secs(unix_seconds()).saturating_add(later);
    let time = UNIX_EPOCH.checked_add(since_1970).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v1;

    #[test]
    fn a_holder_is_told_by_its_labels_as_far_as_it_has_some() {
        let mut grant = Grant::from(v1::Grant { token: 41, session: 12, ..v1::Grant::default() });
        let owner = |grant: &Grant| owner(&grant.labels, grant.session);
        assert_eq!(
            (holder(&grant), owner(&grant)),
            ("held with token 41".into(), "session s12".into())
        );
        grant.labels.extend([("host".into(), "web-3".into()), ("pid".into(), "7".into())]);
        assert_eq!(owner(&grant), "host web-3 pid 7 (session s12)");
        grant.labels.insert("purpose".into(), "sh\u{7}".into());
        assert_eq!(holder(&grant), "held with token 41 by host web-3 pid 7 (sh\\u{7})");
        assert_eq!(owner(&grant), "host web-3 pid 7 (sh\\u{7}, session s12)");
        assert_eq!(who(&grant.labels), ["web-3", "7", "sh\u{7}", "-"]);
    }

    #[test]
    fn times_are_short_and_exact_enough() {
        assert_eq!(
            [0, 8_299, 30_000, 59_999, 60_001, 3_723_000].map(lasting),
            ["0 s", "8.2 s", "30 s", "59.9 s", "1m", "1h 2m 3s"]
        );
    }

    #[test]
    fn a_revision_is_told_with_its_ordinal_unless_that_is_the_end_of_the_entry() {
        let told = |ordinal| at(Some(Revision { index: 77, ordinal }));
        assert_eq!([told(1), told(u32::MAX), at(None)], ["77.1", "77", "-"]);
    }

    #[test]
    fn a_word_reaches_a_command_through_a_shell_as_it_is() {
        assert_eq!(
            ["job/7", "a b", "it's", "-x", ""].map(quoted),
            ["job/7", "'a b'", r"'it'\''s'", "'-x'", "''"]
        );
    }

    #[test]
    fn a_set_is_told_by_three_of_its_names_at_most() {
        let set: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).into();
        assert_eq!(others(&set, "b"), "a, c, d and 2 more");
        assert_eq!(others(&set[..2], "b"), "a");
    }
}
