//! Arguments on a tape, and what `lauxlib` makes of them: a number where a string is asked for and the
//! reverse, the names of types in errors, integers cut as C cuts them.

use std::borrow::Cow;

use super::Failure;
use super::numbers::{integer_of, number_of, push_number};
use crate::tape::tags::{FALSE, KEYED, NIL, NULL, NUMBER, NUMBERED, OTHER, STRING, TOO_DEEP, TRUE, VALUES};
use crate::tape::types;

/// A value of a tape. Tables are read in place, by the functions that take them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Nil,
    Bool(bool),
    Number(f64),
    Text(&'a [u8]),
    Table,
    Null,
    /// A function, a thread or a userdata, by Lua's number of its type.
    Other(u8),
}

impl Value<'_> {
    /// Lua's name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "nil",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::Text(_) => "string",
            Value::Table => "table",
            Value::Null => "userdata",
            Value::Other(kind) => types::name(*kind),
        }
    }

    /// `lua_tonumber`, where it succeeds.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(text) => number_of(text),
            _ => None,
        }
    }
}

pub fn u32_at(tape: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(tape[at..at + 4].try_into().expect("four bytes"))
}

pub fn f64_at(tape: &[u8], at: usize) -> f64 {
    f64::from_le_bytes(tape[at..at + 8].try_into().expect("eight bytes"))
}

/// The text whose tag stands at `at`.
pub fn text_at(tape: &[u8], at: usize) -> &[u8] {
    &tape[at + 5..at + 5 + u32_at(tape, at + 1) as usize]
}

/// The entries of the table whose head stands at `at`.
pub fn entries_at(tape: &[u8], at: usize) -> u32 {
    u32_at(tape, at + 1)
}

/// Returns the place at which the item after the value at `at` begins.
#[inline]
pub fn after(tape: &[u8], at: usize) -> usize {
    at + match tape[at] {
        STRING => 5 + u32_at(tape, at + 1) as usize,
        NUMBER => 9,
        NIL | FALSE | TRUE | NULL | TOO_DEEP => 1,
        OTHER => 2,
        VALUES | NUMBERED | KEYED => {
            u64::from_le_bytes(tape[at + 5..at + 13].try_into().expect("eight bytes")) as usize
        }
        tag => panic!("no value has the tag {tag}"),
    }
}

/// The value at `at`; a table that was too deep for the walker is a table.
pub fn value_at(tape: &[u8], at: usize) -> Value<'_> {
    match tape[at] {
        NIL => Value::Nil,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        NUMBER => Value::Number(f64_at(tape, at + 1)),
        STRING => Value::Text(text_at(tape, at)),
        VALUES | NUMBERED | KEYED | TOO_DEEP => Value::Table,
        NULL => Value::Null,
        OTHER => Value::Other(tape[at + 1]),
        tag => panic!("a tape has no value {tag}"),
    }
}

/// The arguments of a call, numbered from 1.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    pub tape: &'a [u8],
    pub count: usize,
    pub instance: u32,
}

impl<'a> Args<'a> {
    pub fn cursor(&self) -> Cursor<'a> {
        Cursor { tape: self.tape, at: 0, number: 0 }
    }

    pub fn get(&self, number: usize) -> Option<Value<'a>> {
        let mut cursor = self.cursor();
        (1..number).try_for_each(|_| cursor.next().map(drop))?;
        cursor.next()
    }
}

/// Reads arguments one after the other.
pub struct Cursor<'a> {
    tape: &'a [u8],
    at: usize,
    /// Number of the argument that was read last.
    pub number: usize,
}

impl<'a> Cursor<'a> {
    /// The next one, or nothing after the last; the number rises in any case.
    pub fn next(&mut self) -> Option<Value<'a>> {
        self.number += 1;
        (self.at < self.tape.len()).then(|| {
            let value = value_at(self.tape, self.at);
            self.at = after(self.tape, self.at);
            value
        })
    }
}

pub fn type_error(value: Option<Value<'_>>, number: usize, expected: &str) -> Failure {
    let got = value.map_or("no value", |value| value.type_name());
    Failure::argument(number, format!("{expected} expected, got {got}"))
}

/// `luaL_checknumber`.
pub fn check_number(value: Option<Value<'_>>, number: usize) -> Result<f64, Failure> {
    match value {
        Some(Value::Number(is)) => Ok(is),
        _ => value.and_then(|value| value.number()).ok_or_else(|| type_error(value, number, "number")),
    }
}

/// `luaL_checkinteger`.
pub fn check_integer(value: Option<Value<'_>>, number: usize) -> Result<i64, Failure> {
    check_number(value, number).map(integer_of)
}

/// `luaL_optinteger`.
pub fn integer_or(default: i64, value: Option<Value<'_>>, number: usize) -> Result<i64, Failure> {
    match value {
        None | Some(Value::Nil) => Ok(default),
        value => check_integer(value, number),
    }
}

/// `luaL_checklstring`.
pub fn check_text<'a>(value: Option<Value<'a>>, number: usize) -> Result<Cow<'a, [u8]>, Failure> {
    match value {
        Some(Value::Text(text)) => Ok(Cow::Borrowed(text)),
        Some(Value::Number(is)) => {
            let mut text = Vec::new();
            push_number(&mut text, is, 14);
            Ok(Cow::Owned(text))
        }
        _ => Err(type_error(value, number, "string")),
    }
}

/// The part of a text that C sees.
pub fn until_nul(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    &text[..end]
}

pub fn put_number(out: &mut Vec<u8>, value: f64) {
    out.push(NUMBER);
    out.extend_from_slice(&value.to_le_bytes());
}

pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(STRING);
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

pub fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { TRUE } else { FALSE });
}
