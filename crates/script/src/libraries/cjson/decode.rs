//! JSON as a value.
//!
//! The parser takes what Valkey's takes: numbers in every notation of C while invalid ones are allowed, any
//! bytes in strings, the first NUL as the end of the text. Scalars are written onto the tape while they are
//! read; arrays and objects that are begun are in `frames`, so the depth of a text costs heap and not stack.
//! A frame counts the slots of Lua's stack, as in `encode`.
//!
//! An array's head promises the slots that Lua would have made for it by itself, the next power of two, so
//! that a length or an order that a script sees does not depend on the promise. Of an object nothing is
//! promised: the order of its keys would. With few keys it is written as fields, which are assembled in the
//! order that they would have.

use super::Config;
use crate::libraries::args::{Args, check_text};
use crate::libraries::numbers::strtod;
use crate::libraries::{Failure, OUT_OF_MEMORY, RESULT_BYTES_MAX, STACK_SLOTS_MAX, State, shrink};
use crate::tape::FIELDS_MAX;
use crate::tape::tags::{FALSE, FIELDS, LIST, NULL, NUMBER, STRING, TABLE, TABLE_END, TRUE};

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
    is_object: bool,
    /// Slots of the stack in use before the table is pushed.
    slots: u32,
    elements: u32,
    /// Place of the table's head on the tape of results.
    head: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// Text; like the next three kinds of value it is on the tape already.
    Text,
    Number,
    Bool,
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    /// Returns the name of the token in error messages.
    fn name(self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Text => "T_STRING",
            Token::Number => "T_NUMBER",
            Token::Bool => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

pub fn decode(state: &mut State, args: Args<'_>, out: &mut Vec<u8>) -> Done {
    let mut cursor = args.cursor();
    let value = cursor.next();
    if value.is_none() || cursor.next().is_some() {
        return Err(Failure::argument(1, "expected 1 argument"));
    }
    let text = check_text(value, 1)?;
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(Failure::error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let State { cjson, decoder, .. } = state;
    decoder.frames.clear();
    let config = cjson.get(args.instance);
    Decoder { text: &text, at: 0, begin: 0, config, frames: &mut decoder.frames, out }.run()
}

struct Decoder<'a> {
    text: &'a [u8],
    at: usize,
    /// Place of the last token, or of the error in it.
    begin: usize,
    config: &'a Config,
    frames: &'a mut Vec<Frame>,
    out: &'a mut Vec<u8>,
}

impl Decoder<'_> {
    fn run(&mut self) -> Done {
        let mut token = self.next();
        loop {
            token = match token {
                Token::Text | Token::Number | Token::Bool | Token::Null => match self.ended()? {
                    Some(token) => token,
                    None => return Ok(()),
                },
                Token::ObjectBegin => {
                    self.descend(true)?;
                    match self.next() {
                        Token::ObjectEnd => {
                            self.close();
                            match self.ended()? {
                                Some(token) => token,
                                None => return Ok(()),
                            }
                        }
                        token => self.after_key(token)?,
                    }
                }
                Token::ArrayBegin => {
                    self.descend(false)?;
                    match self.next() {
                        Token::ArrayEnd => {
                            self.close();
                            match self.ended()? {
                                Some(token) => token,
                                None => return Ok(()),
                            }
                        }
                        token => token,
                    }
                }
                other => return Err(self.unexpected("value", other)),
            };
        }
    }

    /// After a value: closes what ends with it. The first token of the next value, or nothing after the whole
    /// text.
    fn ended(&mut self) -> Result<Option<Token>, Failure> {
        if self.out.len() > RESULT_BYTES_MAX {
            return Err(OUT_OF_MEMORY);
        }
        while let Some(frame) = self.frames.last_mut() {
            frame.elements += 1;
            let is_object = frame.is_object;
            match (self.next(), is_object) {
                (Token::Comma, true) => {
                    let token = self.next();
                    return self.after_key(token).map(Some);
                }
                (Token::Comma, false) => return Ok(Some(self.next())),
                (Token::ObjectEnd, true) | (Token::ArrayEnd, false) => self.close(),
                (other, true) => return Err(self.unexpected("comma or object end", other)),
                (other, false) => return Err(self.unexpected("comma or array end", other)),
            }
        }
        match self.next() {
            Token::End => Ok(None),
            other => Err(self.unexpected("the end", other)),
        }
    }

    /// The first token of the value that belongs to a key.
    fn after_key(&mut self, key: Token) -> Result<Token, Failure> {
        if key != Token::Text {
            return Err(self.unexpected("object key string", key));
        }
        match self.next() {
            Token::Colon => Ok(self.next()),
            other => Err(self.unexpected("colon", other)),
        }
    }

    fn descend(&mut self, is_object: bool) -> Done {
        let slots = match self.frames.last() {
            None => 1,
            // The table, and a key that waits for its value.
            Some(frame) => frame.slots + 1 + u32::from(frame.is_object),
        };
        let needed = if is_object { 3 } else { 2 };
        let depth = self.frames.len() + 1;
        if depth > self.config.decode_max_depth as usize || slots as usize + needed > STACK_SLOTS_MAX {
            return Err(Failure::error(format!(
                "Found too many nested data structures ({depth}) at character {}",
                self.at
            )));
        }
        self.frames.push(Frame { is_object, slots, elements: 0, head: self.out.len() });
        match is_object {
            true => self.out.extend_from_slice(&[TABLE, 0, 0, 0, 0, 0, 0, 0, 0]),
            false => self.out.extend_from_slice(&[LIST, 0, 0, 0, 0]),
        }
        Ok(())
    }

    fn close(&mut self) {
        let frame = self.frames.pop().expect("a table is open");
        let size = &mut self.out[frame.head..frame.head + 5];
        if !frame.is_object && frame.elements > 0 {
            size[1..].copy_from_slice(&frame.elements.next_power_of_two().to_le_bytes());
        } else if frame.is_object && frame.elements as usize <= FIELDS_MAX {
            size[0] = FIELDS;
            size[1..].copy_from_slice(&frame.elements.to_le_bytes());
        }
        self.out.push(TABLE_END);
    }

    fn unexpected(&self, expected: &str, found: Token) -> Failure {
        let (found, character) = (found.name(), self.begin + 1);
        Failure::error(format!("Expected {expected} but found {found} at character {character}"))
    }

    /// The byte at `at`. NULs without end follow the text.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn error(&mut self, text: &'static str) -> Token {
        self.begin = self.at;
        Token::Error(text)
    }

    fn next(&mut self) -> Token {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        self.begin = self.at;
        let token = match self.byte(self.at) {
            0 => return Token::End,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => {
                if !self.config.decode_invalid_numbers && self.is_invalid_number() {
                    return self.error("invalid number");
                }
                return self.number();
            }
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'f' | b'i' | b'I' | b'n' | b'N' | b't' | b'+' => return self.word(),
            _ => return self.error("invalid token"),
        };
        self.at += 1;
        token
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let (tag, len, token) = if rest.starts_with(b"true") {
            (TRUE, 4, Token::Bool)
        } else if rest.starts_with(b"false") {
            (FALSE, 5, Token::Bool)
        } else if rest.starts_with(b"null") {
            (NULL, 4, Token::Null)
        } else if self.config.decode_invalid_numbers && self.is_invalid_number() {
            return self.number();
        } else {
            return self.error("invalid token");
        };
        self.out.push(tag);
        self.at += len;
        token
    }

    fn number(&mut self) -> Token {
        let (value, len) = strtod(&self.text[self.at..]);
        if len == 0 {
            return self.error("invalid number");
        }
        self.out.push(NUMBER);
        self.out.extend_from_slice(&value.to_le_bytes());
        self.at += len;
        Token::Number
    }

    /// A number that C reads and JSON does not have: with a `+`, hexadecimal, with leading zeros, infinite or
    /// NaN.
    fn is_invalid_number(&self) -> bool {
        let mut at = self.at;
        match self.byte(at) {
            b'+' => return true,
            b'-' => at += 1,
            _ => {}
        }
        match self.byte(at) {
            b'0' => matches!(self.byte(at + 1), b'x' | b'X' | b'0'..=b'9'),
            0..=b'9' => false,
            _ => {
                let word = self.text.get(at..at + 3).unwrap_or_default();
                word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
            }
        }
    }

    /// Runs of ordinary bytes are copied as one.
    fn string(&mut self) -> Token {
        self.at += 1;
        self.out.extend_from_slice(&[STRING, 0, 0, 0, 0]);
        let begin = self.out.len();
        loop {
            let rest = &self.text[self.at..];
            let run = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0)).unwrap_or(rest.len());
            self.out.extend_from_slice(&rest[..run]);
            self.at += run;
            match self.byte(self.at) {
                b'"' => break,
                b'\\' => {
                    if let Err(text) = self.escape() {
                        return self.error(text);
                    }
                }
                _ => return self.error("unexpected end of string"),
            }
        }
        self.at += 1;
        let len = (self.out.len() - begin) as u32;
        self.out[begin - 4..begin].copy_from_slice(&len.to_le_bytes());
        Token::Text
    }

    /// Decodes the escape at the backslash.
    fn escape(&mut self) -> Result<(), &'static str> {
        let byte = match self.byte(self.at + 1) {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'f' => 12,
            b'r' => b'\r',
            b'u' => {
                let (codepoint, len) = self.codepoint().ok_or("invalid unicode escape code")?;
                self.out.extend_from_slice(codepoint.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += len;
                return Ok(());
            }
            _ => return Err("invalid escape code"),
        };
        self.out.push(byte);
        self.at += 2;
        Ok(())
    }

    /// `\uXXXX`, or two of them that make a pair of surrogates; and the bytes that were read.
    fn codepoint(&self) -> Option<(char, usize)> {
        let first = self.hex4(self.at + 2)?;
        if first & 0xf800 != 0xd800 {
            return Some((char::from_u32(first)?, 6));
        }
        let is_pair = first & 0x400 == 0 && self.byte(self.at + 6) == b'\\' && self.byte(self.at + 7) == b'u';
        let second = if is_pair { self.hex4(self.at + 8)? } else { return None };
        if second & 0xfc00 != 0xdc00 {
            return None;
        }
        let codepoint = ((first & 0x3ff) << 10 | second & 0x3ff) + 0x10000;
        Some((char::from_u32(codepoint)?, 12))
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        (at..at + 4).try_fold(0, |all, at| Some(all << 4 | char::from(self.byte(at)).to_digit(16)?))
    }
}
