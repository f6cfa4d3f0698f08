//! Integers of 1 to 64 bits at any bit of a string, highest bit first: what BITFIELD reads, writes and adds
//! up.

use super::place::{bit_at, set_bit};
use isotherm_stdx::parse_i64;

/// `i16`, `u8`: how wide an integer is, and whether it has a sign. `u64` is not among them, for a reply could
/// not carry it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Width {
    pub bits: u32,
    pub signed: bool,
}

/// Treatment of a result that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overflow {
    /// Result modulo the width.
    Wrap,
    /// Nearest end of the range.
    Saturate,
    /// No write.
    Fail,
}

impl Width {
    pub fn read(text: &[u8]) -> Option<Width> {
        let (signed, bits_max) = match text.first()? {
            b'i' => (true, 64),
            b'u' => (false, 63),
            _ => return None,
        };
        let bits = parse_i64(&text[1..]).filter(|bits| (1..=bits_max).contains(bits))?;
        Some(Width { bits: bits as u32, signed })
    }

    fn min(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn max(self) -> i128 {
        if self.signed { (1 << (self.bits - 1)) - 1 } else { (1 << self.bits) - 1 }
    }

    /// The integer that begins at bit `offset`; zeros after the end.
    pub fn get(self, bytes: &[u8], offset: u64) -> i64 {
        let raw = (0..u64::from(self.bits))
            .fold(0u64, |value, at| value << 1 | u64::from(bit_at(bytes, offset + at)));
        self.low_bits(raw)
    }

    pub fn set(self, bytes: &mut [u8], offset: u64, value: i64) {
        for at in 0..self.bits {
            let on = value >> (self.bits - 1 - at) & 1 == 1;
            set_bit(bytes, offset + u64::from(at), on);
        }
    }

    /// `base + increment` as it is to be stored; `None` if it does not fit and is not to be.
    pub fn add(self, base: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        let sum = i128::from(base) + i128::from(increment);
        match overflow {
            _ if (self.min()..=self.max()).contains(&sum) => Some(sum as i64),
            Overflow::Wrap => Some(self.low_bits(sum as u64)),
            Overflow::Saturate => Some(sum.clamp(self.min(), self.max()) as i64),
            Overflow::Fail => None,
        }
    }

    /// `value` as SET stores it.
    pub fn fit(self, value: i64, overflow: Overflow) -> Option<i64> {
        match overflow {
            Overflow::Saturate if self.looks_too_large(value) => Some(self.max() as i64),
            _ => self.add(value, 0, overflow),
        }
    }

    /// Negative numbers that Valkey takes for too large ones: without a sign all of them, for it looks at the
    /// 64 bits as they are; with one those so far from the range that the distance overflows.
    fn looks_too_large(self, value: i64) -> bool {
        match self.signed {
            false => value < 0,
            true => self.bits < 64 && (self.max() as i64).wrapping_sub(value) < 0,
        }
    }

    fn low_bits(self, value: u64) -> i64 {
        let above = 64 - self.bits;
        if self.signed { (value << above) as i64 >> above } else { (value << above >> above) as i64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(text: &str) -> Width {
        Width::read(text.as_bytes()).expect(text)
    }

    #[test]
    fn widths() {
        assert_eq!(width("i64"), Width { bits: 64, signed: true });
        assert_eq!(width("u63"), Width { bits: 63, signed: false });
        for text in ["", "i", "u", "u0", "u64", "i65", "i0", "x8", "I8", "u 8", "u+8", "u08", "i-1"] {
            assert_eq!(Width::read(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else_changes() {
        for bits in 1..=64 {
            for signed in [true, false] {
                let width = Width { bits, signed };
                if !signed && bits == 64 {
                    continue;
                }
                for value in [width.min() as i64, width.max() as i64, 0, width.max() as i64 / 3] {
                    for offset in 0..9 {
                        let before = [0xa5; 10];
                        let mut bytes = before;
                        width.set(&mut bytes, offset, value);
                        assert_eq!(width.get(&bytes, offset), value, "{width:?} at {offset}");
                        let outside = (0..80).filter(|at| !(offset..offset + u64::from(bits)).contains(at));
                        outside.for_each(|at| assert_eq!(bit_at(&bytes, at), bit_at(&before, at)));
                    }
                }
            }
        }
    }

    #[test]
    fn overflows() {
        use Overflow::{Fail, Saturate, Wrap};
        for (text, base, increment, wrapped, saturated) in [
            ("u8", 255, 1, 0, 255),
            ("u8", 0, -1, 255, 0),
            ("i8", 127, 1, -128, 127),
            ("i8", -128, -1, 127, -128),
            ("i64", i64::MAX, 1, i64::MIN, i64::MAX),
            ("i64", i64::MIN, -1, i64::MAX, i64::MIN),
            ("u63", 0, -1, i64::MAX, 0),
            ("u63", i64::MAX, i64::MAX, i64::MAX - 1, i64::MAX),
            ("i1", 0, 1, -1, 0),
        ] {
            let width = width(text);
            assert_eq!(width.add(base, increment, Wrap), Some(wrapped), "{text} {base} {increment}");
            assert_eq!(width.add(base, increment, Saturate), Some(saturated), "{text} {base} {increment}");
            assert_eq!(width.add(base, increment, Fail), None, "{text} {base} {increment}");
        }
        assert_eq!(width("u8").add(10, 5, Fail), Some(15));
    }

    #[test]
    fn values_that_do_not_fit() {
        use Overflow::{Fail, Saturate, Wrap};
        assert_eq!(width("u8").fit(-1, Saturate), Some(255));
        assert_eq!(width("u8").fit(-1, Wrap), Some(255));
        assert_eq!(width("u8").fit(-1, Fail), None);
        assert_eq!(width("i8").fit(-129, Saturate), Some(-128));
        assert_eq!(width("i8").fit(i64::MIN, Saturate), Some(127), "as Valkey has it");
        assert_eq!(width("i64").fit(i64::MIN, Saturate), Some(i64::MIN));
        assert_eq!(width("i8").fit(300, Wrap), Some(44));
    }
}
