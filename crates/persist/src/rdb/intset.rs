//! Intsets: the sorted integers of a small set, all of one width.
//!
//! ```text
//! [width u32: 2, 4 or 8][count u32][integer] ...        little endian, rising
//! ```

use super::read::{RdbError, Result};
use super::value::Texts;

const HEADER_BYTES: usize = 8;

const CORRUPT: RdbError = RdbError::Corrupt("Intset integrity check failed.");

pub(crate) fn read(bytes: &[u8], texts: &mut Texts) -> Result<()> {
    let (header, integers) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(CORRUPT)?;
    let [w0, w1, w2, w3, c0, c1, c2, c3] = *header;
    let count = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
    let width = match u32::from_le_bytes([w0, w1, w2, w3]) {
        width @ (2 | 4 | 8) => width as usize,
        _ => return Err(CORRUPT),
    };
    if count == 0 || count.checked_mul(width) != Some(integers.len()) {
        return Err(CORRUPT);
    }
    let mut before: Option<i64> = None;
    for integer in integers.chunks_exact(width) {
        let mut wide = [0; 8];
        wide[8 - width..].copy_from_slice(integer);
        let value = i64::from_le_bytes(wide) >> (64 - 8 * width);
        if before.is_some_and(|before| before >= value) {
            return Err(CORRUPT);
        }
        before = Some(value);
        texts.push_integer(value);
    }
    Ok(())
}

/// `sorted` rises strictly. The width is the smallest that holds both ends.
pub(crate) fn build(sorted: &[i64]) -> Vec<u8> {
    debug_assert!(sorted.is_sorted_by(|a, b| a < b));
    let fits = |bits: u32| {
        let limit = 1i64 << (bits - 1);
        sorted.iter().all(|&value| (-limit..limit).contains(&value))
    };
    let width = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + width * sorted.len());
    bytes.extend_from_slice(&(width as u32).to_le_bytes());
    bytes.extend_from_slice(&(sorted.len() as u32).to_le_bytes());
    for value in sorted {
        bytes.extend_from_slice(&value.to_le_bytes()[..width]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut texts = Texts::default();
        read(bytes, &mut texts)?;
        Ok(texts.iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn every_width() {
        for values in [vec![-32768, 0, 32767], vec![-5, 40_000], vec![i64::MIN, -1, i64::MAX]] {
            let expected: Vec<Vec<u8>> = values.iter().map(|value| value.to_string().into_bytes()).collect();
            assert_eq!(texts(&build(&values)).unwrap(), expected);
        }
        assert_eq!(build(&[1, 2]), b"\x02\0\0\0\x02\0\0\0\x01\0\x02\0");
    }

    #[test]
    fn what_does_not_add_up() {
        for bytes in [
            b"\x02\0\0\0\0\0\0\0".as_slice(),
            b"\x03\0\0\0\x01\0\0\0\x01\0\0",
            b"\x02\0\0\0\x02\0\0\0\x01\0\x01\0",
            b"\x02\0\0\0\x02\0\0\0\x02\0\x01\0",
            b"\x02\0\0\0\x02\0\0\0\x02\0",
            b"\x02\0\0\0\xff\xff\xff\xff\x02\0",
            b"\x02\0\0",
        ] {
            assert_eq!(texts(bytes), Err(CORRUPT), "{bytes:x?}");
        }
    }
}
