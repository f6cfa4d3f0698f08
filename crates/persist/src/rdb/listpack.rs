//! Listpacks: a run of short strings and integers that can be walked from both ends.
//!
//! ```text
//! [bytes u32][elements u16][element][back][element][back] ... [0xff]
//!
//! 0xxxxxxx                    integer 0..=127
//! 110xxxxx x                  13 bits          11110001 i16   11110010 i24   11110011 i32   11110100 i64
//! 10LLLLLL                    string to 63     1110LLLL L     string to 4095 11110000 u32   string, longer
//! back                        the element's length again, 7 bits a byte, so that it can be read backwards
//! ```
//!
//! 65535 elements mean "count them". An element that reads as an integer is stored as one.

use isotherm_stdx::number;

use super::read::{RdbError, Result};
use super::value::Texts;

const HEADER_BYTES: usize = 6;
const END: u8 = 0xff;
const COUNT_UNKNOWN: u16 = u16::MAX;
/// The largest node of a list that is not one element, twice.
const BYTES_KEPT_MAX: usize = 128 << 10;

const CORRUPT: RdbError = RdbError::Corrupt("Listpack integrity check failed.");

/// Element of a listpack or a ziplist.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element<'a> {
    Text(&'a [u8]),
    Integer(i64),
}

impl Element<'_> {
    pub(crate) fn push_to(self, texts: &mut Texts) {
        match self {
            Element::Text(text) => texts.push(text),
            Element::Integer(value) => texts.push_integer(value),
        }
    }

    pub(crate) fn integer(self) -> Option<i64> {
        match self {
            Element::Text(text) => number::parse_i64(text),
            Element::Integer(value) => Some(value),
        }
    }

    /// Returns the element as a score; NaN is none.
    pub(crate) fn score(self) -> Option<f64> {
        match self {
            Element::Text(text) => isotherm_stdx::parse_f64(text),
            Element::Integer(value) => Some(value as f64),
        }
    }
}

/// Walks a listpack and checks it on the way: a walk that ends without an error has seen a sound one.
pub(crate) struct Elements<'a> {
    bytes: &'a [u8],
    at: usize,
    seen: u64,
}

pub(crate) fn open(bytes: &[u8]) -> Result<Elements<'_>> {
    let stated = bytes.first_chunk::<4>().ok_or(CORRUPT)?;
    let sound = bytes.len() > HEADER_BYTES
        && u32::from_le_bytes(*stated) as usize == bytes.len()
        && bytes[bytes.len() - 1] == END;
    sound.then_some(Elements { bytes, at: HEADER_BYTES, seen: 0 }).ok_or(CORRUPT)
}

impl<'a> Elements<'a> {
    pub fn next(&mut self) -> Result<Option<Element<'a>>> {
        if self.bytes[self.at] == END {
            return self.at_end().then_some(None).ok_or(CORRUPT);
        }
        let (element, len) = element(&self.bytes[self.at..]).ok_or(CORRUPT)?;
        // COMPAT(transfer): RESTORE refuses a listpack element with a longer back length than it needs. Why:
        // no server writes one, so the payload is damaged.
        let end = self.at + len;
        let back = back_bytes(len);
        // The last byte is the end mark, so the next element, or the mark, begins before the end of the
        // bytes.
        if end + back >= self.bytes.len() || read_back(&self.bytes[end..end + back]) != len as u64 {
            return Err(CORRUPT);
        }
        self.at = end + back;
        self.seen += 1;
        Ok(Some(element))
    }

    /// The element that has to be there.
    pub fn expect(&mut self) -> Result<Element<'a>> {
        self.next()?.ok_or(CORRUPT)
    }

    pub fn expect_integer(&mut self) -> Result<i64> {
        self.expect()?.integer().ok_or(CORRUPT)
    }

    fn at_end(&self) -> bool {
        let count = u16::from_le_bytes([self.bytes[4], self.bytes[5]]);
        self.at + 1 == self.bytes.len() && (count == COUNT_UNKNOWN || u64::from(count) == self.seen)
    }
}

