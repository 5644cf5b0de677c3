//! A file name for every resource: two never share one, on any file system.

use std::fmt::Write;
use std::path::PathBuf;

/// Bytes of a name's coded form that one folder or file name takes: with what is put
/// behind, below the 255 that file systems allow (`NAME_MAX`).
const PIECE_MAX: usize = 200;

/// Lower-case letters, digits, `-` and `_` as they are, all else as `%` and two digits: file
/// systems that take `A` and `a` for the same, or that change accents, find nothing to do.
pub(super) fn coded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "%{byte:02x}").expect("a string takes all that is written");
        }
    }
    text
}

/// Reads [`coded`]; none for anything else.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(bytes)
}

/// Where the mark of a resource is, from the folder of marks. A long name goes through
/// folders, whose `+` no coded name holds: no name is a folder to another.
pub(super) fn place(resource: &str) -> PathBuf {
    let coded = coded(resource.as_bytes());
    let mut rest = coded.as_str();
    let mut place = PathBuf::new();
    while rest.len() > PIECE_MAX {
        let (piece, tail) = rest.split_at(PIECE_MAX);
        place.push(format!("{piece}+"));
        rest = tail;
    }
    place.push(format!("{rest}.mark"));
    place
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_names_share_a_file_or_meet_as_file_and_folder() {
        let long = |letter: &str, length| letter.repeat(length);
        let mut names = [
            "a", "A", "a.mark", "a+", "%61", "%", "..", ".", "a/b", "a//b", "/", "a%2fb", "con",
            "\u{e4}", "a\u{308}",
        ]
        .map(str::to_owned)
        .to_vec();
        names.extend([199, 200, 201, 400, 401, 512].map(|length| long("a", length)));
        names.extend([long("/", 512), long("\u{1f980}", 128)]);
        let places: BTreeSet<String> =
            names.iter().map(|name| place(name).to_string_lossy().to_lowercase()).collect();
        assert_eq!(places.len(), names.len());
        for one in &places {
            let allowed = |piece: &str| piece.len() <= 255 && !piece.starts_with('.');
            assert!(one.split('/').all(allowed), "{one}");
            assert!(!places.iter().any(|other| other.starts_with(&format!("{one}/"))), "{one}");
        }
        for name in names {
            assert_eq!(decoded(&coded(name.as_bytes())).as_deref(), Some(name.as_bytes()));
        }
    }
}
