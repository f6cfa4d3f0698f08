//! Whole numbers and their text, as strict as Valkey is.
//!
//! `parse_i64` accepts exactly what `push_i64` writes: no `+`, no blank, no leading zero, no `-0`. That is
//! what lets a value be kept as a number and given back byte for byte.

/// `-9223372036854775808` is the longest: 20 bytes.
pub const I64_BYTES_MAX: usize = 20;
const _: () = assert!(u64::MAX.ilog10() as usize + 1 == I64_BYTES_MAX, "u64::MAX has as many digits");

/// The number whose canonical text is `text`, if there is one.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let magnitude = match digits {
        [b'0'] if !negative => 0,
        [b'1'..=b'9', ..] if digits.len() < I64_BYTES_MAX => parse_digits(digits)?,
        _ => return None,
    };
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// At most 19 digits, so the sum stays below 10^19 < 2^64.
#[inline]
fn parse_digits(digits: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// A u64 as Valkey reads cursors: the canonical form, or else whatever C's `strtoull` takes, which is blanks
/// before, a sign (a minus wraps around), leading zeros, and anything after a NUL.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    if let Some(value) = parse_i64(text) {
        return u64::try_from(value).ok();
    }
    let blanks = text.iter().take_while(|&&byte| is_c_space(byte)).count();
    let (negative, digits) = match &text[blanks..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let end = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if end == 0 || !matches!(digits.get(end), None | Some(0)) {
        return None;
    }
    let mut value = 0u64;
    for &byte in &digits[..end] {
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    Some(if negative { value.wrapping_neg() } else { value })
}

/// C's `isspace` in the C locale; Rust's `is_ascii_whitespace` lacks the vertical tab.
#[inline]
pub fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

static DIGIT_PAIRS: [[u8; 2]; 100] = digit_pairs();

const fn digit_pairs() -> [[u8; 2]; 100] {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
}

/// The text of `value`, written to the end of `buffer`.
#[inline]
pub fn write_i64(value: i64, buffer: &mut [u8; I64_BYTES_MAX]) -> &[u8] {
    let mut at = write_digits(value.unsigned_abs(), buffer);
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    &buffer[at..]
}

#[inline]
pub fn write_u64(value: u64, buffer: &mut [u8; I64_BYTES_MAX]) -> &[u8] {
    let at = write_digits(value, buffer);
    &buffer[at..]
}

#[inline]
fn write_digits(mut value: u64, buffer: &mut [u8; I64_BYTES_MAX]) -> usize {
    let mut at = buffer.len();
    while value >= 100 {
        let pair = DIGIT_PAIRS[(value % 100) as usize];
        value /= 100;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&pair);
    }
    if value >= 10 {
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&DIGIT_PAIRS[value as usize]);
    } else {
        at -= 1;
        buffer[at] = b'0' + value as u8;
    }
    at
}

#[inline]
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(write_i64(value, &mut [0; I64_BYTES_MAX]));
}

#[inline]
pub fn push_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(write_u64(value, &mut [0; I64_BYTES_MAX]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn canonical_numbers_only() {
        let check =
            |text: &str, expected: Option<i64>| assert_eq!(parse_i64(text.as_bytes()), expected, "{text:?}");
        check("0", Some(0));
        check("7", Some(7));
        check("-1", Some(-1));
        check("1234567890123456789", Some(1_234_567_890_123_456_789));
        check("9223372036854775807", Some(i64::MAX));
        check("-9223372036854775808", Some(i64::MIN));
        check("9223372036854775808", None);
        check("-9223372036854775809", None);
        check("9999999999999999999", None);
        check("18446744073709551616", None);
        check("100000000000000000000", None);
        for bad in ["", "-", "+1", "-0", "00", "01", "-01", " 1", "1 ", "1a", "a", "1.0", "0x1", "1\0", "--1"]
        {
            check(bad, None);
        }
    }

    #[test]
    fn unsigned_numbers_as_strtoull_takes_them() {
        let check =
            |text: &str, expected: Option<u64>| assert_eq!(parse_u64(text.as_bytes()), expected, "{text:?}");
        check("0", Some(0));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", None);
        check("-1", None);
        check("-01", Some(u64::MAX));
        check("-0", Some(0));
        check("+5", Some(5));
        check(" \t\x0b5", Some(5));
        check("007", Some(7));
        check("7\0x", Some(7));
        for bad in ["", "abc", "7x", "7 ", "-", "+", " ", "\0", "+-1"] {
            check(bad, None);
        }
    }

    #[test]
    fn text_and_number_are_inverse() {
        let mut prng = Prng::new(3);
        let check = |value: i64| {
            let mut buffer = [0; I64_BYTES_MAX];
            let text = write_i64(value, &mut buffer);
            assert_eq!(text, value.to_string().as_bytes());
            assert_eq!(parse_i64(text), Some(value));
        };
        for value in [0, 1, -1, 9, 10, 99, 100, 101, i64::MAX, i64::MIN] {
            check(value);
        }
        for _ in 0..100_000 {
            let bits = prng.next_u64();
            check((bits as i64) >> (prng.below(64)));
        }
    }

    #[test]
    fn unsigned_text() {
        for value in [0u64, 9, 10, 99, 100, u64::MAX] {
            let mut out = Vec::new();
            push_u64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }
}