/// The element at the front and its bytes without `back`.
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
        0..0x80 => Some((Element::Integer(i64::from(first)), 1)),
        0x80..0xc0 => text(1, usize::from(first & 0x3f)),
        0xc0..0xe0 => {
            let bits = i16::from(first & 0x1f) << 8 | i16::from(*bytes.get(1)?);
            Some((Element::Integer(i64::from(bits << 3 >> 3)), 2))
        }
        0xe0..0xf0 => text(2, usize::from(first & 0x0f) << 8 | usize::from(*bytes.get(1)?)),
        0xf0 => text(5, u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?) as usize),
        0xf1 => integer(2),
        0xf2 => integer(3),
        0xf3 => integer(4),
        0xf4 => integer(8),
        _ => None,
    }
}

/// Returns the bytes of an element in a listpack: the encoding, its text or number, and `back`.
pub(crate) fn entry_bytes(text: &[u8]) -> usize {
    let len = match number::parse_i64(text) {
        Some(value) => integer_bytes(value),
        None => match text.len() {
            len @ 0..64 => 1 + len,
            len @ 64..4096 => 2 + len,
            len => 5 + len,
        },
    };
    len + back_bytes(len)
}

fn integer_bytes(value: i64) -> usize {
    match value {
        0..=127 => 1,
        -4096..=4095 => 2,
        -0x8000..=0x7fff => 3,
        -0x80_0000..=0x7f_ffff => 4,
        -0x8000_0000..=0x7fff_ffff => 5,
        _ => 9,
    }
}

fn back_bytes(len: usize) -> usize {
    match len {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        2_097_152..=268_435_455 => 4,
        _ => 5,
    }
}

/// Reads as a reader from the right would: until a byte without the mark.
fn read_back(back: &[u8]) -> u64 {
    let mut value = 0;
    for (index, &byte) in back.iter().rev().enumerate() {
        value |= u64::from(byte & 127) << (7 * index);
        if byte & 128 == 0 {
            let whole = index + 1 == back.len();
            return if whole { value } else { u64::MAX };
        }
    }
    u64::MAX
}

/// Writes a listpack, element after element.
#[derive(Clone)]
pub struct ListpackBuilder {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for ListpackBuilder {
    fn default() -> Self {
        ListpackBuilder::new()
    }
}

impl ListpackBuilder {
    pub fn new() -> ListpackBuilder {
        ListpackBuilder { bytes: vec![0; HEADER_BYTES], count: 0 }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes that the listpack will have when it is finished.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + 1
    }

    /// Bytes of an empty listpack, its end included.
    pub(crate) const EMPTY_BYTES: usize = HEADER_BYTES + 1;

    pub fn add(&mut self, element: Element<'_>) {
        match element {
            Element::Integer(value) => self.push_integer(value),
            Element::Text(text) => self.push(text),
        }
    }

    pub fn push(&mut self, text: &[u8]) {
        match number::parse_i64(text) {
            Some(value) => self.push_integer(value),
            None => self.push_text(text),
        }
    }

    pub fn push_integer(&mut self, value: i64) {
        let start = self.bytes.len();
        let little = value.to_le_bytes();
        match value {
            0..=127 => self.bytes.push(value as u8),
            -4096..=4095 => {
                self.bytes.extend_from_slice(&[0xc0 | (value >> 8) as u8 & 0x1f, value as u8]);
            }
            _ => {
                const I24_MAX: i64 = (1 << 23) - 1;
                let (code, width) = match value {
                    -0x8000..=0x7fff => (0xf1, 2),
                    -0x80_0000..=I24_MAX => (0xf2, 3),
                    -0x8000_0000..=0x7fff_ffff => (0xf3, 4),
                    _ => (0xf4, 8),
                };
                self.bytes.push(code);
                self.bytes.extend_from_slice(&little[..width]);
            }
        }
        self.end(start);
    }

    /// Adds an element as a string, even if its text is a number.
    pub fn push_text(&mut self, text: &[u8]) {
        let start = self.bytes.len();
        let len = u32::try_from(text.len()).expect("a listpack's strings are below 4 GB");
        let [b0, b1, b2, b3] = len.to_le_bytes();
        match len {
            0..64 => self.bytes.push(0x80 | b0),
            64..4096 => self.bytes.extend_from_slice(&[0xe0 | b1, b0]),
            _ => self.bytes.extend_from_slice(&[0xf0, b0, b1, b2, b3]),
        }
        self.bytes.extend_from_slice(text);
        self.end(start);
    }

