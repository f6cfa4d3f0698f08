//! Conversion of the result of a script to a reply.
//!
//! C writes tokens (`lua/glue/glue.h` draws them), since only Lua can say what a table means. `Reply` knows
//! how a value is written in the client's protocol.

use isotherm_resp::{Protocol, Reply};

/// The first bytes of tokens.
mod tokens {
    pub const BULK: u8 = 1;
    pub const INTEGER: u8 = 2;
    pub const NULL: u8 = 3;
    pub const BOOLEAN: u8 = 4;
    pub const ERROR: u8 = 5;
    pub const STATUS: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BIG_NUMBER: u8 = 8;
    pub const VERBATIM: u8 = 9;
    pub const ARRAY: u8 = 10;
    pub const MAP: u8 = 11;
    pub const SET: u8 = 12;
}

/// Returns whether the result as a whole is an error that the statistics have counted, which is one of a
/// command.
pub fn is_counted_error(result: &[u8]) -> bool {
    matches!(result, [tokens::ERROR, counted, ..] if *counted != 0)
}

/// Writes the value that the tokens are.
pub fn write(result: &[u8], reply: &mut Reply) {
    let mut tokens = Tokens { bytes: result };
    while !tokens.bytes.is_empty() {
        tokens.write_one(reply);
    }
}

struct Tokens<'a> {
    bytes: &'a [u8],
}

impl<'a> Tokens<'a> {
    fn write_one(&mut self, reply: &mut Reply) {
        match self.byte() {
            tokens::BULK => reply.bulk(self.text()),
            tokens::INTEGER => reply.integer(i64::from_le_bytes(self.take())),
            tokens::NULL => reply.null(),
            tokens::BOOLEAN => reply.boolean(self.byte() != 0),
            tokens::ERROR => {
                let _counted = self.byte();
                reply.error(self.text());
            }
            tokens::STATUS => write_line(reply, b'+', self.text()),
            tokens::DOUBLE => reply.double(f64::from_le_bytes(self.take())),
            tokens::BIG_NUMBER => match reply.proto {
                Protocol::Resp2 => {
                    let digits: Vec<u8> = self.text().iter().map(without_line_end).collect();
                    reply.bulk(&digits);
                }
                Protocol::Resp3 => write_line(reply, b'(', self.text()),
            },
            tokens::VERBATIM => {
                let format = self.text();
                write_verbatim(reply, format, self.text());
            }
            tokens::ARRAY => reply.array(self.count()),
            tokens::MAP => reply.map(self.count()),
            tokens::SET => reply.set(self.count()),
            tag => unreachable!("C writes no token {tag}"),
        }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.bytes.split_first_chunk().expect("C writes whole tokens");
        self.bytes = rest;
        *head
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn count(&mut self) -> usize {
        u64::from_le_bytes(self.take()) as usize
    }

    fn text(&mut self) -> &'a [u8] {
        let len = self.count();
        let (text, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        text
    }
}

/// A line end within a line becomes two blanks.
fn without_line_end(byte: &u8) -> u8 {
    if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }
}

fn write_line(reply: &mut Reply, mark: u8, text: &[u8]) {
    reply.out.push(mark);
    reply.out.extend(text.iter().map(without_line_end));
    reply.out.extend_from_slice(b"\r\n");
}

/// The format has three bytes: blanks fill up a shorter one.
fn write_verbatim(reply: &mut Reply, format: &[u8], text: &[u8]) {
    match reply.proto {
        Protocol::Resp2 => reply.bulk(text),
        Protocol::Resp3 => {
            let mut format = format.iter().copied().chain([b' '; 3]);
            let format = [(); 3].map(|()| format.next().expect("three blanks follow"));
            reply.out.push(b'=');
            isotherm_stdx::push_u64(&mut reply.out, text.len() as u64 + 4);
            reply.out.extend_from_slice(b"\r\n");
            reply.out.extend_from_slice(&format);
            reply.out.push(b':');
            reply.out.extend_from_slice(text);
            reply.out.extend_from_slice(b"\r\n");
        }
    }
}
