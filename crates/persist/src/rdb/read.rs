//! A cursor over bytes from outside: lengths, strings, numbers, each checked against what is left.
//!
//! ```text
//! 00LLLLLL                    length to 63
//! 01LLLLLL LLLLLLLL           length to 16383
//! 10000000 u32, big endian    longer
//! 10000001 u64, big endian    longer still
//! 11000000 i8 | 11000001 i16 | 11000010 i32      a string that is a number, little endian
//! 11000011 packed unpacked lzf                   a string compressed
//! ```

use std::borrow::Cow;

use isotherm_stdx::number;

use crate::lzf;

/// Limits for a value from outside.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest single string, compressed or not.
    pub text_bytes_max: u64,
    /// All that compressed strings of one value unfold into.
    pub unfolded_bytes_max: u64,
}

impl Default for Limits {
    /// Strings as long as an entry can state: what is compressed is bounded by its own length too.
    fn default() -> Self {
        Limits { text_bytes_max: u32::MAX as u64, unfolded_bytes_max: 4 << 30 }
    }
}

/// Why a value cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RdbError {
    /// The bytes end before the value does.
    Short,
    /// Contradiction in the bytes; the text says where.
    Corrupt(&'static str),
    /// A collection without elements, which no key can hold.
    Empty,
    UnknownType(u8),
    /// The value belongs to a module; its name there.
    Module(String),
    /// Larger than the limits.
    TooLarge,
}

/// Returns a function that replaces corruption inside a larger thing by `whole`, the error of that thing.
/// Other errors stay as they are.
pub(super) fn within(whole: RdbError) -> impl FnOnce(RdbError) -> RdbError {
    |error| if matches!(error, RdbError::Corrupt(_)) { whole } else { error }
}

pub(crate) type Result<T> = std::result::Result<T, RdbError>;

pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    text_bytes_max: u64,
    unfolded_bytes_left: u64,
}

