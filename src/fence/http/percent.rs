//! Percent-encoding of resource names, RFC 3986 section 2.1.

use std::fmt::Write as _;

/// What stands for itself: none of it means anything in a header, a list or a string.
const PLAIN: &[u8] = b"-._~/:@+";

/// Encodes every byte but letters, digits and `-._~/:@+`.
pub(super) fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for &byte in name.as_bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes everything");
        }
    }
    encoded
}

/// None for bytes that must be encoded and are not, for a `%` without two hexadecimal
/// digits, and for what is not UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                decoded.push(hex(*high)? << 4 | hex(*low)?);
                after
            }
            (byte, after) if is_plain(*byte) => {
                decoded.push(*byte);
                after
            }
            _ => return None,
        };
    }
    String::from_utf8(decoded).ok()
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || PLAIN.contains(&byte)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_and_what_is_not_encoded_does_not() {
        for name in ["job/7", "ключ", "a b", "100%", "\"a\",b;c=d\\", "\u{10ffff}", "job/7#0"] {
            let encoded = encode(name);
            assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()), "{encoded}");
            assert_eq!(decode(&encoded).as_deref(), Some(name));
        }
        assert_eq!(decode("%6A%6f").as_deref(), Some("jo"));
        for bad in ["a b", "%", "%4", "%zz", "%+1", "%FF", "é", "a,b", "\"a\"", "a\tb", "a;b"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
