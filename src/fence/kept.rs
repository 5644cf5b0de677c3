//! What a store without rows keeps of one resource, and the text it keeps it in:
//!
//! ```text
//! ringfence mark 1                             what this is, and its version
//! cluster 07070707070707070707070707070707
//! resource job/7
//! mark 6                                       the resource's
//! slot 0 5                                     one line for each slot ever written
//! check 6d9a4c1e0b7f3528                       xxh3 of all that stands before
//! ```
//!
//! No name holds a line break, so a line is a line. The form is frozen (`tests/fence`
//! holds golden text).

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use xxhash_rust::xxh3::xxh3_64;

use super::error::FenceError;
use super::rule::{Marks, Verdict, decide};
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// The version of all texts here.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// The marks of one resource and of its slots. None of them ever falls. (I8)
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// The authority whose tokens these are.
    pub cluster: ClusterId,
    /// The resource's mark.
    pub mark: Token,
    /// Those of the slots that were ever written.
    pub slots: BTreeMap<u32, Token>,
}

impl Kept {
    /// What is kept once `fence` has passed.
    ///
    /// # Errors
    /// The rule's refusal.
    pub fn after(known: Option<Self>, fence: &Fence) -> Result<Self, FenceError> {
        let marks = known.as_ref().map(|kept| Marks {
            cluster: kept.cluster,
            resource: kept.mark,
            slot: fence.slot.and_then(|slot| kept.slots.get(&slot).copied()),
        });
        match decide(marks, fence) {
            Verdict::Refuse(refusal) => Err(FenceError::refused(fence, refusal)),
            Verdict::Accept(marks) => {
                let mut slots = known.map(|kept| kept.slots).unwrap_or_default();
                slots.extend(fence.slot.zip(marks.slot));
                Ok(Self { cluster: marks.cluster, mark: marks.resource, slots })
            }
        }
    }

    /// The mark of the resource, or of one of its slots.
    pub fn mark(&self, slot: Option<u32>) -> Option<Token> {
        slot.map_or(Some(self.mark), |slot| self.slots.get(&slot).copied())
    }
}

/// The lines of several resources.
pub(super) fn lines<'a>(all: impl IntoIterator<Item = (&'a ResourceName, &'a Kept)>) -> String {
    let mut text = String::new();
    for (resource, Kept { cluster, mark, slots }) in all {
        let mut write = |line: fmt::Arguments<'_>| {
            writeln!(text, "{line}").expect("a string takes all that is written");
        };
        write(format_args!("cluster {cluster}\nresource {resource}\nmark {mark}"));
        for (slot, mark) in slots {
            write(format_args!("slot {slot} {mark}"));
        }
    }
    text
}

/// Reads [`lines`].
///
/// # Errors
/// [`FenceError::Store`] for anything else.
pub(super) fn from_lines(text: &str) -> Result<BTreeMap<ResourceName, Kept>, FenceError> {
    let mut all = BTreeMap::new();
    let mut rest = text.split_terminator('\n').peekable();
    while rest.peek().is_some() {
        let one = read_one(&mut rest).ok_or_else(|| damaged("the list of marks"))?;
        all.extend([one]);
    }
    Ok(all)
}

fn read_one<'a>(
    lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
) -> Option<(ResourceName, Kept)> {
    let mut word = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let cluster = ClusterId::from_hex(word("cluster")?).ok()?;
    let resource = ResourceName::new(word("resource")?).ok()?;
    let mark = token(word("mark")?)?;
    let mut slots = BTreeMap::new();
    while let Some(line) = lines.next_if(|line| line.starts_with("slot ")) {
        let (slot, mark) = line.strip_prefix("slot ")?.split_once(' ')?;
        slots.insert(slot.parse().ok()?, token(mark)?);
    }
    Some((resource, Kept { cluster, mark, slots }))
}

fn token(text: &str) -> Option<Token> {
    Token::new(text.parse().ok()?).ok()
}

/// Puts the first line before these lines, and the check behind them.
pub(super) fn sealed(kind: &str, lines: &str) -> String {
    let text = format!("ringfence {kind} {SCHEMA_VERSION}\n{lines}");
    let check = xxh3_64(text.as_bytes());
    format!("{text}check {check:016x}\n")
}

/// The lines of a [`sealed`] text, and what follows it.
///
/// # Errors
/// [`FenceError::SchemaNewer`]; [`FenceError::Store`] for what is not such a text, or was
/// changed.
pub(super) fn unsealed<'a>(kind: &str, bytes: &'a [u8]) -> Result<(&'a str, &'a [u8]), FenceError> {
    let read = || {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let first = std::str::from_utf8(&bytes[..end]).ok()?;
        let version = first.strip_prefix("ringfence ")?.strip_prefix(kind)?.strip_prefix(' ')?;
        let version: u32 = version.parse().ok()?;
        if version > SCHEMA_VERSION {
            return Some(Err(FenceError::SchemaNewer { found: version, known: SCHEMA_VERSION }));
        }
        let last = b"\ncheck ";
        let start = bytes.windows(last.len()).position(|window| window == last)? + 1;
        let check = format!("check {:016x}\n", xxh3_64(&bytes[..start]));
        let rest = bytes[start..].strip_prefix(check.as_bytes())?;
        let lines = bytes.get(end + 1..start)?;
        (version == SCHEMA_VERSION)
            .then(|| Some(Ok((std::str::from_utf8(lines).ok()?, rest))))
            .flatten()
    };
    read().unwrap_or_else(|| Err(damaged(kind)))
}

/// What is there is not what was written: nobody guesses at marks.
pub(super) fn damaged(what: &str) -> FenceError {
    FenceError::Store(format!("{what} is damaged, or was not written by Ringfence").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> (ResourceName, Kept) {
        let token = |number| Token::new(number).expect("a token");
        let slots = [(0, token(5)), (u32::MAX, Token::new(Token::MAX).expect("the last"))];
        let kept = Kept { cluster: ClusterId::new([7; 16]), mark: token(6), slots: slots.into() };
        (ResourceName::new("check 7 ünï").expect("a name"), kept)
    }

    #[test]
    fn the_text_is_frozen() {
        let (resource, kept) = kept();
        let text = sealed("mark", &lines([(&resource, &kept)]));
        let golden = "ringfence mark 1\ncluster 07070707070707070707070707070707\n\
            resource check 7 ünï\nmark 6\nslot 0 5\nslot 4294967295 9007199254740991\n";
        assert_eq!(text, format!("{golden}check {:016x}\n", xxh3_64(golden.as_bytes())));
        let followed = format!("{text}and more\ncheck ");
        let (lines, rest) = unsealed("mark", followed.as_bytes()).expect("it is whole");
        assert_eq!(from_lines(lines).expect("whole"), [(resource, kept)].into());
        assert_eq!(rest, b"and more\ncheck ");
    }

    #[test]
    fn no_change_of_one_byte_and_no_missing_end_goes_unseen() {
        let (resource, kept) = kept();
        let text = sealed("mark", &lines([(&resource, &kept)])).into_bytes();
        for at in 0..text.len() {
            assert!(unsealed("mark", &text[..at]).is_err(), "cut at {at}");
            let mut changed = text.clone();
            changed[at] ^= 1;
            assert!(unsealed("mark", &changed).is_err(), "changed at {at}");
        }
        assert!(unsealed("commit", &text).is_err());
        let newer = String::from_utf8(text).expect("text").replace("mark 1\n", "mark 2\n");
        let refused = unsealed("mark", newer.as_bytes());
        assert!(matches!(refused, Err(FenceError::SchemaNewer { found: 2, known: 1 })));
    }
}