enum Prefix {
    Length(u64),
    Special(u8),
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], limits: &Limits) -> Reader<'a> {
        Reader {
            rest: bytes,
            text_bytes_max: limits.text_bytes_max,
            unfolded_bytes_left: limits.unfolded_bytes_max,
        }
    }

    pub fn left(&self) -> usize {
        self.rest.len()
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(RdbError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(RdbError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn prefix(&mut self) -> Result<Prefix> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Prefix::Length(u64::from(first)),
            1 => Prefix::Length(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            2 => match first {
                0x80 => Prefix::Length(u64::from(u32::from_be_bytes(self.array()?))),
                0x81 => Prefix::Length(u64::from_be_bytes(self.array()?)),
                _ => return Err(RdbError::Corrupt("a length of no known width")),
            },
            _ => Prefix::Special(first & 0x3f),
        })
    }

    /// A number that was written as a length: counters and ids may be anything.
    pub fn number(&mut self) -> Result<u64> {
        match self.prefix()? {
            Prefix::Length(length) => Ok(length),
            // COMPAT(transfer): RESTORE refuses a count that is marked as a compressed one. Why: only strings
            // can be compressed.
            Prefix::Special(_) => Err(RdbError::Corrupt("a string where a length belongs")),
        }
    }

    /// A count of things that take at least `bytes_min` each: more than the rest could hold is refused at
    /// once.
    pub fn count(&mut self, bytes_min: usize) -> Result<usize> {
        let count = self.number()?;
        if count > (self.left() / bytes_min) as u64 {
            return Err(RdbError::Short);
        }
        Ok(count as usize)
    }

    pub fn milliseconds(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn double(&mut self) -> Result<f64> {
        self.array().map(f64::from_le_bytes)
    }

    /// A string, in place if it lies there as it is.
    pub fn text(&mut self) -> Result<Cow<'a, [u8]>> {
        match self.prefix()? {
            Prefix::Length(len) => self.plain(len).map(Cow::Borrowed),
            Prefix::Special(3) => {
                let mut unfolded = Vec::new();
                self.unfold(&mut unfolded)?;
                Ok(Cow::Owned(unfolded))
            }
            Prefix::Special(width) => {
                let value = self.integer(width)?;
                let mut buffer = [0; number::I64_BYTES_MAX];
                Ok(Cow::Owned(number::write_i64(value, &mut buffer).to_vec()))
            }
        }
    }

    /// A string, if it lies there as it is; else it is written into `room`, over what that held.
    pub fn text_or_in(&mut self, room: &mut Vec<u8>) -> Result<Option<&'a [u8]>> {
        match self.prefix()? {
            Prefix::Length(len) => self.plain(len).map(Some),
            Prefix::Special(code) => {
                room.clear();
                match code {
                    3 => self.unfold(room)?,
                    width => number::push_i64(room, self.integer(width)?),
                }
                Ok(None)
            }
        }
    }

    /// A string, added to the end of `out`.
    pub fn text_into(&mut self, out: &mut Vec<u8>) -> Result<()> {
        match self.prefix()? {
            Prefix::Length(len) => out.extend_from_slice(self.plain(len)?),
            Prefix::Special(3) => self.unfold(out)?,
            Prefix::Special(width) => number::push_i64(out, self.integer(width)?),
        }
        Ok(())
    }

    fn plain(&mut self, len: u64) -> Result<&'a [u8]> {
        // First: a reader with more bytes to come is not to wait for what cannot be.
        if len > self.text_bytes_max {
            return Err(RdbError::TooLarge);
        }
        if len > self.left() as u64 {
            return Err(RdbError::Short);
        }
        self.take(len as usize)
    }

    fn integer(&mut self, width: u8) -> Result<i64> {
        Ok(match width {
            0 => i64::from(self.byte()? as i8),
            1 => i64::from(i16::from_le_bytes(self.array()?)),
            2 => i64::from(i32::from_le_bytes(self.array()?)),
            _ => return Err(RdbError::Corrupt("a string of no known encoding")),
        })
    }

    /// `[packed length][unpacked length][lzf]`. The second is believed only after three questions.
    fn unfold(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let packed = self.number()?;
        let unpacked = self.number()?;
        let packed = self.plain(packed)?;
        if unpacked > (packed.len() as u64) * lzf::EXPANSION_MAX as u64 {
            return Err(RdbError::Corrupt("a compressed string that claims too much"));
        }
        if unpacked > self.text_bytes_max || unpacked > self.unfolded_bytes_left {
            return Err(RdbError::TooLarge);
        }
        self.unfolded_bytes_left -= unpacked;
        // COMPAT(transfer): RESTORE refuses a compressed string that does not decompress, also if it claims
        // to be empty. Why: a damaged value must not become data.
        if lzf::decompress(packed, out, unpacked as usize) {
            Ok(())
        } else {
            Err(RdbError::Corrupt("a compressed string that does not unfold"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Result<Vec<u8>> {
        let mut reader = Reader::new(bytes, &Limits::default());
        let mut appended = b"x".to_vec();
        let into = Reader::new(bytes, &Limits::default()).text_into(&mut appended);
        let text = reader.text().map(Cow::into_owned);
        assert_eq!(into.map(|()| appended[1..].to_vec()), text);
        text
    }

    #[test]
    fn strings_of_every_kind() {
        assert_eq!(text(b"\x03abc").unwrap(), b"abc");
        assert_eq!(text(b"\x40\x03abc").unwrap(), b"abc");
        assert_eq!(text(b"\x80\0\0\0\x03abc").unwrap(), b"abc");
        assert_eq!(text(b"\x81\0\0\0\0\0\0\0\x03abc").unwrap(), b"abc");
        assert_eq!(text(b"\xc0\xff").unwrap(), b"-1");
        assert_eq!(text(b"\xc1\x00\x80").unwrap(), b"-32768");
        assert_eq!(text(b"\xc2\xff\xff\xff\x7f").unwrap(), b"2147483647");
        assert_eq!(text(b"\xc3\x05\x0a\x00a\xe0\x00\x00").unwrap(), b"aaaaaaaaaa");
    }

    #[test]
    fn what_is_no_string() {
        for bytes in [b"".as_slice(), b"\x03ab", b"\x40", b"\x80\0\0", b"\xc1\x00"] {
            assert_eq!(text(bytes), Err(RdbError::Short), "{bytes:x?}");
        }
        for bytes in [b"\x82".as_slice(), b"\xc4abc", b"\xc3\x02\x80\xff\xff\xff\xff\0a", b"\xc3\x02\x02\0a"]
        {
            assert!(matches!(text(bytes), Err(RdbError::Corrupt(_))), "{bytes:x?}");
        }
    }

    #[test]
    fn limits_hold() {
        assert_eq!(text(b"\x81\xff\xff\xff\xff\0\0\0\0x"), Err(RdbError::TooLarge));
        let limits = Limits { text_bytes_max: 10, unfolded_bytes_max: 15 };
        let mut reader = Reader::new(b"\x0b01234567890", &limits);
        assert_eq!(reader.text(), Err(RdbError::TooLarge));
        let twice = b"\xc3\x05\x0a\x00a\xe0\x00\x00".repeat(2);
        let mut reader = Reader::new(&twice, &limits);
        assert_eq!(reader.text().unwrap(), b"aaaaaaaaaa".as_slice());
        assert_eq!(reader.text(), Err(RdbError::TooLarge), "the second ten of fifteen");
    }
}
