//! Ziplists, what listpacks replaced: each entry begins with the length of the one before it.
//!
//! ```text
//! [bytes u32][offset of the last entry u32][entries u16][entry][entry] ... [0xff]
//!
//! entry     [previous: u8 below 254, or 0xfe and u32][encoding][data]
//! 00LLLLLL string    01LLLLLL L string    10000000 u32, big endian, string
//! 11000000 i16       11010000 i32         11100000 i64       11110000 i24       11111110 i8
//! 1111xxxx           the integer xxxx - 1, for xxxx from 1 to 13
//! ```

use super::listpack::Element;
use super::read::{RdbError, Result};

const HEADER_BYTES: usize = 10;
const END: u8 = 0xff;
const COUNT_UNKNOWN: u16 = u16::MAX;
/// A first byte from here on says that the length follows in four bytes.
const PREVIOUS_LONG: u8 = 254;

const CORRUPT: RdbError = RdbError::Corrupt("Ziplist integrity check failed.");

/// Walks a ziplist and checks it on the way.
pub(crate) struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
    last: Option<usize>,
    seen: u64,
}

pub(crate) fn open(bytes: &[u8]) -> Result<Elements<'_>> {
    let stated = bytes.first_chunk::<4>().ok_or(CORRUPT)?;
    let sound = bytes.len() > HEADER_BYTES
        && u32::from_le_bytes(*stated) as usize == bytes.len()
        && bytes[bytes.len() - 1] == END;
    sound.then_some(Elements { bytes, at: HEADER_BYTES, last: None, seen: 0 }).ok_or(CORRUPT)
}

impl<'a> Elements<'a> {
    pub fn next(&mut self) -> Result<Option<Element<'a>>> {
        if self.bytes[self.at] == END {
            return self.at_end().then_some(None).ok_or(CORRUPT);
        }
        let (previous, head) = self.previous().ok_or(CORRUPT)?;
        let (element, len) = element(&self.bytes[self.at + head..]).ok_or(CORRUPT)?;
        let end = self.at + head + len;
        if end >= self.bytes.len() || previous as usize != self.at - self.last.unwrap_or(self.at) {
            return Err(CORRUPT);
        }
        self.last = Some(self.at);
        self.at = end;
        self.seen += 1;
        Ok(Some(element))
    }

    /// Returns the length of the previous entry, as the entry states it, and the bytes of that statement.
    fn previous(&self) -> Option<(u32, usize)> {
        match self.bytes[self.at] {
            short @ ..PREVIOUS_LONG => Some((u32::from(short), 1)),
            _ => Some((u32::from_le_bytes(*self.bytes.get(self.at + 1..)?.first_chunk()?), 5)),
        }
    }

    fn at_end(&self) -> bool {
        let tail = u32::from_le_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]]) as usize;
        let count = u16::from_le_bytes([self.bytes[8], self.bytes[9]]);
        self.at + 1 == self.bytes.len()
            && self.last.is_none_or(|last| last == tail)
            && (count == COUNT_UNKNOWN || u64::from(count) == self.seen)
    }
}

/// The element whose encoding is at the front, and its bytes.
fn element(bytes: &[u8]) -> Option<(Element<'_>, usize)> {
    let first = *bytes.first()?;
    let text = |head: usize, len: usize| {
        let end = head.checked_add(len)?;
        Some((Element::Text(bytes.get(head..end)?), end))
    };
    let integer = |width: usize| {
        let mut wide = [0; 8];
        wide[8 - width..].copy_from_slice(bytes.get(1..1 + width)?);
        Some((Element::Integer(i64::from_le_bytes(wide) >> (64 - 8 * width)), 1 + width))
    };
    match first {
        0..0x40 => text(1, usize::from(first)),
        0x40..0x80 => text(2, usize::from(first & 0x3f) << 8 | usize::from(*bytes.get(1)?)),
        0x80 => text(5, u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?) as usize),
        0xc0 => integer(2),
        0xd0 => integer(4),
        0xe0 => integer(8),
        0xf0 => integer(3),
        0xfe => integer(1),
        0xf1..=0xfd => Some((Element::Integer(i64::from(first - 0xf1)), 1)),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::rdb::value::Texts;
    use isotherm_stdx::number;

    pub fn texts(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut texts = Texts::default();
        let mut elements = open(bytes)?;
        while let Some(element) = elements.next()? {
            element.push_to(&mut texts);
        }
        Ok(texts.iter().map(<[u8]>::to_vec).collect())
    }

    /// A ziplist as old servers wrote it.
    pub fn build(elements: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        let mut last = HEADER_BYTES;
        for (index, element) in elements.iter().enumerate() {
            let previous = if index == 0 { 0 } else { bytes.len() - last };
            last = bytes.len();
            if previous < 254 {
                bytes.push(previous as u8);
            } else {
                bytes.push(254);
                bytes.extend_from_slice(&(previous as u32).to_le_bytes());
            }
            push_element(&mut bytes, element);
        }
        bytes.push(END);
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes[4..8].copy_from_slice(&(last as u32).to_le_bytes());
        bytes[8..10].copy_from_slice(&(elements.len() as u16).to_le_bytes());
        bytes
    }

    fn push_element(bytes: &mut Vec<u8>, element: &[u8]) {
        let Some(value) = number::parse_i64(element) else {
            match element.len() {
                len @ ..64 => bytes.push(len as u8),
                len @ ..16_384 => bytes.extend_from_slice(&[0x40 | (len >> 8) as u8, len as u8]),
                len => {
                    bytes.push(0x80);
                    bytes.extend_from_slice(&(len as u32).to_be_bytes());
                }
            }
            bytes.extend_from_slice(element);
            return;
        };
        let (code, width) = match value {
            0..=12 => (0xf1 + value as u8, 0),
            -128..=127 => (0xfe, 1),
            -0x8000..=0x7fff => (0xc0, 2),
            -0x80_0000..=0x7f_ffff => (0xf0, 3),
            -0x8000_0000..=0x7fff_ffff => (0xd0, 4),
            _ => (0xe0, 8),
        };
        bytes.push(code);
        bytes.extend_from_slice(&value.to_le_bytes()[..width]);
    }

    #[test]
    fn entries_of_every_encoding() {
        let long = [b'x'; 300];
        let longest = vec![b'z'; 20_000];
        let elements: Vec<&[u8]> = vec![
            b"",
            b"abc",
            &long,
            &longest,
            b"0",
            b"12",
            b"13",
            b"-128",
            b"-129",
            b"32768",
            b"8388608",
            b"-2147483649",
            b"9223372036854775807",
        ];
        let read = texts(&build(&elements)).unwrap();
        assert_eq!(read, elements);
        assert!(texts(&build(&[])).unwrap().is_empty());
    }

    #[test]
    fn two_small_integers_byte_by_byte() {
        assert_eq!(texts(b"\x0f\0\0\0\x0c\0\0\0\x02\0\0\xf8\x02\xfc\xff").unwrap(), [&b"7"[..], b"11"]);
    }

    #[test]
    fn any_byte_changed_never_panics() {
        let sound = build(&[b"abc", b"5", b"-300", b"70000", &[b'y'; 260], b"end"]);
        for at in 0..sound.len() {
            for byte in 0..=255 {
                let mut broken = sound.clone();
                broken[at] = byte;
                let _ = texts(&broken);
            }
            assert!(texts(&sound[..at]).is_err());
        }
    }
}
