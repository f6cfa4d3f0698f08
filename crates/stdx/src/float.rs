//! Doubles and their text: what a client may write for a double, and what it is shown.

use crate::grisu;

/// Room for the longest text: sign, 17 digits, dot, `e-308`, and the `0.000000` of small fixed numbers.
pub const F64_BYTES_MAX: usize = 32;

/// A double as Valkey reads one. Decimal only, `inf` and `infinity` in any case, one leading sign. Refused:
/// blanks, hexadecimal, `nan`, and what does not fit (too large for a double, or so small that it would
/// become zero).
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let value = parse_f64_rounded(text)?;
    let unsigned = unsigned(text);
    let fits = match decimal_mantissa(unsigned) {
        Some(mantissa) => {
            let is_zero = mantissa.iter().all(|byte| matches!(byte, b'0' | b'.'));
            value.is_finite() && (value != 0.0 || is_zero)
        }
        None => true,
    };
    fits.then_some(value)
}

/// Parses a number as `parse_f64` does, but a number that does not fit becomes infinite, or zero. Valkey
/// reads the ends of ranges in this way.
pub fn parse_f64_rounded(text: &[u8]) -> Option<f64> {
    let unsigned = unsigned(text);
    if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
        return Some(if text[0] == b'-' { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    decimal_mantissa(unsigned)?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn unsigned(text: &[u8]) -> &[u8] {
    match text {
        [b'+' | b'-', rest @ ..] => rest,
        rest => rest,
    }
}

/// Checks `digits [. digits] [e [sign] digits]` with at least one digit before the exponent; gives the part
/// before it.
pub(crate) fn decimal_mantissa(text: &[u8]) -> Option<&[u8]> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut at = whole;
    let mut fraction = 0;
    if text.get(at) == Some(&b'.') {
        fraction = digits(at + 1);
        at += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    let mantissa = &text[..at];
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at);
        if exponent == 0 {
            return None;
        }
        at += exponent;
    }
    (at == text.len()).then_some(mantissa)
}

pub fn format_f64(value: f64) -> String {
    let mut out = Vec::with_capacity(F64_BYTES_MAX);
    push_f64(&mut out, value);
    String::from_utf8(out).expect("only digits, signs and characters were written")
}

/// A text that reads back as `value`, nearly always the shortest, laid out as Valkey does: plain up to seven
/// places beyond the digits or below the point, `1.5e+300` otherwise.
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if let Some(whole) = as_whole_number(value) {
        crate::number::push_i64(out, whole);
    } else {
        push_f64_digits(out, value);
    }
}

/// The text of C's `%.17g`, in which ZSCAN shows the scores of a large sorted set.
pub fn format_f64_17g(value: f64) -> String {
    const DIGITS: i32 = 17;
    if !value.is_finite() || value == 0.0 {
        return format_f64(value);
    }
    let scientific = format!("{value:.16e}");
    let (digits, exponent) = scientific.split_once('e').expect("it was printed with an exponent");
    let exponent: i32 = exponent.parse().expect("it was printed as an integer");
    let shorten = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent) as usize;
        return shorten(&format!("{value:.decimals$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", shorten(digits), exponent.unsigned_abs())
}

