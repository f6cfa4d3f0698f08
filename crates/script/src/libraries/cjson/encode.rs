//! A value as JSON.
//!
//! A table whose keys are all whole numbers from 1 is an array, up to the largest, with `null` for what is
//! missing; any other is an object, in the order of the tape, and so is an empty one. The text is written
//! straight onto the tape of results.
//!
//! Tables that are begun and not ended are in `frames`, so the depth of a value costs heap and not stack. A
//! frame counts the slots that C would hold on Lua's stack for it: one for an element, two for a key with its
//! value.

use super::{Config, InvalidNumbers};
use crate::libraries::args::{Args, after, f64_at, text_at, u32_at, value_at};
use crate::libraries::numbers::push_number;
use crate::libraries::shape::Shape;
use crate::libraries::{Failure, OUT_OF_MEMORY, RESULT_BYTES_MAX, STACK_SLOTS_MAX, State, shrink};
use crate::tape::WALKED_HEAD;
use crate::tape::tags::{
    FALSE, KEYED, NIL, NULL, NUMBER, NUMBERED, STRING, TABLE_END, TOO_DEEP, TRUE, VALUES,
};

type Done = Result<(), Failure>;

#[derive(Default)]
pub struct Room {
    frames: Vec<Frame>,
    /// The elements of arrays whose keys do not come in their order, those of the innermost one last.
    elements: Vec<Element>,
}

impl Room {
    pub fn shrink(&mut self) {
        shrink(&mut self.frames);
        shrink(&mut self.elements);
    }
}

struct Frame {
    kind: Kind,
    /// No entry of it has been written.
    is_empty: bool,
    /// Slots of the stack in use while the table lies on top of it.
    slots: u32,
}

enum Kind {
    Object,
    /// The values follow each other on the tape.
    Array,
    /// Keys 1, 2, 3, ... stand between them.
    NumberedArray,
    /// `index` is the next to be written, up to `len`; `element` is the next of `elements`, which for this
    /// frame begin at `first`. The table ends at `end`.
    Sorted {
        index: i32,
        len: i32,
        element: usize,
        first: usize,
        end: usize,
    },
}

/// An element out of its order: its index, and where its value lies.
struct Element {
    index: i32,
    at: usize,
}

pub fn encode(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let tape = args.tape;
    let State { cjson, encoder: room, .. } = state;
    if args.count != 1 {
        return Err(Failure::argument(1, "expected 1 argument"));
    }
    room.frames.clear();
    room.elements.clear();
    out.extend_from_slice(&[STRING, 0, 0, 0, 0]);
    let begin = out.len();
    Encoder { tape, config: cjson.get(args.instance), room, out, at: 0 }.run()?;
    let len = (out.len() - begin) as u32;
    out[begin - 4..begin].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

struct Encoder<'a> {
    tape: &'a [u8],
    config: &'a Config,
    room: &'a mut Room,
    out: &'a mut Vec<u8>,
    /// Place of the next item.
    at: usize,
}

