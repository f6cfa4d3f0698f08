//! Place of a bit, and part of a string that a command looks at.

use crate::Call;
use crate::call::is_word;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

pub(super) const OFFSET_ERROR: &str = "ERR bit offset is not an integer or out of range";

/// The bit that the argument names. With a width, `#3` is the fourth integer of that width.
pub(super) fn bit_offset(call: &Call<'_, '_, '_>, at: usize, width: Option<u32>) -> Option<u64> {
    let text = call.args.get(at);
    let offset = match (text.strip_prefix(b"#"), width) {
        // The product wraps as in Valkey; whatever comes out is checked like any other.
        (Some(number), Some(width)) => parse_i64(number)?.wrapping_mul(i64::from(width)),
        _ => parse_i64(text)?,
    };
    let offset = u64::try_from(offset).ok()?;
    (offset >> 3 < call.string_bytes_max() as u64).then_some(offset)
}

/// The bit `offset` of `bytes`; zero after their end.
#[inline]
pub(super) fn bit_at(bytes: &[u8], offset: u64) -> bool {
    bytes.get((offset >> 3) as usize).is_some_and(|byte| byte >> (7 - (offset & 7)) & 1 == 1)
}

#[inline]
pub(super) fn set_bit(bytes: &mut [u8], offset: u64, on: bool) {
    let byte = &mut bytes[(offset >> 3) as usize];
    let mask = 0x80 >> (offset & 7);
    *byte = if on { *byte | mask } else { *byte & !mask };
}

/// The arguments of BITCOUNT and BITPOS for the part to look at.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub start: i64,
    /// End of the part; `None` for the end of the string.
    pub end: Option<i64>,
    /// The numbers count bits, not bytes.
    pub in_bits: bool,
}

impl Part {
    const WHOLE: Part = Part { start: 0, end: None, in_bits: false };

    /// Reads `[start [end [BYTE | BIT]]]` from argument `at` on.
    pub fn read(call: &Call<'_, '_, '_>, at: usize) -> Result<Part, &'static str> {
        let args = call.args;
        let number = |at| parse_i64(args.get(at)).ok_or(errors::NOT_AN_INTEGER);
        let given = args.len() - at;
        if given == 0 {
            return Ok(Part::WHOLE);
        }
        if given > 3 {
            return Err(errors::SYNTAX);
        }
        let start = number(at)?;
        let in_bits = match args.try_get(at + 2) {
            Some(unit) if is_word(unit, "BIT") => true,
            Some(unit) if !is_word(unit, "BYTE") => return Err(errors::SYNTAX),
            _ => false,
        };
        let end = if given > 1 { Some(number(at + 1)?) } else { None };
        Ok(Part { start, end, in_bits })
    }

    /// The bits of a string of `len` bytes that are meant.
    pub fn bits(self, len: usize) -> std::ops::Range<u64> {
        let unit = if self.in_bits { 1 } else { 8 };
        let total = len as i64 * 8 / unit;
        let absolute = |index: i64| if index < 0 { (total + index).max(0) } else { index };
        let start = absolute(self.start);
        let end = self.end.map_or(total - 1, |end| absolute(end).min(total - 1));
        if start > end { 0..0 } else { (start * unit) as u64..((end + 1) * unit) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let bits = |start, end, in_bits, len| Part { start, end, in_bits }.bits(len);
        assert_eq!(bits(0, None, false, 3), 0..24);
        assert_eq!(bits(1, None, false, 3), 8..24);
        assert_eq!(bits(-1, Some(-1), false, 3), 16..24);
        assert_eq!(bits(-100, Some(100), false, 3), 0..24);
        assert_eq!(bits(2, Some(1), false, 3), 0..0);
        assert_eq!(bits(5, Some(9), true, 3), 5..10);
        assert_eq!(bits(-3, Some(-2), true, 3), 21..23);
        assert_eq!(bits(i64::MIN, Some(i64::MAX), true, 3), 0..24);
        assert_eq!(bits(0, None, false, 0), 0..0);
        assert_eq!(bits(0, Some(0), true, 0), 0..0);
    }

    #[test]
    fn bits_are_counted_from_the_highest() {
        let mut bytes = [0u8; 2];
        set_bit(&mut bytes, 0, true);
        set_bit(&mut bytes, 9, true);
        assert_eq!(bytes, [0x80, 0x40]);
        assert!(bit_at(&bytes, 0) && bit_at(&bytes, 9) && !bit_at(&bytes, 8) && !bit_at(&bytes, 16));
        set_bit(&mut bytes, 0, false);
        assert_eq!(bytes, [0, 0x40]);
    }
}
