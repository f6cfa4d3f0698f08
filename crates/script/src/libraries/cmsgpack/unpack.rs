//! MessagePack as values.
//!
//! A length is never believed: a table grows with what is read, and each of its elements takes a byte at
//! least. Tables that are begun are in `frames`, and the slots that C would use on Lua's stack bound them:
//! two for a table with its key, and one for each result (CVE-2018-11218: Valkey checks these slots, and an
//! earlier one did not).
//!
//! The head of an array promises the slots that Lua would have made by itself, as in `cjson.decode`; with a
//! nil among its elements Lua's table depends on the order of the assignments, and nothing is promised. A map
//! of a few strings is written as fields, as in `cjson.decode`.

use crate::libraries::args::{Args, Value, check_integer, check_text, integer_or, put_number, put_text};
use crate::libraries::{Failure, OUT_OF_MEMORY, RESULT_BYTES_MAX, STACK_SLOTS_MAX, State, shrink};
use crate::tape::FIELDS_MAX;
use crate::tape::tags::{FALSE, FIELDS, LIST, NIL, NUMBER, STRING, TABLE, TABLE_END, TRUE};

type Done = Result<(), Failure>;

#[derive(Default)]
pub struct Room {
    frames: Vec<Frame>,
}

impl Room {
    pub fn shrink(&mut self) {
        shrink(&mut self.frames);
    }
}

struct Frame {
    is_map: bool,
    /// A value is to come that belongs to a key.
    has_key: bool,
    /// At least one value of the table is nil.
    has_nil: bool,
    /// At least one key of the map is no string.
    has_other_key: bool,
    /// Elements or pairs to come, and those that came.
    left: u32,
    count: u32,
    /// Slots of the stack in use with the table on top.
    slots: usize,
    /// Places of the table's head and of its last key on the tape of results.
    head: usize,
    key: usize,
}

pub fn unpack(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    unpack_from(state, args, (0, 0), args.count, out)
}

pub fn unpack_one(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let offset = integer_or(0, args.get(2), 2)?;
    unpack_from(state, args, (1, offset), 1, out)
}

pub fn unpack_limit(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let limit = check_integer(args.get(2), 2)?;
    let offset = integer_or(0, args.get(3), 3)?;
    unpack_from(state, args, (limit, offset), 1, out)
}

/// Up to `limit` values from `offset`. With both 0: all, and no offset among the results.
fn unpack_from(
    state: &mut State,
    args: Args<'_>,
    (limit, offset): (i64, i64),
    slots: usize,
    out: &mut Vec<u8>,
) -> Done {
    let text = check_text(args.get(1), 1)?;
    let all = limit == 0 && offset == 0;
    // The texts show `int`s, and the first one the length as if it were the limit.
    let (shown, len) = (offset as i32, text.len() as i32);
    if offset < 0 || limit < 0 {
        return Err(Failure::error(format!(
            "Invalid request to unpack with offset of {shown} and limit of {len}."
        )));
    }
    let Some(rest) = usize::try_from(offset).ok().and_then(|offset| text.get(offset..)) else {
        return Err(Failure::error(format!("Start offset {shown} greater than input length {len}.")));
    };
    let limit = if all { i64::from(i32::MAX) } else { limit };
    let head = out.len();
    if !all {
        put_number(out, 0.0);
    }
    let frames = &mut state.unpacker.frames;
    frames.clear();
    let mut unpacker = Unpacker { rest, frames, out };
    let mut results = 0;
    while !unpacker.rest.is_empty() && results < limit {
        unpacker.value(slots + results as usize)?;
        results += 1;
    }
    let rest = unpacker.rest.len();
    if !all {
        if slots + results as usize + 1 > STACK_SLOTS_MAX {
            return Err(Failure::stack_overflow("in function mp_unpack_full"));
        }
        let next = if rest == 0 { -1.0 } else { (text.len() - rest) as f64 };
        out[head + 1..head + 9].copy_from_slice(&next.to_le_bytes());
    }
    Ok(())
}

struct Unpacker<'a> {
    rest: &'a [u8],
    frames: &'a mut Vec<Frame>,
    out: &'a mut Vec<u8>,
}

/// Kind of value that a first byte and the length after it announce.
enum Begun {
    Scalar,
    Table { is_map: bool, len: u32 },
}