impl Encoder<'_> {
    fn run(&mut self) -> Done {
        self.value()?;
        while let Some(frame) = self.room.frames.last_mut() {
            let is_first = std::mem::replace(&mut frame.is_empty, false);
            match &mut frame.kind {
                Kind::Sorted { .. } => {
                    if !self.sorted(is_first)? {
                        continue;
                    }
                }
                kind if self.tape[self.at] == TABLE_END => {
                    self.out.push(if matches!(kind, Kind::Object) { b'}' } else { b']' });
                    self.at += 1;
                    self.room.frames.pop();
                    continue;
                }
                Kind::Array | Kind::NumberedArray => {
                    if !is_first {
                        self.out.push(b',');
                    }
                    if matches!(frame.kind, Kind::NumberedArray) {
                        self.at = after(self.tape, self.at);
                    }
                }
                Kind::Object => {
                    if !is_first {
                        self.out.push(b',');
                    }
                    self.key()?;
                }
            }
            if self.out.len() > RESULT_BYTES_MAX {
                return Err(OUT_OF_MEMORY);
            }
            self.value()?;
        }
        Ok(())
    }

    /// Writes the value at `at`; of a table, its beginning.
    fn value(&mut self) -> Done {
        let at = self.at;
        match self.tape[at] {
            STRING => {
                self.at += 5 + u32_at(self.tape, at + 1) as usize;
                push_text(self.out, text_at(self.tape, at));
            }
            NUMBER => {
                self.at += 9;
                push_checked(self.out, self.config, f64_at(self.tape, at + 1))?;
            }
            VALUES | NUMBERED | KEYED => return self.table(),
            TOO_DEEP => return Err(too_deep(self.depth_of_failure())),
            tag => {
                self.at = after(self.tape, at);
                let text: &[u8] = match tag {
                    TRUE => b"true",
                    FALSE => b"false",
                    NIL | NULL => b"null",
                    _ => return Err(unsupported(value_at(self.tape, at).type_name(), "type not supported")),
                };
                self.out.extend_from_slice(text);
            }
        }
        Ok(())
    }

    // COMPAT(scripts): of two errors in one value, one of them the nesting, cjson.encode may report the
    // other. Why: an array is read in the order of its keys and written by index; a table that is read behind
    // one that is too deep is not looked into, for following all tables of a circle would never end.

    /// Returns the depth at which the walker met a table that is too deep.
    fn depth_of_failure(&self) -> usize {
        match self.config.encode_max_depth as usize {
            most @ ..STACK_SLOTS_MAX => most + 1,
            _ => self.room.frames.len() + 1,
        }
    }

    fn table(&mut self) -> Done {
        let depth = self.room.frames.len() + 1;
        let slots = match self.room.frames.last() {
            None => 1,
            Some(Frame { kind: Kind::Object, slots, .. }) => slots + 2,
            Some(Frame { slots, .. }) => slots + 1,
        };
        if depth > self.config.encode_max_depth as usize || slots as usize + 3 > STACK_SLOTS_MAX {
            return Err(too_deep(depth));
        }
        let shape = Shape::of(self.tape, self.at);
        let len = array_len(&shape, self.config)?;
        let kind = match len {
            Some(_) if self.tape[self.at] == VALUES => Kind::Array,
            Some(_) if shape.in_order => Kind::NumberedArray,
            Some(len) => {
                let first = self.room.elements.len();
                self.sort(len);
                Kind::Sorted { index: 1, len, element: first, first, end: after(self.tape, self.at) }
            }
            None => Kind::Object,
        };
        self.out.push(if len.is_some() { b'[' } else { b'{' });
        self.at += WALKED_HEAD;
        self.room.frames.push(Frame { kind, is_empty: true, slots });
        Ok(())
    }

    /// Lists the elements of an array by index. An index above `len` is one that does not fit: its value is
    /// left out.
    fn sort(&mut self, len: i32) {
        let first = self.room.elements.len();
        let mut at = self.at + WALKED_HEAD;
        while self.tape[at] != TABLE_END {
            let index = f64_at(self.tape, at + 1);
            let value = after(self.tape, at);
            if index <= f64::from(len) {
                self.room.elements.push(Element { index: index as i32, at: value });
            }
            at = after(self.tape, value);
        }
        self.room.elements[first..].sort_unstable_by_key(|element| element.index);
    }

    /// Goes to the next element of the innermost frame, or ends it. `true`: its value is at `at`.
    fn sorted(&mut self, is_first: bool) -> Result<bool, Failure> {
        let Some(Frame { kind: Kind::Sorted { index, len, element, first, end }, .. }) =
            self.room.frames.last_mut()
        else {
            unreachable!("it is called where the innermost frame was matched as a sorted one")
        };
        let mut comma = !is_first;
        while *index <= *len {
            if comma {
                self.out.push(b',');
            }
            comma = true;
            *index = index.wrapping_add(1);
            match self.room.elements.get(*element) {
                Some(next) if next.index == index.wrapping_sub(1) => {
                    *element += 1;
                    self.at = next.at;
                    return Ok(true);
                }
                _ => self.out.extend_from_slice(b"null"),
            }
            if self.out.len() > RESULT_BYTES_MAX {
                return Err(OUT_OF_MEMORY);
            }
        }
        self.out.push(b']');
        self.at = *end;
        self.room.elements.truncate(*first);
        self.room.frames.pop();
        Ok(false)
    }

    fn key(&mut self) -> Done {
        let at = self.at;
        match self.tape[at] {
            STRING => push_text(self.out, text_at(self.tape, at)),
            NUMBER => {
                self.out.push(b'"');
                push_checked(self.out, self.config, f64_at(self.tape, at + 1))?;
                self.out.push(b'"');
            }
            _ => {
                let name = value_at(self.tape, at).type_name();
                return Err(unsupported(name, "table key must be a number or string"));
            }
        }
        self.at = after(self.tape, at);
        self.out.push(b':');
        Ok(())
    }
}

