//! Lengths, strings and numbers as RDB files hold them; see `read.rs` for the drawing.
//!
//! A string that reads as an integer of 32 bits is written as one; one of more than 20 bytes is compressed if
//! that saves at least four bytes.

use isotherm_stdx::number;

use crate::lzf::Compressor;
use crate::sink::Sink;

/// Longer texts are no integers of 32 bits: `-2147483648` has eleven.
const INTEGER_BYTES_MAX: usize = 11;
/// Up to here compression cannot win.
const COMPRESS_ABOVE_BYTES: usize = 20;
const COMPRESS_SAVES_MIN: usize = 4;

/// A sink in the format's terms. Nothing that was written is changed afterwards, so a sink may pass bytes on
/// at once.
pub struct Writer<S: Sink = Vec<u8>> {
    sink: S,
    compress: bool,
    /// 256 KB, taken with the first string that is long enough.
    compressor: Option<Compressor>,
    /// Compressed form of the last string.
    packed: Vec<u8>,
}

/// The buffer of compressed strings does not stay larger than this.
const PACKED_BYTES_KEPT_MAX: usize = 64 << 10;

impl Writer {
    /// Into a vector. `compress` is the parameter `rdbcompression`.
    pub fn new(compress: bool) -> Writer {
        Writer::over(Vec::new(), compress)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.sink
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.sink
    }

    /// Empties the vector and keeps the compressor: for the next value.
    pub fn clear(&mut self) {
        self.sink.clear();
    }
}

impl<S: Sink> Writer<S> {
    pub fn over(sink: S, compress: bool) -> Writer<S> {
        Writer { sink, compress, compressor: None, packed: Vec::new() }
    }

    pub fn sink(&self) -> &S {
        &self.sink
    }

    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    pub fn into_sink(self) -> S {
        self.sink
    }

    pub fn byte(&mut self, byte: u8) {
        self.sink.put(&[byte]);
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.sink.put(bytes);
    }

    pub fn length(&mut self, length: u64) {
        let (bytes, len) = length_bytes(length);
        self.sink.put(&bytes[..len]);
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
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        let compressor = self.compressor.get_or_insert_default();
        let smaller = compressor.compress(text, &mut packed, text.len() - COMPRESS_SAVES_MIN);
        if smaller {
            self.byte(0xc3);
            self.length(packed.len() as u64);
            self.length(text.len() as u64);
            self.raw(&packed);
        }
        if packed.capacity() <= PACKED_BYTES_KEPT_MAX {
            self.packed = packed;
        }
        smaller
    }
}

/// A length's bytes, and how many they are.
fn length_bytes(length: u64) -> ([u8; 9], usize) {
    let mut bytes = [0; 9];
    let len = match length {
        0..0x40 => {
            bytes[0] = length as u8;
            1
        }
        0x40..0x4000 => {
            bytes[..2].copy_from_slice(&[0x40 | (length >> 8) as u8, length as u8]);
            2
        }
        0x4000..0x1_0000_0000 => {
            bytes[0] = 0x80;
            bytes[1..5].copy_from_slice(&(length as u32).to_be_bytes());
            5
        }
        _ => {
            bytes[0] = 0x81;
            bytes[1..].copy_from_slice(&length.to_be_bytes());
            9
        }
    };
    (bytes, len)
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
