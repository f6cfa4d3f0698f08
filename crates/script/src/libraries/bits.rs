//! `bit`: operations on 32 bits.
//!
//! A number becomes bits by adding 2^52 + 2^51 and taking the low half of what the sum is in memory: rounded
//! to even, modulo 2^32, right for every whole number below 2^51. Beyond that, and for NaN and infinities,
//! the bits are what they are.

use super::args::{Cursor, Value, put_number, put_text, type_error};
use super::{Args, Failure, State};

type Done = Result<(), Failure>;

fn bits_of(value: Option<Value<'_>>, number: usize) -> Result<u32, Failure> {
    const MAGIC: f64 = ((1u64 << 52) + (1 << 51)) as f64;
    let is = value.and_then(|value| value.number()).ok_or_else(|| type_error(value, number, "number"))?;
    Ok((is + MAGIC).to_bits() as u32)
}

fn next(cursor: &mut Cursor<'_>) -> Result<u32, Failure> {
    let value = cursor.next();
    bits_of(value, cursor.number)
}

fn put(out: &mut Vec<u8>, bits: u32) -> Done {
    put_number(out, f64::from(bits as i32));
    Ok(())
}

fn one(args: Args<'_>, out: &mut Vec<u8>, operation: fn(u32) -> u32) -> Done {
    let bits = next(&mut args.cursor())?;
    put(out, operation(bits))
}

/// The first argument is checked first, the others from the last to the second: the last of those that fail
/// is named.
fn many(args: Args<'_>, out: &mut Vec<u8>, operation: fn(u32, u32) -> u32) -> Done {
    let mut cursor = args.cursor();
    let mut bits = next(&mut cursor)?;
    let mut failure = None;
    while let Some(value) = cursor.next() {
        match bits_of(Some(value), cursor.number) {
            Ok(more) => bits = operation(bits, more),
            Err(found) => failure = Some(found),
        }
    }
    failure.map_or_else(|| put(out, bits), Err)
}

fn shift(args: Args<'_>, out: &mut Vec<u8>, operation: fn(u32, u32) -> u32) -> Done {
    let mut cursor = args.cursor();
    let bits = next(&mut cursor)?;
    let by = next(&mut cursor)? & 31;
    put(out, operation(bits, by))
}

pub fn tobit(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    one(args, out, |bits| bits)
}

pub fn bnot(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    one(args, out, |bits| !bits)
}

pub fn bswap(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    one(args, out, u32::swap_bytes)
}

pub fn band(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    many(args, out, |bits, more| bits & more)
}

pub fn bor(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    many(args, out, |bits, more| bits | more)
}

pub fn bxor(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    many(args, out, |bits, more| bits ^ more)
}

pub fn lshift(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    shift(args, out, |bits, by| bits << by)
}

pub fn rshift(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    shift(args, out, |bits, by| bits >> by)
}

pub fn arshift(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    shift(args, out, |bits, by| (bits as i32 >> by) as u32)
}

pub fn rol(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    shift(args, out, u32::rotate_left)
}

pub fn ror(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    shift(args, out, u32::rotate_right)
}

/// Up to eight digits, in capitals if their number is negative. (CVE-2024-31449: the smallest number has no
/// positive twin.)
pub fn tohex(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let mut cursor = args.cursor();
    let bits = next(&mut cursor)?;
    let digits = match cursor.next() {
        None => 8,
        value => bits_of(value, 2)? as i32,
    };
    let text = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    let kept = digits.unsigned_abs().min(8) as usize;
    put_text(out, &text.as_bytes()[8 - kept..]);
    Ok(())
}
