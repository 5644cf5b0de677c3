//! Tells a torn end of RocksDB's write-ahead log from a damaged one.
//!
//! RocksDB takes a record whose length reaches beyond the end of the file for one
//! that was being written at the crash, and drops everything from there on. A
//! damaged length looks the same. But here every record is synced before the next is
//! written: so behind a torn record there is nothing whole, and if there is, the
//! broken one was acknowledged.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Records do not cross the bounds of blocks (RocksDB's `db/log_format.h`).
const BLOCK: usize = 32 << 10;
/// Masked CRC-32C of type and content, length of the content, type.
const HEADER: usize = 4 + 2 + 1;
/// Whole, first, middle, last part of a record.
const TYPES: std::ops::RangeInclusive<u8> = 1..=4;

/// Where a broken record of the last block is followed by a whole one, if it is. In
/// the blocks before, RocksDB reports whatever is broken.
pub(super) fn damaged_at(path: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let begin = len / BLOCK as u64 * BLOCK as u64;
    file.seek(SeekFrom::Start(begin))?;
    let mut block = Vec::with_capacity(BLOCK);
    file.take(BLOCK as u64).read_to_end(&mut block)?;
    let mut at = 0;
    while let Some(next) = record_end(&block, at) {
        at = next;
    }
    let followed = (at + 1..block.len()).any(|later| record_end(&block, later).is_some());
    Ok(followed.then_some(begin + at as u64))
}

/// Where the record at `at` ends, if it is whole.
fn record_end(block: &[u8], at: usize) -> Option<usize> {
    let (header, rest) = block.get(at..)?.split_first_chunk::<HEADER>()?;
    let [c0, c1, c2, c3, l0, l1, kind] = *header;
    let len = usize::from(u16::from_le_bytes([l0, l1]));
    let content = rest.get(..len)?;
    let whole = TYPES.contains(&kind)
        && unmask(u32::from_le_bytes([c0, c1, c2, c3])) == crc32c(kind, content);
    whole.then_some(at + HEADER + len)
}

/// Undoes what RocksDB does to checksums that it stores.
const fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(0xa282_ead8).rotate_left(15)
}

fn crc32c(kind: u8, content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&[kind]), content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_crc_32c() {
        // The check value of the catalogue: "123456789".
        assert_eq!(crc32c(b'1', b"23456789"), 0xe306_9283);
    }

    #[test]
    fn a_mask_is_undone() {
        let mask = |crc: u32| crc.rotate_right(15).wrapping_add(0xa282_ead8);
        assert_eq!(unmask(mask(0x1234_5678)), 0x1234_5678);
    }
}
