//! `struct`: values in the layouts of C structures.
//!
//! ```text
//! > <  big, little endian      ![n]  alignment       x   a byte of padding       ' '  ignored
//! b B  char   h H  short   l L  long   T  size_t     i[n] I[n]  n bytes (4; at most 32)
//! f    float      d  double      c[n]  n bytes of a string (1; 0: all, or as many as the number before)      s  string, NUL
//! ```
//!
//! An item of n bytes begins at a multiple of n, or of the alignment if that is less. Sizes and offsets never
//! leave what a `size_t` holds, and nothing is read beyond the data, whatever the sum (CVE-2018-11219,
//! CVE-2020-14147). The output of `pack` is bounded by its arguments: an item takes at most 32 bytes and 31
//! before it, or the bytes of its string.

use super::args::{
    Args, Value, check_number, check_text, integer_or, put_number, put_text, until_nul, value_at,
};
use super::numbers::unsigned_of;
use super::{Failure, STACK_SLOTS_MAX, State};
use crate::tape::tags::STRING;

type Done = Result<(), Failure>;

const INTEGER_BYTES_MAX: usize = 32;
const ALIGNMENT_DEFAULT: usize = 8;

/// A format while it is read.
struct Format<'a> {
    rest: &'a [u8],
    big_endian: bool,
    /// A power of two, to 2^30.
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(text: &'a [u8]) -> Format<'a> {
        Format { rest: until_nul(text), big_endian: false, alignment: 1 }
    }

    /// The next option and the bytes of its item: 0 for what has none, or has it from its argument.
    fn next(&mut self) -> Result<Option<(u8, usize)>, Failure> {
        let [option, rest @ ..] = self.rest else { return Ok(None) };
        self.rest = rest;
        let size = match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => match self.number(4)? {
                size if size > INTEGER_BYTES_MAX => {
                    let text = format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(Failure::error(text));
                }
                size => size,
            },
            _ => 0,
        };
        Ok(Some((*option, size)))
    }

    /// An `int` of C.
    fn number(&mut self, default: usize) -> Result<usize, Failure> {
        if !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return Ok(default);
        }
        let mut number: i32 = 0;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            let digit = i32::from(digit - b'0');
            let more = number.checked_mul(10).and_then(|number| number.checked_add(digit));
            number = more.ok_or_else(|| Failure::error("integral size overflow"))?;
            self.rest = rest;
        }
        Ok(number as usize)
    }

    /// Bytes before an item that would begin at `position`.
    fn padding(&self, position: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        // Not of a power of two, this is what Valkey computes.
        (size - (position & (size - 1))) & (size - 1)
    }

    /// An option without an item.
    fn control(&mut self, option: u8) -> Done {
        match option {
            b' ' => {}
            b'>' => self.big_endian = true,
            b'<' => self.big_endian = false,
            b'!' => {
                let alignment = self.number(ALIGNMENT_DEFAULT)?;
                if !alignment.is_power_of_two() {
                    return Err(Failure::error(format!("alignment {alignment} is not a power of 2")));
                }
                self.alignment = alignment;
            }
            _ => {
                let text = [b"invalid format option '", &[option][..], b"'"].concat();
                return Err(Failure::argument(1, text));
            }
        }
        Ok(())
    }
}

/// The bytes of an item, from its bytes in little endian.
fn put_ordered<const N: usize>(out: &mut Vec<u8>, mut little: [u8; N], size: usize, big_endian: bool) {
    let bytes = &mut little[..size];
    if big_endian {
        bytes.reverse();
    }
    out.extend_from_slice(bytes);
}

fn get_ordered<const N: usize>(bytes: &[u8], big_endian: bool) -> [u8; N] {
    let mut little: [u8; N] = bytes.try_into().expect("the size of the item");
    if big_endian {
        little.reverse();
    }
    little
}

