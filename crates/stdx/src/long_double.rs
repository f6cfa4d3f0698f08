//! C's `long double` as INCRBYFLOAT needs it: read, add, print - on every machine with the results of an x86.
//!
//! ```text
//! value = (-1)^sign x significand x 2^exponent        significand: 64 bits, the first one set (x87 keeps it too)
//!
//! exponent  -16445 .. 16320      as 2^(e - 63) for the x87's e of -16382 .. 16383
//! smallest  1 x 2^-16445 ~ 3.6e-4951        largest  (2^64 - 1) x 2^16320 ~ 1.2e4932
//! ```
//! Below 2^63 x 2^-16445 numbers are denormal: the exponent stays, the significand loses leading bits. Each
//! operation computes exactly, or to at least two bits more than the significand and a note whether anything
//! was cut off (`sticky`), and rounds once, half to even, in `round`. So the results are the processor's, bit
//! for bit.
//!
//! A text of up to 18 digits after the point, and any printing of numbers below 2^128, is done in 128-bit
//! arithmetic; everything else goes through `Big`, whose size the length of the text (5 KB) limits.

use std::ops::{Add, Neg};

mod big;
mod text;

/// A number, an infinity, or no number at all (which only infinities of both signs produce).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongDouble {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Magnitude {
    Finite { significand: u64, exponent: i32 },
    Infinite,
    NotANumber,
}

const EXPONENT_MIN: i32 = -16382 - 63;
const EXPONENT_MAX: i32 = 16383 - 63;

/// Texts of this length and more are refused (Valkey reads numbers into a buffer of 5 KB with its final NUL).
const TEXT_BYTES_MAX: usize = 5 * 1024;

impl LongDouble {
    /// Reads a whole text as C's `strtold` does: decimal or hexadecimal (`0x1.8p3`), `inf`, `infinity`.
    /// Refused are blanks, anything after the number, `nan`, and what is too large, or so small that it would
    /// become zero.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        text::parse(text)
    }

    pub fn from_i64(value: i64) -> LongDouble {
        round(value < 0, u128::from(value.unsigned_abs()), 0, false)
    }

    pub fn is_finite(self) -> bool {
        matches!(self.magnitude, Magnitude::Finite { .. })
    }

    pub fn is_zero(self) -> bool {
        matches!(self.magnitude, Magnitude::Finite { significand: 0, .. })
    }

    /// A thousand times the number, rounded up: seconds as milliseconds. `None` if that is more than an `i64`
    /// holds; what is less is its smallest.
    pub fn ceil_thousandfold(self) -> Option<i64> {
        let Magnitude::Finite { significand, exponent } = self.magnitude else {
            return self.negative.then_some(i64::MIN);
        };
        let product = round(self.negative, u128::from(significand) * 1000, exponent, false);
        let Magnitude::Finite { significand, exponent } = product.magnitude else {
            return self.negative.then_some(i64::MIN);
        };
        let (whole, has_rest) = match exponent {
            0.. if significand.leading_zeros() < exponent as u32 => (u64::MAX, false),
            0.. => (significand << exponent, false),
            -63..0 => (significand >> -exponent, significand.trailing_zeros() < -exponent as u32),
            _ => (0, significand > 0),
        };
        if self.negative {
            return Some(0i64.checked_sub_unsigned(whole).unwrap_or(i64::MIN));
        }
        i64::try_from(whole.checked_add(u64::from(has_rest))?).ok()
    }

    /// Appends the number for people: 17 decimals, without the zeros at the end; never an exponent, never
    /// `-0`.
    pub fn push_human(self, out: &mut Vec<u8>) {
        let sign: &[u8] = if self.negative { b"-" } else { b"" };
        match self.magnitude {
            Magnitude::NotANumber => out.extend_from_slice(b"nan"),
            Magnitude::Infinite => out.extend_from_slice(&[sign, b"inf"].concat()),
            Magnitude::Finite { significand, exponent } => {
                let start = out.len();
                out.extend_from_slice(sign);
                text::push_decimal(out, significand, exponent);
                if &out[start..] == b"-0" {
                    out.remove(start);
                }
            }
        }
    }

    pub fn to_human(self) -> Vec<u8> {
        let mut out = Vec::new();
        self.push_human(&mut out);
        out
    }
}