    fn end(&mut self, start: usize) {
        let len = self.bytes.len() - start;
        let back = back_bytes(len);
        for index in (0..back).rev() {
            let mark = if index + 1 == back { 0 } else { 128 };
            self.bytes.push((len >> (7 * index)) as u8 & 127 | mark);
        }
        self.count += 1;
    }

    /// Finishes the listpack and returns its bytes. `clear` has to be called before the builder is used
    /// again.
    pub fn finish(&mut self) -> &[u8] {
        self.bytes.push(END);
        let len = u32::try_from(self.bytes.len()).expect("a listpack is below 4 GB");
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        self.bytes[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        &self.bytes
    }

    /// Begins anew, in the same buffer unless that has become large.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > BYTES_KEPT_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.bytes.resize(HEADER_BYTES, 0);
        self.count = 0;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// All elements as texts, or the first error.
    pub fn texts(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut texts = Texts::default();
        let mut elements = open(bytes)?;
        while let Some(element) = elements.next()? {
            element.push_to(&mut texts);
        }
        Ok(texts.iter().map(<[u8]>::to_vec).collect())
    }

    fn built(elements: &[Vec<u8>]) -> Vec<u8> {
        let mut builder = ListpackBuilder::new();
        elements.iter().for_each(|element| builder.push(element));
        let bytes = builder.bytes();
        let entries: usize = elements.iter().map(|element| entry_bytes(element)).sum();
        assert_eq!(ListpackBuilder::EMPTY_BYTES + entries, bytes);
        let finished = builder.finish().to_vec();
        assert_eq!(finished.len(), bytes);
        finished
    }

    #[test]
    fn integers_at_every_edge() {
        let mut elements = Vec::new();
        for edge in [0, 127, 4095, 4096, 0x7fff, 0x7f_ffff, 0x7fff_ffff, i64::MAX - 1] {
            for value in [edge, edge + 1, -edge, -edge - 1] {
                elements.push(value.to_string().into_bytes());
            }
        }
        elements.push(i64::MIN.to_string().into_bytes());
        assert_eq!(texts(&built(&elements)).unwrap(), elements);
    }

    #[test]
    fn strings_at_every_edge() {
        let lens =
            [0, 1, 62, 63, 64, 125, 126, 127, 4093, 4094, 4095, 4096, 16_378, 16_379, 16_384, 2_097_150];
        let elements: Vec<Vec<u8>> = lens.iter().map(|&len| vec![b'x'; len]).collect();
        assert_eq!(texts(&built(&elements)).unwrap(), elements);
    }

    #[test]
    fn more_elements_than_the_header_can_count() {
        let elements = vec![b"7".to_vec(); 70_000];
        assert_eq!(texts(&built(&elements)).unwrap().len(), 70_000);
    }

    #[test]
    fn known_bytes() {
        assert_eq!(built(&[b"a".to_vec(), b"-1".to_vec()]), b"\x0d\0\0\0\x02\0\x81a\x02\xdf\xff\x02\xff");
    }

    #[test]
    fn any_byte_changed_gives_an_error_or_another_value_and_never_a_panic() {
        let elements: Vec<Vec<u8>> = [b"abc".as_slice(), b"5", b"-300", b"70000", &[b'y'; 200], b""]
            .iter()
            .map(|e| e.to_vec())
            .collect();
        let sound = built(&elements);
        for at in 0..sound.len() {
            for byte in 0..=255 {
                let mut broken = sound.clone();
                broken[at] = byte;
                let _ = texts(&broken);
            }
            assert!(texts(&sound[..at]).is_err());
        }
        assert!(texts(b"\x07\0\0\0\0\0\xff").unwrap().is_empty());
        assert!(texts(b"\x07\0\0\0\x01\0\xff").is_err(), "one element stated, none there");
    }
}
