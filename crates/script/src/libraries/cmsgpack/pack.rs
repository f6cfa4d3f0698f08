//! Values as MessagePack.
//!
//! A table is an array if its keys are exactly 1 to the number of its entries, so an empty one is; any other
//! is a map, in the order of the tape. A table below 16 others is nil, which ends circles, and so is whatever
//! MessagePack has no form for. A number is an integer if it is equal to one of 64 bits, else a float if that
//! loses nothing, else a double.

use crate::libraries::args::{Args, after, f64_at, text_at};
use crate::libraries::numbers::integer_of;
use crate::libraries::shape::Shape;
use crate::libraries::{Failure, STACK_SLOTS_MAX, State, shrink};
use crate::tape::WALKED_HEAD;
use crate::tape::tags::{FALSE, KEYED, NUMBER, NUMBERED, STRING, TABLE_END, TRUE, VALUES};

/// Tables within tables; those below are nil.
pub const NESTING_MAX: usize = 16;

#[derive(Default)]
pub struct Room {
    /// The elements of arrays whose keys do not come in their order: key, place of the value.
    elements: Vec<(u32, usize)>,
}

impl Room {
    pub fn shrink(&mut self) {
        shrink(&mut self.elements);
    }
}

pub fn pack(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
    let packer = &mut state.packer;
    packer.elements.clear();
    out.extend_from_slice(&[STRING, 0, 0, 0, 0]);
    let begin = out.len();
    let tape = args.tape;
    let mut at = 0;
    let mut count = 0;
    while at < tape.len() {
        let mut packer = Packer { tape, elements: &mut packer.elements, out, at };
        packer.value(0);
        at = packer.at;
        count += 1;
    }
    match count {
        0 => return Err(Failure::argument(0, "MessagePack pack needs input.")),
        // Each argument leaves its text on the stack.
        count if 2 * count > STACK_SLOTS_MAX => {
            return Err(Failure::argument(0, "Too many arguments for MessagePack pack."));
        }
        _ => {}
    }
    let len = (out.len() - begin) as u32;
    out[begin - 4..begin].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

struct Packer<'a> {
    tape: &'a [u8],
    elements: &'a mut Vec<(u32, usize)>,
    out: &'a mut Vec<u8>,
    /// Place of the next item.
    at: usize,
}

impl Packer<'_> {
    /// Writes the value at `at`, which lies in `level` tables. The levels bound the recursion.
    fn value(&mut self, level: usize) {
        let at = self.at;
        match self.tape[at] {
            STRING => {
                let text = text_at(self.tape, at);
                self.at += 5 + text.len();
                push_text(self.out, text);
                return;
            }
            NUMBER => {
                self.at += 9;
                push_number(self.out, f64_at(self.tape, at + 1));
                return;
            }
            VALUES | NUMBERED | KEYED => return self.table(level),
            TRUE => self.out.push(0xc3),
            FALSE => self.out.push(0xc2),
            _ => self.out.push(0xc0),
        }
        self.at = after(self.tape, at);
    }

    fn table(&mut self, level: usize) {
        let (begin, end) = (self.at, after(self.tape, self.at));
        if level == NESTING_MAX {
            self.out.push(0xc0);
            self.at = end;
            return;
        }
        let shape = Shape::of(self.tape, begin);
        let is_array = shape.whole && shape.fits && shape.max as u32 == shape.entries;
        push_head(self.out, if is_array { ARRAY } else { MAP }, shape.entries);
        self.at += WALKED_HEAD;
        if is_array && !shape.in_order {
            self.sorted(level);
        } else {
            let has_keys = self.tape[begin] != VALUES;
            while self.at < end - 1 {
                match is_array {
                    true if has_keys => self.at = after(self.tape, self.at),
                    true => {}
                    false => self.value(level + 1),
                }
                self.value(level + 1);
            }
        }
        self.at = end;
    }

    /// An array whose keys do not come in their order: lists where its values lie, then writes them by key.
    fn sorted(&mut self, level: usize) {
        let first = self.elements.len();
        let mut at = self.at;
        while self.tape[at] != TABLE_END {
            let value = after(self.tape, at);
            self.elements.push((f64_at(self.tape, at + 1) as u32, value));
            at = after(self.tape, value);
        }
        self.elements[first..].sort_unstable_by_key(|element| element.0);
        for place in first..self.elements.len() {
            self.at = self.elements[place].1;
            self.value(level + 1);
        }
        self.elements.truncate(first);
    }
}

/// The first byte of the short form with up to 15 entries, and that of 16 bits; the one of 32 bits is the
/// next.
type Heads = (u8, u8);
const ARRAY: Heads = (0x90, 0xdc);
const MAP: Heads = (0x80, 0xde);

fn push_head(out: &mut Vec<u8>, (short, long): Heads, entries: u32) {
    if entries < 16 {
        out.push(short | entries as u8);
    } else if let Ok(entries) = u16::try_from(entries) {
        push(out, long, entries.to_be_bytes());
    } else {
        push(out, long + 1, entries.to_be_bytes());
    }
}

fn push<const N: usize>(out: &mut Vec<u8>, head: u8, bytes: [u8; N]) {
    out.push(head);
    out.extend_from_slice(&bytes);
}

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        len @ 0..32 => out.push(0xa0 | len as u8),
        len @ 32..0x100 => push(out, 0xd9, [len as u8]),
        len @ 0x100..0x1_0000 => push(out, 0xda, (len as u16).to_be_bytes()),
        len => push(out, 0xdb, (len as u32).to_be_bytes()),
    }
    out.extend_from_slice(text);
}

fn push_number(out: &mut Vec<u8>, value: f64) {
    let whole = integer_of(value);
    if whole as f64 == value {
        push_integer(out, whole);
    } else if f64::from(value as f32) == value {
        push(out, 0xca, (value as f32).to_be_bytes());
    } else {
        push(out, 0xcb, value.to_be_bytes());
    }
}

fn push_integer(out: &mut Vec<u8>, value: i64) {
    match value {
        0..0x80 => out.push(value as u8),
        0x80..0x100 => push(out, 0xcc, [value as u8]),
        0x100..0x1_0000 => push(out, 0xcd, (value as u16).to_be_bytes()),
        0x1_0000..0x1_0000_0000 => push(out, 0xce, (value as u32).to_be_bytes()),
        0x1_0000_0000.. => push(out, 0xcf, value.to_be_bytes()),
        -32..0 => out.push(value as u8),
        -0x80..-32 => push(out, 0xd0, [value as u8]),
        -0x8000..-0x80 => push(out, 0xd1, (value as i16).to_be_bytes()),
        -0x8000_0000..-0x8000 => push(out, 0xd2, (value as i32).to_be_bytes()),
        _ => push(out, 0xd3, value.to_be_bytes()),
    }
}