impl Neg for LongDouble {
    type Output = LongDouble;

    fn neg(self) -> LongDouble {
        LongDouble { negative: !self.negative, ..self }
    }
}

impl Add for LongDouble {
    type Output = LongDouble;

    fn add(self, other: LongDouble) -> LongDouble {
        use Magnitude::{Finite, Infinite, NotANumber};
        match (self.magnitude, other.magnitude) {
            (NotANumber, _) => self,
            (_, NotANumber) => other,
            (Infinite, Infinite) if self.negative != other.negative => {
                LongDouble { negative: false, magnitude: NotANumber }
            }
            (Infinite, _) => self,
            (_, Infinite) => other,
            (Finite { significand: a, exponent: ea }, Finite { significand: b, exponent: eb }) => {
                if (ea, a) >= (eb, b) {
                    add_finite((self.negative, a, ea), (other.negative, b, eb))
                } else {
                    add_finite((other.negative, b, eb), (self.negative, a, ea))
                }
            }
        }
    }
}

/// Adds two finite numbers. `large` has the larger magnitude (or an equal exponent and significand).
fn add_finite(large: (bool, u64, i32), small: (bool, u64, i32)) -> LongDouble {
    // Both stand 63 bits up: one bit for the carry above, 63 below for what the smaller number shifts out.
    // Only bits beyond those are lost, and then the numbers are too far apart for the first bits to cancel.
    const ROOM: i32 = 63;
    let (negative, a, exponent) = large;
    let (other_negative, b, other_exponent) = small;
    let a = u128::from(a) << ROOM;
    let b = u128::from(b) << ROOM;
    let distance = (exponent - other_exponent) as u32;
    let aligned = b.checked_shr(distance).unwrap_or(0);
    let sticky = aligned.checked_shl(distance).unwrap_or(0) != b;
    let sum = if negative == other_negative { a + aligned } else { a - aligned - u128::from(sticky) };
    // The difference of equal numbers is +0; the sum of two negative zeros stays negative.
    let negative = negative && (sum != 0 || other_negative);
    round(negative, sum, exponent - ROOM, sticky)
}

/// The number nearest to `(mantissa + a little, if sticky) x 2^exponent`, half to even. With `sticky`, the
/// mantissa must have at least 66 bits, or the number be exactly representable without what was cut off.
fn round(negative: bool, mantissa: u128, exponent: i32, sticky: bool) -> LongDouble {
    let finite = |significand, exponent| LongDouble {
        negative,
        magnitude: Magnitude::Finite { significand, exponent },
    };
    if mantissa == 0 {
        return finite(0, EXPONENT_MIN);
    }
    let bits = 128 - mantissa.leading_zeros() as i32;
    // Down to 64 bits, and further if the number is denormal.
    let shift = (bits - 64).max(EXPONENT_MIN - exponent);
    let exponent = exponent + shift;
    if shift <= 0 {
        return overflow_checked(finite((mantissa << -shift) as u64, exponent), exponent);
    }
    if shift > 128 {
        return finite(0, EXPONENT_MIN);
    }
    let kept = mantissa.checked_shr(shift as u32).unwrap_or(0);
    let half = 1u128 << (shift - 1);
    let cut = if shift == 128 { mantissa } else { mantissa & ((1 << shift) - 1) };
    let up = cut > half || (cut == half && (sticky || kept & 1 == 1));
    let kept = kept + u128::from(up);
    let (significand, exponent) =
        if kept >> 64 == 0 { (kept as u64, exponent) } else { ((kept >> 1) as u64, exponent + 1) };
    overflow_checked(finite(significand, exponent), exponent)
}

fn overflow_checked(number: LongDouble, exponent: i32) -> LongDouble {
    if exponent > EXPONENT_MAX { LongDouble { magnitude: Magnitude::Infinite, ..number } } else { number }
}

#[cfg(test)]
mod tests;