/// Appends a number as `push_f64` does, but with whole numbers laid out like all others: `1e+15`. Valkey's
/// checksums of scores use this form.
pub fn push_f64_digits(out: &mut Vec<u8>, value: f64) {
    if value == 0.0 || !value.is_finite() {
        return push_f64(out, value);
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let digits = grisu::digits_of(value.abs());
    lay_out(out, digits.as_bytes(), digits.power, value < 0.0);
}

/// Whole numbers up to 2^62 are printed as integers, however long.
fn as_whole_number(value: f64) -> Option<i64> {
    const LIMIT: f64 = (i64::MAX / 2) as f64;
    if value.abs() > LIMIT {
        return None;
    }
    let whole = value as i64;
    (whole as f64 == value).then_some(whole)
}

/// Writes `digits x 10^power`. The three layouts and their limits are Valkey's.
fn lay_out(out: &mut Vec<u8>, digits: &[u8], power: i32, negative: bool) {
    let count = digits.len() as i32;
    let scientific = power + count - 1;
    if power >= 0 && scientific.abs() < count + 7 {
        out.extend_from_slice(digits);
        out.resize(out.len() + power as usize, b'0');
    } else if power < 0 && (power > -7 || scientific.abs() < 4) {
        let point = count + power;
        if point <= 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + point.unsigned_abs() as usize, b'0');
            out.extend_from_slice(digits);
        } else {
            let (whole, fraction) = digits.split_at(point as usize);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        let digits = &digits[..digits.len().min(18 - usize::from(negative))];
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if scientific < 0 { b"e-" } else { b"e+" });
        crate::number::push_u64(out, u64::from(scientific.unsigned_abs()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test]
    fn accepted_texts() {
        let check =
            |text: &str, expected: f64| assert_eq!(parse_f64(text.as_bytes()), Some(expected), "{text:?}");
        check("0", 0.0);
        check("-0", 0.0);
        check("+3", 3.0);
        check("3.", 3.0);
        check(".5", 0.5);
        check("-.5e1", -5.0);
        check("1e308", 1e308);
        check("5e-324", 5e-324);
        check("007", 7.0);
        check("0e999999999999", 0.0);
        check("inf", f64::INFINITY);
        check("-INF", f64::NEG_INFINITY);
        check("+Infinity", f64::INFINITY);
    }

    #[test]
    fn refused_texts() {
        for text in [
            "",
            " ",
            " 1",
            "1 ",
            "+",
            "-",
            ".",
            "-.",
            "e5",
            "1e",
            "1e+",
            "1.5.2",
            "--1",
            "+-1",
            "0x10",
            "nan",
            "-nan",
            "infinit",
            "infinityx",
            "1e309",
            "-1e309",
            "1e-400",
            "1_0",
            "1\0",
            "in",
        ] {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn seventeen_digits_as_c_prints_them() {
        let check = |value: f64, expected: &str| assert_eq!(format_f64_17g(value), expected);
        check(0.1, "0.10000000000000001");
        check(-0.0, "-0");
        check(1.0, "1");
        check(-5.572429646678098e17, "-5.5724296466780979e+17");
        check(1e16, "10000000000000000");
        check(1e17, "1e+17");
        check(0.0001, "0.0001");
        check(0.00001, "1.0000000000000001e-05");
        check(1e300, "1.0000000000000001e+300");
        check(f64::NEG_INFINITY, "-inf");
    }

    #[test]
    fn printed_forms() {
        let check = |value: f64, expected: &str| assert_eq!(format_f64(value), expected);
        check(0.0, "0");
        check(-0.0, "-0");
        check(1.0, "1");
        check(-1.5, "-1.5");
        check(0.1, "0.1");
        check(1e15, "1000000000000000");
        check(4611686018427387904.0, "4611686018427387904");
        check(1e19, "1e+19");
        check(1e21, "1e+21");
        check(1.5e300, "1.5e+300");
        check(-1e-7, "-1e-7");
        check(0.000001, "0.000001");
        check(0.00012345678, "1.2345678e-4");
        check(0.0012345678, "0.0012345678");
        check(1.2345e-10, "1.2345e-10");
        check(5e-324, "5e-324");
        check(f64::MAX, "1.7976931348623157e+308");
        check(f64::INFINITY, "inf");
        check(f64::NEG_INFINITY, "-inf");
        check(f64::NAN, "nan");
    }

    #[test]
    fn what_is_printed_reads_back() {
        let mut prng = Prng::new(11);
        for _ in 0..100_000 {
            let value = f64::from_bits(prng.next_u64());
            if value.is_finite() {
                assert_eq!(parse_f64(format_f64(value).as_bytes()), Some(value));
            }
        }
    }
}