impl Unpacker<'_> {
    /// Unpacks a value with all that it holds.
    fn value(&mut self, mut slots: usize) -> Done {
        let depth = self.frames.len();
        loop {
            if self.out.len() > RESULT_BYTES_MAX {
                return Err(OUT_OF_MEMORY);
            }
            let at = self.out.len();
            if let Begun::Table { is_map, len } = self.item(slots)? {
                // The table, and the slot of an array's index.
                if !is_map && slots + 2 > STACK_SLOTS_MAX {
                    return Err(Failure::stack_overflow("in function mp_decode_to_lua_array"));
                }
                match is_map {
                    true => self.out.extend_from_slice(&[TABLE, 0, 0, 0, 0, 0, 0, 0, 0]),
                    false => self.out.extend_from_slice(&[LIST, 0, 0, 0, 0]),
                }
                if len > 0 {
                    self.frames.push(Frame {
                        is_map,
                        has_key: false,
                        has_nil: false,
                        has_other_key: false,
                        left: len,
                        count: 0,
                        slots: slots + 1,
                        head: at,
                        key: 0,
                    });
                    slots = self.next_slots();
                    continue;
                }
                self.out.push(TABLE_END);
            }
            if self.ended(depth, at)? {
                return Ok(());
            }
            slots = self.next_slots();
        }
    }

    /// Slots in use when the next value of the innermost table is decoded: an index or a key lies above the
    /// table.
    fn next_slots(&self) -> usize {
        let frame = self.frames.last().expect("a table is open");
        frame.slots + usize::from(!frame.is_map || frame.has_key)
    }

    /// After the value that begins at `at`: assigns it, and ends the tables that end with it, down to
    /// `depth`.
    fn ended(&mut self, depth: usize, mut at: usize) -> Result<bool, Failure> {
        while self.frames.len() > depth {
            let frame = self.frames.last_mut().expect("there are more than depth");
            if frame.is_map && !frame.has_key {
                frame.has_key = true;
                frame.has_other_key |= self.out[at] != STRING;
                frame.key = at;
                return Ok(false);
            }
            if frame.is_map {
                frame.has_key = false;
                if frame.has_other_key {
                    check_key(self.out, frame.key)?;
                }
            }
            frame.has_nil |= self.out[at] == NIL;
            frame.left -= 1;
            frame.count += 1;
            if frame.left > 0 {
                return Ok(false);
            }
            at = frame.head;
            let size = &mut self.out[at..at + 5];
            if !frame.is_map && !frame.has_nil {
                size[1..].copy_from_slice(&frame.count.next_power_of_two().to_le_bytes());
            } else if frame.is_map
                && !frame.has_nil
                && !frame.has_other_key
                && frame.count as usize <= FIELDS_MAX
            {
                size[0] = FIELDS;
                size[1..].copy_from_slice(&frame.count.to_le_bytes());
            }
            self.out.push(TABLE_END);
            self.frames.pop();
        }
        Ok(true)
    }

    /// Reads a scalar, or the head of a table.
    fn item(&mut self, slots: usize) -> Result<Begun, Failure> {
        let head = self.take::<1>()?[0];
        if slots + 1 > STACK_SLOTS_MAX {
            return Err(Failure::stack_overflow(
                "too many return values at once; use unpack_one or unpack_limit instead.",
            ));
        }
        let number = match head {
            0x00..=0x7f => f64::from(head),
            0xe0..=0xff => f64::from(head as i8),
            0xcc => f64::from(u8::from_be_bytes(self.take()?)),
            0xcd => f64::from(u16::from_be_bytes(self.take()?)),
            0xce => f64::from(u32::from_be_bytes(self.take()?)),
            // Lua's integers have a sign, and Valkey takes these for such.
            0xcf | 0xd3 => i64::from_be_bytes(self.take()?) as f64,
            0xd0 => f64::from(i8::from_be_bytes(self.take()?)),
            0xd1 => f64::from(i16::from_be_bytes(self.take()?)),
            0xd2 => f64::from(i32::from_be_bytes(self.take()?)),
            0xca => f64::from(f32::from_be_bytes(self.take()?)),
            0xcb => f64::from_be_bytes(self.take()?),
            _ => return self.other(head),
        };
        put_number(self.out, number);
        Ok(Begun::Scalar)
    }

    fn other(&mut self, head: u8) -> Result<Begun, Failure> {
        let (is_map, len) = match head {
            0xc0 => return self.constant(NIL),
            0xc2 => return self.constant(FALSE),
            0xc3 => return self.constant(TRUE),
            0xa0..=0xbf => return self.text(u32::from(head & 0x1f)),
            0xd9..=0xdb => {
                let len = self.length(head - 0xd9)?;
                return self.text(len);
            }
            0x80..=0x8f => (true, u32::from(head & 0xf)),
            0x90..=0x9f => (false, u32::from(head & 0xf)),
            0xdc | 0xdd => (false, self.length(head - 0xdb)?),
            0xde | 0xdf => (true, self.length(head - 0xdd)?),
            _ => return Err(Failure::error("Bad data format in input.")),
        };
        Ok(Begun::Table { is_map, len })
    }

    fn constant(&mut self, tag: u8) -> Result<Begun, Failure> {
        self.out.push(tag);
        Ok(Begun::Scalar)
    }

    fn text(&mut self, len: u32) -> Result<Begun, Failure> {
        let (text, rest) = self.rest.split_at_checked(len as usize).ok_or_else(missing)?;
        put_text(self.out, text);
        self.rest = rest;
        Ok(Begun::Scalar)
    }

    /// A length of 8, 16 or 32 bits, by the power of its bytes.
    fn length(&mut self, power: u8) -> Result<u32, Failure> {
        Ok(match power {
            0 => u32::from(u8::from_be_bytes(self.take()?)),
            1 => u32::from(u16::from_be_bytes(self.take()?)),
            _ => u32::from_be_bytes(self.take()?),
        })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(missing)?;
        self.rest = rest;
        Ok(*bytes)
    }
}

fn missing() -> Failure {
    Failure::error("Missing bytes in input.")
}

/// Returns Lua's error for a key that it refuses when the pair is assigned.
fn check_key(out: &[u8], key: usize) -> Done {
    match out[key] {
        NIL => Err(Failure::Plain("table index is nil")),
        NUMBER => match crate::libraries::args::value_at(out, key) {
            Value::Number(key) if key.is_nan() => Err(Failure::Plain("table index is NaN")),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}