pub fn pack(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let mut cursor = args.cursor();
    let format = check_text(cursor.next(), 1)?;
    let mut format = Format::new(&format);
    out.extend_from_slice(&[STRING, 0, 0, 0, 0]);
    let begin = out.len();
    // In C the string under construction stands after the arguments, with a nil before it.
    let mut argument = || {
        let value = cursor.next().or(Some(Value::Nil));
        (value, cursor.number)
    };
    while let Some((option, size)) = format.next()? {
        let padding = format.padding(out.len() - begin, option, size);
        out.resize(out.len() + padding, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let (value, number) = argument();
                let value = check_number(value, number)?;
                let mut bytes = [0; INTEGER_BYTES_MAX];
                bytes[..8].copy_from_slice(&unsigned_of(value).to_le_bytes());
                put_ordered(out, bytes, size, format.big_endian);
            }
            b'x' => out.push(0),
            b'f' => {
                let (value, number) = argument();
                let value = check_number(value, number)? as f32;
                put_ordered(out, value.to_le_bytes(), size, format.big_endian);
            }
            b'd' => {
                let (value, number) = argument();
                let value = check_number(value, number)?;
                put_ordered(out, value.to_le_bytes(), size, format.big_endian);
            }
            b'c' | b's' => {
                let (value, number) = argument();
                let text = check_text(value, number)?;
                let size = if size == 0 { text.len() } else { size };
                // Valkey names the argument after the one that is too short.
                let taken =
                    text.get(..size).ok_or_else(|| Failure::argument(number + 1, "string too short"))?;
                out.extend_from_slice(taken);
                out.extend_from_slice(&b"\0"[..usize::from(option == b's')]);
            }
            _ => format.control(option)?,
        }
    }
    let len = (out.len() - begin) as u32;
    out[begin - 4..begin].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

pub fn unpack(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let mut cursor = args.cursor();
    let format = check_text(cursor.next(), 1)?;
    let mut format = Format::new(&format);
    let data = check_text(cursor.next(), 2)?;
    let position = integer_or(1, cursor.next(), 3)? as usize;
    if position == 0 {
        return Err(Failure::argument(3, "offset must be 1 or greater"));
    }
    // The sums of offsets wrap as those of C do; each is compared with the data before it is used.
    let mut position = position - 1;
    let too_short = || Failure::argument(2, "data string too short");
    let slots = args.count;
    let mut results = 0;
    // Where the last result begins, for `c0`.
    let mut last = 0;
    while let Some((option, mut size)) = format.next()? {
        position = position.wrapping_add(format.padding(position, option, size));
        let rest = data.get(position..).ok_or_else(too_short)?;
        let mut item = rest.get(..size).ok_or_else(too_short)?;
        if slots + results + 2 > STACK_SLOTS_MAX {
            return Err(Failure::stack_overflow("too many results"));
        }
        let mut begin = out.len();
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                put_number(out, integer(item, format.big_endian, option.is_ascii_lowercase()));
            }
            b'f' => put_number(out, f64::from(f32::from_le_bytes(get_ordered(item, format.big_endian)))),
            b'd' => put_number(out, f64::from_le_bytes(get_ordered(item, format.big_endian))),
            b'c' => {
                if size == 0 {
                    let before = (results > 0).then(|| value_at(out, last).number()).flatten();
                    let before = before.ok_or_else(|| Failure::error("format 'c0' needs a previous size"))?;
                    size = unsigned_of(before) as usize;
                    item = rest.get(..size).ok_or_else(too_short)?;
                    begin = last;
                    out.truncate(last);
                    results -= 1;
                }
                put_text(out, item);
            }
            b's' => {
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| Failure::error("unfinished string in data"))?;
                put_text(out, &rest[..end]);
                size = end + 1;
            }
            b'x' => {}
            _ => format.control(option)?,
        }
        if out.len() > begin {
            last = begin;
            results += 1;
        }
        position += size;
    }
    put_number(out, (position as u64).wrapping_add(1) as i64 as f64);
    Ok(())
}

pub fn size(_: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let format = check_text(args.get(1), 1)?;
    let mut format = Format::new(&format);
    let mut position = 0usize;
    while let Some((option, size)) = format.next()? {
        position = position.wrapping_add(format.padding(position, option, size));
        match (option, size) {
            (b's', _) => return Err(Failure::argument(1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(Failure::argument(1, "option 'c0' has no fixed size")),
            // Alphanumeric options that mean nothing are ignored here, and only here.
            _ if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
        position = position.wrapping_add(size);
    }
    put_number(out, position as i64 as f64);
    Ok(())
}

/// More bytes than eight are shifted through: the last eight stay.
fn integer(item: &[u8], big_endian: bool, signed: bool) -> f64 {
    let add = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
    let value = if big_endian { item.iter().fold(0, add) } else { item.iter().rev().fold(0, add) };
    if !signed {
        return value as f64;
    }
    // The machine takes a shift modulo 64, so above eight bytes the sign is looked for at odd places, as in
    // Valkey.
    let mask = u64::MAX.wrapping_shl((item.len() as u32 * 8).wrapping_sub(1));
    let value = if value & mask != 0 { value | mask } else { value };
    value as i64 as f64
}
