//! Numbers as C has them: `%.14g`, `strtod`, and casts of doubles that are too large for the integer.

use isotherm_stdx::push_i64;

/// A number as C's `printf("%.<precision>g")` writes it; `precision` is 1 to 17. Lua itself uses 14.
///
/// ```text
/// 1e14 -> 1e+14      100000 -> 100000      0.00001 -> 1e-05      0.1 + 0.2 -> 0.3      -0.0 -> -0
/// ```
pub fn push_number(out: &mut Vec<u8>, value: f64, precision: u32) {
    let limit = POWERS[precision as usize] as f64;
    if value.abs() < limit && value == value.trunc() && (value != 0.0 || value.is_sign_positive()) {
        // Below 10^17, so it fits; above 2^53 `precision` could be 17, where this is exact as well.
        return push_i64(out, value as i64);
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let value = value.abs();
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(b"inf");
    } else if value == 0.0 {
        out.push(b'0');
    } else {
        let (digits, exponent) =
            rounded(value, precision).unwrap_or_else(|| rounded_by_format(value, precision));
        lay_out(out, digits, exponent, precision);
    }
}

const POWERS: [u128; 39] = {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < 39 {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// The first `precision` digits, correctly rounded, and the power of ten of the first; `None` for what needs
/// more than 128 bits.
///
/// `value = m * 2^e`, `m < 2^53`. The digits are `m * 2^e * 10^k` with `k = precision - 1 - exponent`: one
/// product and one shift, or one division, and what is lost decides the rounding exactly. `10^22 < 2^74`, so
/// the product has less than 127 bits.
fn rounded(value: f64, precision: u32) -> Option<(u64, i32)> {
    let bits = value.to_bits();
    let biased = (bits >> 52) as i32;
    if biased == 0 {
        return None;
    }
    let m = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    let e = biased - 1075;
    // log10(2) = 0.30103; this is the exponent or one less.
    let mut exponent = ((e + 52) * 30_103).div_euclid(100_000);
    loop {
        let k = precision as i32 - 1 - exponent;
        let (whole, rest, unit) = match (k, e) {
            (0..=22, -126..=-1) => {
                let product = m * POWERS[k as usize];
                (product >> -e, product & ((1 << -e) - 1), 1 << -e)
            }
            (-22..=-1, -30..=-1) => {
                let unit = POWERS[-k as usize] << -e;
                (m / unit, m % unit, unit)
            }
            (-38..=-1, 0..=74) => {
                let unit = POWERS[-k as usize];
                ((m << e) / unit, (m << e) % unit, unit)
            }
            _ => return None,
        };
        let up = rest > unit - rest || (rest == unit - rest && whole & 1 == 1);
        let digits = whole + u128::from(up);
        if digits < POWERS[precision as usize] {
            return Some((digits as u64, exponent));
        }
        exponent += 1;
    }
}

fn rounded_by_format(value: f64, precision: u32) -> (u64, i32) {
    let text = format!("{value:.*e}", precision as usize - 1);
    let (mantissa, exponent) = text.split_once('e').expect("it was printed with an exponent");
    let digits =
        mantissa.bytes().filter(u8::is_ascii_digit).fold(0, |all, digit| all * 10 + u64::from(digit - b'0'));
    (digits, exponent.parse().expect("it was printed as an integer"))
}

fn lay_out(out: &mut Vec<u8>, digits: u64, exponent: i32, precision: u32) {
    let mut buffer = [0; 20];
    let mut rest = digits;
    let count = precision as usize;
    for place in buffer[..count].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let kept = buffer[..count].iter().rposition(|digit| *digit != b'0').map_or(1, |last| last + 1);
    let digits = &buffer[..kept];
    if (-4..precision as i32).contains(&exponent) {
        if exponent < 0 {
            out.extend_from_slice(&b"0.000"[..(1 - exponent) as usize]);
            out.extend_from_slice(digits);
            return;
        }
        let whole = exponent as usize + 1;
        out.extend_from_slice(&digits[..whole.min(kept)]);
        out.extend(std::iter::repeat_n(b'0', whole.saturating_sub(kept)));
        if kept > whole {
            out.push(b'.');
            out.extend_from_slice(&digits[whole..]);
        }
        return;
    }
    out.push(digits[0]);
    if kept > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    if exponent.abs() < 10 {
        out.push(b'0');
    }
    push_i64(out, i64::from(exponent.abs()));
}

/// C's `strtod`: the number that `text` begins with, and the bytes that it takes (0: there is none).
///
/// Blanks, a sign, then decimal or hexadecimal digits with a point and an exponent, or `inf`, `infinity`,
/// `nan`, `nan(...)` in any case.
pub fn strtod(text: &[u8]) -> (f64, usize) {
    let blanks = text.iter().take_while(|byte| is_blank(**byte)).count();
    let signed = &text[blanks..];
    let negative = signed.first() == Some(&b'-');
    let sign = usize::from(negative || signed.first() == Some(&b'+'));
    let (value, len) = unsigned(&signed[sign..]);
    match len {
        0 => (0.0, 0),
        _ => (if negative { -value } else { value }, blanks + sign + len),
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Maximum number of digits of an integer that is always below 2^53, which a power of ten to 10^22 scales
/// with one rounding (Clinger).
const EXACT_DIGITS_MAX: usize = 15;

fn unsigned(text: &[u8]) -> (f64, usize) {
    match text.first() {
        Some(b'0') if matches!(text.get(1), Some(b'x' | b'X')) => return hexadecimal(text),
        Some(b'0'..=b'9' | b'.') => {}
        _ => return named(text),
    }
    let count = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = count(0);
    let mut at = whole;
    let mut fraction = 0;
    if text.get(at) == Some(&b'.') {
        fraction = count(at + 1);
        at += 1 + fraction;
    }
    if whole + fraction == 0 {
        return (0.0, 0);
    }
    let mut exponent = 0;
    if let Some(b'e' | b'E') = text.get(at) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let digits = count(at + 1 + sign);
        if digits > 0 {
            exponent = 1 + sign + digits;
        }
    }
    if exponent == 0 && whole + fraction <= EXACT_DIGITS_MAX {
        let digits = text[..whole].iter().chain(&text[at - fraction..at]);
        let value = digits.fold(0u64, |all, digit| all * 10 + u64::from(digit - b'0')) as f64;
        return (value / POWERS[fraction] as f64, at);
    }
    at += exponent;
    let text = std::str::from_utf8(&text[..at]).expect("digits, a point and an exponent");
    (text.parse().expect("a decimal number"), at)
}

/// `inf`, `infinity`, `nan`, `nan(digits)`.
fn named(text: &[u8]) -> (f64, usize) {
    let begins = |with: &[u8]| text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    if begins(b"infinity") {
        (f64::INFINITY, 8)
    } else if begins(b"inf") {
        (f64::INFINITY, 3)
    } else if begins(b"nan") {
        let inner = text[3..]
            .iter()
            .skip(1)
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
            .count();
        let closed = text.get(3) == Some(&b'(') && text.get(4 + inner) == Some(&b')');
        match closed {
            true => (nan(&text[4..4 + inner]), 5 + inner),
            false => (nan(b""), 3),
        }
    } else {
        (0.0, 0)
    }
}

/// A NaN with the payload that the C library takes from `nan(...)`: a number in C's notation, else none.
fn nan(digits: &[u8]) -> f64 {
    const QUIET: u64 = 0x7ff8 << 48;
    let (digits, radix) = match digits {
        [b'0', b'x' | b'X', rest @ ..] => (rest, 16),
        [b'0', rest @ ..] => (rest, 8),
        digits => (digits, 10),
    };
    let text = std::str::from_utf8(digits).unwrap_or("");
    let payload = u64::from_str_radix(text, radix).unwrap_or(0) & ((1 << 51) - 1);
    f64::from_bits(QUIET | payload)
}

/// `0x`, hexadecimal digits with a point, and a binary exponent. Rounded once, to even.
fn hexadecimal(text: &[u8]) -> (f64, usize) {
    let mut mantissa = 0u64;
    let mut power = 0i64;
    let mut digits = 0;
    let mut point = false;
    let mut at = 2;
    while let Some(byte) = text.get(at) {
        match (char::from(*byte).to_digit(16), byte) {
            (Some(digit), _) => {
                digits += 1;
                if mantissa >> 59 == 0 {
                    mantissa = mantissa << 4 | u64::from(digit);
                    power -= if point { 4 } else { 0 };
                } else {
                    // Only whether something follows matters to the rounding.
                    mantissa |= u64::from(digit != 0);
                    power += if point { 0 } else { 4 };
                }
            }
            (None, b'.') if !point => point = true,
            _ => break,
        }
        at += 1;
    }
    if digits == 0 {
        return (0.0, 1);
    }
    if let Some(b'p' | b'P') = text.get(at) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let from = at + 1 + sign;
        let count = text[from.min(text.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count > 0 {
            let digits = text[from..from + count].iter();
            // Far beyond every double, and far from an overflow.
            let value = digits.fold(0i64, |all, digit| (all * 10 + i64::from(digit - b'0')).min(1 << 40));
            power += if text[at + 1] == b'-' { -value } else { value };
            at = from + count;
        }
    }
    (scaled(mantissa, power), at)
}

/// `mantissa * 2^power`, rounded to even.
fn scaled(mantissa: u64, power: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let zeros = mantissa.leading_zeros();
    let mantissa = mantissa << zeros;
    // The value is `mantissa / 2^63 * 2^top`.
    let top = power + 63 - i64::from(zeros);
    if top > 1023 {
        return f64::INFINITY;
    }
    // 53 bits are kept, fewer below 2^-1022.
    let dropped = 11 + (-1022 - top).max(0);
    if dropped > 64 {
        return 0.0;
    }
    let wide = u128::from(mantissa);
    let (kept, rest, half) = (wide >> dropped, wide & ((1 << dropped) - 1), 1u128 << (dropped - 1));
    let kept = (kept + u128::from(rest > half || (rest == half && kept & 1 == 1))) as u64;
    // A carry out of the 53 bits, or from a subnormal to a normal, is right as it is: the exponent lies
    // above.
    let exponent = (top.max(-1022) + 1022) as u64;
    f64::from_bits((exponent << 52) + kept)
}

/// Parses a text as Lua does where it needs a number: the whole text up to the first NUL, without the blanks
/// around it.
pub fn number_of(text: &[u8]) -> Option<f64> {
    let text = super::args::until_nul(text);
    let (value, len) = strtod(text);
    (len > 0 && text[len..].iter().all(|byte| is_blank(*byte))).then_some(value)
}

/// C's cast to a 64-bit integer on x86-64: what does not fit is the smallest integer.
pub fn integer_of(value: f64) -> i64 {
    const LIMIT: f64 = (1u64 << 63) as f64;
    if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN }
}

/// Casts to a 32-bit integer as C does on x86-64: a value that does not fit becomes the smallest integer.
pub fn int_of(value: f64) -> i32 {
    let whole = value.trunc();
    if (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&whole) { whole as i32 } else { i32::MIN }
}

/// Casts to a 64-bit integer without a sign as C does on x86-64: by the cast to a signed integer; from 2^63
/// on, 2^63 is subtracted first.
pub fn unsigned_of(value: f64) -> u64 {
    const LIMIT: f64 = (1u64 << 63) as f64;
    if value >= LIMIT { (integer_of(value - LIMIT) as u64) ^ (1 << 63) } else { integer_of(value) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    fn text(value: f64, precision: u32) -> String {
        let mut out = Vec::new();
        push_number(&mut out, value, precision);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        let cases = [
            (0.1 + 0.2, 14, "0.3"),
            (1e14, 14, "1e+14"),
            (99999999999999.0, 14, "99999999999999"),
            (999999999999995.0, 14, "1e+15"),
            (123456789012345.0, 14, "1.2345678901234e+14"),
            (123456789012355.0, 14, "1.2345678901236e+14"),
            (9.99999999999999, 14, "10"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (-0.0, 14, "-0"),
            (1.5, 1, "2"),
            (2.5, 1, "2"),
            (12.0, 1, "1e+01"),
            (5e-324, 14, "4.9406564584125e-324"),
            (f64::MAX, 14, "1.7976931348623e+308"),
            (1.0 / 3.0, 5, "0.33333"),
            (0.012345678901234567, 14, "0.012345678901235"),
            (1e100, 14, "1e+100"),
            (f64::INFINITY, 14, "inf"),
            (-f64::NAN, 14, "-nan"),
        ];
        for (value, precision, expected) in cases {
            assert_eq!(text(value, precision), expected, "{value:e}");
        }
    }

    #[test]
    fn digits_by_integers_are_those_of_the_formatter() {
        let mut prng = Prng::new(15);
        let mut by_integers = 0;
        for round in 0..300_000 {
            let value = match round % 3 {
                0 => f64::from_bits(prng.next_u64() >> 1),
                1 => prng.below(1 << 40) as f64 / (1 << prng.below(30)) as f64,
                _ => prng.below(1 << 53) as f64 / 10f64.powi(prng.below(40) as i32 - 12),
            };
            let precision = 1 + prng.below(14) as u32;
            let found = if value.is_finite() && value != 0.0 { rounded(value, precision) } else { None };
            if let Some(found) = found {
                assert_eq!(found, rounded_by_format(value, precision), "{value:e} .{precision}");
                by_integers += 1;
            }
        }
        assert!(by_integers > 150_000, "{by_integers}");
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let cases: [(&str, f64, usize); 26] = [
            ("12", 12.0, 2),
            ("0.1", 0.1, 3),
            ("-0", -0.0, 2),
            ("1e5x", 1e5, 3),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            (".", 0.0, 0),
            ("-", 0.0, 0),
            ("", 0.0, 0),
            ("  7 ", 7.0, 3),
            ("0x", 0.0, 1),
            ("0x1F", 31.0, 4),
            ("-0x.8p1z", -1.0, 7),
            ("0x1p", 1.0, 3),
            ("0x1p-1074", 5e-324, 9),
            ("0x1p-1075", 0.0, 9),
            ("0x1.8p-1075", 5e-324, 11),
            ("0x1.fffffffffffff8p1023", f64::INFINITY, 23),
            ("0x10000000000000081", 18446744073709551616.0 + 0.0, 19),
            ("infinit", f64::INFINITY, 3),
            ("-INFINITY", f64::NEG_INFINITY, 9),
            ("123456789012345678901234567890", 123456789012345678901234567890.0, 30),
            ("1e400", f64::INFINITY, 5),
            ("0.000000000000001", 1e-15, 17),
        ];
        for (text, value, len) in cases {
            let (found, taken) = strtod(text.as_bytes());
            assert_eq!((found.to_bits(), taken), (value.to_bits(), len), "{text}");
        }
        assert!(strtod(b"nan(12)x").0.is_nan());
        assert_eq!(strtod(b"nan(12)x").1, 7);
        assert_eq!(strtod(b"nan(1-2)").1, 3);
    }

    #[test]
    fn casts_are_those_of_the_machine() {
        assert_eq!(integer_of(f64::NAN), i64::MIN);
        assert_eq!(integer_of(-1.9), -1);
        assert_eq!(int_of(2147483648.0), i32::MIN);
        assert_eq!(int_of(2147483647.9), i32::MAX);
        assert_eq!(unsigned_of(18446744073709549568.0), 18446744073709549568);
        assert_eq!(unsigned_of(18446744073709551616.0), 0);
        assert_eq!(unsigned_of(f64::INFINITY), 0);
        assert_eq!(unsigned_of(f64::NAN), 1 << 63);
        assert_eq!(unsigned_of(-1.0), u64::MAX);
    }
}
