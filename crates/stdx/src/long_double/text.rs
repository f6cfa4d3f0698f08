//! Long doubles from text and to text.

use super::big::Big;
use super::{LongDouble, Magnitude, round};
use crate::float::decimal_mantissa;

/// Numbers from 10^4940 on are too large, those below 10^-4970 too small, whatever their digits.
const MAGNITUDE_MAX: i64 = 4940;
const MAGNITUDE_MIN: i64 = -4970;
/// 10^18 < 2^60: dividing a 128-bit number by it leaves at least 67 bits.
const FAST_DECIMALS_MAX: i64 = 18;
const DECIMALS_SHOWN: u32 = 17;

pub(super) fn parse(text: &[u8]) -> Option<LongDouble> {
    let (negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
        return Some(LongDouble { negative, magnitude: Magnitude::Infinite });
    }
    match unsigned {
        [b'0', b'x' | b'X', digits @ ..] => parse_hexadecimal(negative, digits),
        _ => parse_decimal(negative, unsigned),
    }
}

fn parse_decimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let mantissa = decimal_mantissa(text)?;
    let decimals =
        mantissa.iter().position(|&byte| byte == b'.').map_or(0, |point| mantissa.len() - point - 1);
    let exponent = text.get(mantissa.len() + 1..).map_or(0, parse_exponent);
    let digits = mantissa.iter().copied().filter(|&byte| byte != b'.').skip_while(|&byte| byte == b'0');
    let count = digits.clone().count() as i64;
    if count == 0 {
        return Some(round(negative, 0, 0, false));
    }
    let power = exponent - decimals as i64;
    if !(MAGNITUDE_MIN..=MAGNITUDE_MAX).contains(&(power + count)) {
        return None;
    }
    let number = if count <= 19 && (-FAST_DECIMALS_MAX..=0).contains(&power) {
        let digits = digits.fold(0u64, |value, digit| value * 10 + u64::from(digit - b'0'));
        divide_fast(negative, digits, power.unsigned_abs() as u32)
    } else {
        scale_exactly(negative, Big::from_digits(digits), power as i32)
    };
    accept(number)
}

/// Refuses a number that became infinite by overflow or zero by underflow.
fn accept(number: LongDouble) -> Option<LongDouble> {
    (number.is_finite() && !number.is_zero()).then_some(number)
}

/// `[sign] digits`; the caller has checked the form. Saturates far outside of what is representable.
fn parse_exponent(text: &[u8]) -> i64 {
    const LIMIT: i64 = 1 << 40;
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let value = digits.iter().fold(0i64, |value, &digit| (value * 10 + i64::from(digit - b'0')).min(LIMIT));
    if negative { -value } else { value }
}

/// `digits / 10^decimals` for what nearly every client sends.
fn divide_fast(negative: bool, digits: u64, decimals: u32) -> LongDouble {
    let shift = 64 + digits.leading_zeros();
    let dividend = u128::from(digits) << shift;
    let divisor = u128::from(10u64.pow(decimals));
    round(negative, dividend / divisor, -(shift as i32), !dividend.is_multiple_of(divisor))
}

/// `digits x 10^power` for everything else.
fn scale_exactly(negative: bool, mut digits: Big, power: i32) -> LongDouble {
    let (mantissa, exponent, sticky) = if power >= 0 {
        digits.multiply_power_of_ten(power.unsigned_abs());
        let (first, below, sticky) = digits.first_bits();
        (first, below as i32, sticky)
    } else {
        digits.divide(Big::power_of_ten(power.unsigned_abs()))
    };
    round(negative, mantissa, exponent, sticky)
}

/// `digits [. digits] [p [sign] digits]` after the `0x`, with at least one hexadecimal digit.
fn parse_hexadecimal(negative: bool, text: &[u8]) -> Option<LongDouble> {
    let (mut mantissa, mut exponent, mut sticky) = (0u128, 0i64, false);
    let (mut digits, mut point) = (0, false);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte as char).to_digit(16) {
            Some(digit) => {
                digits += 1;
                // Beyond 124 bits a digit only shows whether the number is exact.
                if mantissa >> 120 == 0 {
                    mantissa = (mantissa << 4) | u128::from(digit);
                    exponent -= if point { 4 } else { 0 };
                } else {
                    sticky |= digit != 0;
                    exponent += if point { 0 } else { 4 };
                }
            }
            None if byte == b'.' && !point => point = true,
            None => break,
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    if let Some(b'p' | b'P') = text.get(at) {
        let power = &text[at + 1..];
        let unsigned = power.strip_prefix(b"+").or(power.strip_prefix(b"-")).unwrap_or(power);
        if unsigned.is_empty() || !unsigned.iter().all(u8::is_ascii_digit) {
            return None;
        }
        exponent += parse_exponent(power);
    } else if at < text.len() {
        return None;
    }
    if mantissa == 0 {
        return Some(round(negative, 0, 0, false));
    }
    let exponent = exponent.clamp(-40_000, 40_000) as i32;
    accept(round(negative, mantissa, exponent, sticky))
}

/// Appends `significand x 2^exponent` rounded to 17 decimals, half to even, without the zeros at the end.
pub(super) fn push_decimal(out: &mut Vec<u8>, significand: u64, exponent: i32) {
    if exponent >= 0 {
        let mut whole = Big::from_u128(u128::from(significand));
        whole.shift_left(exponent.unsigned_abs());
        whole.push_digits(out);
        return;
    }
    // 64 bits x 10^17 (57 bits) = 121 bits: the number in units of the last decimal shown.
    const UNITS: u128 = 10u128.pow(DECIMALS_SHOWN);
    let units = shift_right_rounded(u128::from(significand) * UNITS, exponent.unsigned_abs());
    let (whole, fraction) = (units / UNITS, units % UNITS);
    crate::number::push_u64(out, whole as u64);
    if fraction > 0 {
        let start = out.len();
        out.push(b'.');
        out.extend_from_slice(format!("{fraction:017}").as_bytes());
        let zeros = out[start..].iter().rev().take_while(|&&byte| byte == b'0').count();
        out.truncate(out.len() - zeros);
    }
}

fn shift_right_rounded(value: u128, bits: u32) -> u128 {
    if bits >= 128 {
        // `value` has at most 121 bits: less than half of a unit.
        return 0;
    }
    let (kept, cut, half) = (value >> bits, value & ((1 << bits) - 1), 1u128 << (bits - 1));
    kept + u128::from(cut > half || (cut == half && kept & 1 == 1))
}
