//! Lengths, strings and numbers as RDB files hold them; see `read.rs` for the drawing.
//!
//! A string that reads as an integer of 32 bits is written as one; one of more than 20 bytes is compressed if that saves
//! at least four bytes.

use isotherm_stdx::number;

use crate::lzf::Compressor;

/// Longer texts are no integers of 32 bits: `-2147483648` has eleven.
const INTEGER_BYTES_MAX: usize = 11;
/// Up to here compression cannot win.
const COMPRESS_ABOVE_BYTES: usize = 20;
const COMPRESS_SAVES_MIN: usize = 4;

/// A growing buffer in the format's terms.
pub struct Writer {
    bytes: Vec<u8>,
    compress: bool,
    /// 256 KB, taken with the first string that is long enough.
    compressor: Option<Compressor>,
}

impl Writer {
    /// `compress` is the parameter `rdbcompression`.
    pub fn new(compress: bool) -> Writer {
        Writer { bytes: Vec::new(), compress, compressor: None }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Empties the buffer and keeps the compressor: for the next value.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn length(&mut self, length: u64) {
        push_length(&mut self.bytes, length);
    }

    /// Puts a length between what was written before `at` and after it.
    pub fn insert_length(&mut self, at: usize, length: u64) {
        let mut prefix = Vec::new();
        push_length(&mut prefix, length);
        self.bytes.splice(at..at, prefix);
    }

    pub fn milliseconds(&mut self, ms: i64) {
        self.raw(&ms.to_le_bytes());
    }

    pub fn double(&mut self, value: f64) {
        self.raw(&value.to_le_bytes());
    }

    pub fn text(&mut self, text: &[u8]) {
        if text.len() <= INTEGER_BYTES_MAX
            && let Some(value) = number::parse_i64(text)
            && self.integer(value)
        {
            return;
        }
        if self.compress && text.len() > COMPRESS_ABOVE_BYTES && self.compressed(text) {
            return;
        }
        self.length(text.len() as u64);
        self.raw(text);
    }

    /// False if 32 bits do not hold it.
    fn integer(&mut self, value: i64) -> bool {
        let (code, width) = match value {
            -0x80..=0x7f => (0xc0, 1),
            -0x8000..=0x7fff => (0xc1, 2),
            -0x8000_0000..=0x7fff_ffff => (0xc2, 4),
            _ => return false,
        };
        self.byte(code);
        self.raw(&value.to_le_bytes()[..width]);
        true
    }

    fn compressed(&mut self, text: &[u8]) -> bool {
        let mut packed = Vec::new();
        let compressor = self.compressor.get_or_insert_default();
        if !compressor.compress(text, &mut packed, text.len() - COMPRESS_SAVES_MIN) {
            return false;
        }
        self.byte(0xc3);
        self.length(packed.len() as u64);
        self.length(text.len() as u64);
        self.raw(&packed);
        true
    }
}

fn push_length(bytes: &mut Vec<u8>, length: u64) {
    match length {
        0..0x40 => bytes.push(length as u8),
        0x40..0x4000 => bytes.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]),
        0x4000..0x1_0000_0000 => {
            bytes.push(0x80);
            bytes.extend_from_slice(&(length as u32).to_be_bytes());
        }
        _ => {
            bytes.push(0x81);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::read::{Limits, Reader};

    #[test]
    fn lengths_read_back() {
        for edge in [0u64, 0x3f, 0x40, 0x3fff, 0x4000, 0xffff_ffff, 0x1_0000_0000, u64::MAX] {
            let mut writer = Writer::new(true);
            writer.length(edge);
            assert_eq!(Reader::new(writer.bytes(), &Limits::default()).number(), Ok(edge));
        }
    }

    #[test]
    fn strings_take_their_shortest_form() {
        let check = |text: &[u8], bytes: usize| {
            let mut writer = Writer::new(true);
            writer.text(text);
            assert_eq!(writer.bytes().len(), bytes, "{}", text.escape_ascii());
            assert_eq!(Reader::new(writer.bytes(), &Limits::default()).text().unwrap(), text);
        };
        check(b"", 1);
        check(b"-128", 2);
        check(b"128", 3);
        check(b"-2147483648", 5);
        check(b"2147483648", 11);
        check(b"007", 4);
        check(&[b'a'; 20], 21);
        check(&[b'a'; 21], 1 + 1 + 1 + 6);
        check(b"abcdefghijklmnopqrstu", 22);
    }
}