/// The elements of an array; `None` is an object. The product wraps as that of two `int`s of C does.
fn array_len(shape: &Shape, config: &Config) -> Result<Option<i32>, Failure> {
    if !shape.whole {
        return Ok(None);
    }
    let dense = (shape.entries as i32).wrapping_mul(config.sparse_ratio);
    if config.sparse_ratio > 0 && shape.max > dense && shape.max > config.sparse_safe {
        return match config.sparse_convert {
            true => Ok(None),
            false => Err(unsupported("table", "excessively sparse array")),
        };
    }
    Ok((shape.max > 0).then_some(shape.max))
}

fn too_deep(depth: usize) -> Failure {
    Failure::error(format!("Cannot serialise, excessive nesting ({depth})"))
}

fn unsupported(type_name: &str, reason: &str) -> Failure {
    Failure::error(format!("Cannot serialise {type_name}: {reason}"))
}

fn push_checked(out: &mut Vec<u8>, config: &Config, value: f64) -> Done {
    if value.is_finite() {
        push_number(out, value, config.number_precision as u32);
        return Ok(());
    }
    match config.invalid_numbers {
        InvalidNumbers::Error => return Err(unsupported("number", "must not be NaN or Inf")),
        InvalidNumbers::Null => out.extend_from_slice(b"null"),
        InvalidNumbers::Written if value.is_nan() => out.extend_from_slice(b"nan"),
        InvalidNumbers::Written => push_number(out, value, 14),
    }
    Ok(())
}

/// Escape of each byte in a string; empty for most.
const ESCAPES: [&[u8]; 256] = {
    let mut escapes: [&[u8]; 256] = [b""; 256];
    const CONTROL: [&[u8; 6]; 32] = [
        b"\\u0000", b"\\u0001", b"\\u0002", b"\\u0003", b"\\u0004", b"\\u0005", b"\\u0006", b"\\u0007",
        b"\\u0008", b"\\u0009", b"\\u000a", b"\\u000b", b"\\u000c", b"\\u000d", b"\\u000e", b"\\u000f",
        b"\\u0010", b"\\u0011", b"\\u0012", b"\\u0013", b"\\u0014", b"\\u0015", b"\\u0016", b"\\u0017",
        b"\\u0018", b"\\u0019", b"\\u001a", b"\\u001b", b"\\u001c", b"\\u001d", b"\\u001e", b"\\u001f",
    ];
    let mut byte = 0;
    while byte < 32 {
        escapes[byte] = CONTROL[byte];
        byte += 1;
    }
    escapes[8] = b"\\b";
    escapes[9] = b"\\t";
    escapes[10] = b"\\n";
    escapes[12] = b"\\f";
    escapes[13] = b"\\r";
    escapes[b'"' as usize] = b"\\\"";
    escapes[b'/' as usize] = b"\\/";
    escapes[b'\\' as usize] = b"\\\\";
    escapes[127] = b"\\u007f";
    escapes
};

const IS_ESCAPED: [bool; 256] = {
    let mut escaped = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        escaped[byte] = !ESCAPES[byte].is_empty();
        byte += 1;
    }
    escaped
};

fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let mut rest = text;
    while let Some(run) = rest.iter().position(|byte| IS_ESCAPED[usize::from(*byte)]) {
        out.extend_from_slice(&rest[..run]);
        out.extend_from_slice(ESCAPES[usize::from(rest[run])]);
        rest = &rest[run + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}
