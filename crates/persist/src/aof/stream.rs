//! The commands of an AOF's file, from its bytes as they are read.
//!
//! ```text
//!   #TS:1700000000\r\n                           a comment: any line that begins with `#`
//!   *2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n            a command
//!   *1\r\n$5\r\nMULTI\r\n                   <-- a file that ends before its EXEC ends here
//!   *3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nval      cut: the end of a file that was being written
//! ```
//! The caller keeps the bytes that are not parsed yet, and adds to them when the parser needs more. An
//! argument is a range of them; nothing is copied. The parsed part of an unfinished command is remembered, so
//! each byte is looked at once.
//!
//! Stricter than Valkey's loader where that cannot be what a server has written: each line ends in CR LF, as
//! `valkey-check-aof` demands. Lengths from the file take no memory before the bytes are there.
//!
//! Invariants: `end_of_valid <= position`; inside a transaction `end_of_valid` is where its MULTI begins.

use isotherm_stdx::format::{FormatPart, number, text};
use isotherm_stdx::number::parse_i64;
use std::fmt;
use std::ops::Range;

/// A comment, with its line end, is shorter: Valkey reads it into a buffer of this size.
pub const COMMENT_BYTES_MAX: usize = 1024;

/// The comment before a command that stands in this file only: it is no part of the log, whose offsets do not
/// count it. A file that begins in a primary's stream, or after a failed sync, begins with such a SELECT: a
/// server starts each file with database 0.
pub const UNLOGGED: &[u8] = b"#isotherm unlogged";

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "append-only file",
    &[
        ("comment, most", number(COMMENT_BYTES_MAX)),
        ("mark of a command outside of the log", text(UNLOGGED)),
        ("mark in the manifest", text(super::manifest::OURS)),
    ],
);

/// The line that announces a length: `*` or `$`, twenty digits, CR LF.
const LENGTH_LINE_BYTES_MAX: usize = 32;

/// A file with more arguments in one command was not written by a server.
const ARGS_MAX: i64 = i32::MAX as i64;

/// Item that a parser has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// Command whose arguments are in `args`.
    Command(Command),
    /// A line that begins with `#`: its length in bytes, with the `#` and without its line end.
    Comment { line_bytes: usize },
    /// More bytes of the file, if there are any.
    NeedMore,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Alone, or between MULTI and EXEC.
    Plain,
    Multi,
    Exec,
}

/// Error in a file, and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamError {
    /// The byte of the file.
    pub at: u64,
    pub fault: StreamFault,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamFault {
    Prefix {
        expected: u8,
        got: u8,
    },
    /// No CR LF where one has to be.
    LineEnd([u8; 2]),
    /// No number, or one that no command has.
    Length,
    LongComment,
    NestedMulti,
    ExecWithoutMulti,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:16x}: ", self.at)?;
        match self.fault {
            StreamFault::Prefix { expected, got } => {
                write!(f, "Expected prefix '{}', got: '{}'", expected as char, got.escape_ascii())
            }
            StreamFault::LineEnd([first, second]) => {
                write!(f, "Expected \\r\\n, got: {first:02x}{second:02x}")
            }
            StreamFault::Length => f.write_str("Expected a length in the suitable range"),
            StreamFault::LongComment => f.write_str("Expected a comment of less than 1024 bytes"),
            StreamFault::NestedMulti => f.write_str("Unexpected MULTI"),
            StreamFault::ExecWithoutMulti => f.write_str("Unexpected EXEC"),
        }
    }
}

/// End of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Complete,
    /// End inside a command or a transaction; the file is whole up to `valid_bytes`.
    Truncated {
        valid_bytes: u64,
        in_transaction: bool,
    },
}

pub struct StreamParser {
    /// Place in the file of the item that is being parsed.
    position: u64,
    multi_at: Option<u64>,
    bulk_bytes_max: usize,
    /// Number of arguments still to come of an unfinished command.
    args_left: usize,
    /// Place up to which the item was parsed.
    parsed: usize,
    args: Vec<Range<usize>>,
    /// The command was handed out, and the next call skips it.
    is_done: bool,
}

impl StreamParser {
    /// Creates a parser for a file whose commands begin at `position` (after an RDB preamble, or at 0).
    /// `bulk_bytes_max`: `proto-max-bulk-len`.
    pub fn new(position: u64, bulk_bytes_max: usize) -> StreamParser {
        StreamParser {
            position,
            multi_at: None,
            bulk_bytes_max,
            args_left: 0,
            parsed: 0,
            args: Vec::new(),
            is_done: false,
        }
    }

    /// The byte of the file that the caller's bytes begin with: what lies before was parsed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the length of the part of the file that can be kept if no more bytes follow.
    pub fn end_of_valid(&self) -> u64 {
        self.multi_at.unwrap_or(self.position)
    }

    /// The arguments of the command that was found last, as ranges of the bytes that it was found in.
    pub fn args(&self) -> &[Range<usize>] {
        &self.args
    }

    /// Looks for an item at the beginning of `bytes`. Returns how many of them it takes, with 0 where more
    /// are needed: then the next call gets the same bytes and some more after them, and otherwise the bytes
    /// after the item.
    pub fn next(&mut self, bytes: &[u8]) -> Result<(Item, usize), StreamError> {
        if std::mem::take(&mut self.is_done) {
            (self.args_left, self.parsed) = (0, 0);
            self.args.clear();
        }
        match bytes.first() {
            None => Ok((Item::NeedMore, 0)),
            Some(b'#') => self.comment(bytes),
            Some(_) => self.command(bytes),
        }
    }

    /// Says how the file ends, with `rest_bytes` bytes that were not parsed.
    pub fn end(&self, rest_bytes: usize) -> End {
        if rest_bytes == 0 && self.multi_at.is_none() {
            return End::Complete;
        }
        End::Truncated { valid_bytes: self.end_of_valid(), in_transaction: self.multi_at.is_some() }
    }

    fn error(&self, at: usize, fault: StreamFault) -> StreamError {
        StreamError { at: self.position + at as u64, fault }
    }

    fn take(&mut self, item: Item, len: usize) -> (Item, usize) {
        self.position += len as u64;
        self.is_done = true;
        (item, len)
    }

    fn comment(&mut self, bytes: &[u8]) -> Result<(Item, usize), StreamError> {
        let line = &bytes[..bytes.len().min(COMMENT_BYTES_MAX - 1)];
        match line.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                let line_bytes = if bytes[end - 1] == b'\r' { end - 1 } else { end };
                Ok(self.take(Item::Comment { line_bytes }, end + 1))
            }
            None if line.len() == COMMENT_BYTES_MAX - 1 => Err(self.error(0, StreamFault::LongComment)),
            None => Ok((Item::NeedMore, 0)),
        }
    }

    fn command(&mut self, bytes: &[u8]) -> Result<(Item, usize), StreamError> {
        if self.parsed == 0 {
            let Some((count, end)) = self.length(bytes, 0, b'*', ARGS_MAX)? else {
                return Ok((Item::NeedMore, 0));
            };
            if count == 0 {
                return Err(self.error(0, StreamFault::Length));
            }
            (self.args_left, self.parsed) = (count, end);
        }
        while self.args_left > 0 {
            let most = i64::try_from(self.bulk_bytes_max).unwrap_or(i64::MAX);
            let Some((len, start)) = self.length(bytes, self.parsed, b'$', most)? else {
                return Ok((Item::NeedMore, 0));
            };
            let end = start + len;
            match bytes.get(end..end + 2) {
                None => return Ok((Item::NeedMore, 0)),
                Some(b"\r\n") => {}
                Some(other) => {
                    return Err(self.error(end, StreamFault::LineEnd([other[0], other[1]])));
                }
            }
            self.args.push(start..end);
            self.args_left -= 1;
            self.parsed = end + 2;
        }
        let command = self.transaction(bytes)?;
        Ok(self.take(Item::Command(command), self.parsed))
    }

    /// A length and where its line ends; none if the line is not there as a whole.
    fn length(
        &self,
        bytes: &[u8],
        at: usize,
        prefix: u8,
        most: i64,
    ) -> Result<Option<(usize, usize)>, StreamError> {
        let line = &bytes[at..bytes.len().min(at + LENGTH_LINE_BYTES_MAX)];
        let Some(first) = line.first() else { return Ok(None) };
        if *first != prefix {
            return Err(self.error(at, StreamFault::Prefix { expected: prefix, got: *first }));
        }
        let digits = line[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        match &line[1 + digits..] {
            [b'\r', b'\n', ..] => {}
            // The line may go on.
            [] | [_] if line.len() < LENGTH_LINE_BYTES_MAX => return Ok(None),
            [first, second, ..] if digits > 0 => {
                return Err(self.error(at + 1 + digits, StreamFault::LineEnd([*first, *second])));
            }
            _ => return Err(self.error(at, StreamFault::Length)),
        }
        let length = parse_i64(&line[1..1 + digits]).filter(|length| *length <= most);
        match length {
            Some(length) => Ok(Some((length as usize, at + 1 + digits + 2))),
            None => Err(self.error(at, StreamFault::Length)),
        }
    }

    fn transaction(&mut self, bytes: &[u8]) -> Result<Command, StreamError> {
        let name = &bytes[self.args[0].clone()];
        if name.eq_ignore_ascii_case(b"MULTI") {
            if self.multi_at.replace(self.position).is_some() {
                return Err(self.error(0, StreamFault::NestedMulti));
            }
            return Ok(Command::Multi);
        }
        if name.eq_ignore_ascii_case(b"EXEC") {
            return match self.multi_at.take() {
                Some(_) => Ok(Command::Exec),
                None => Err(self.error(0, StreamFault::ExecWithoutMulti)),
            };
        }
        Ok(Command::Plain)
    }

    pub fn check_invariants(&self) {
        assert!(self.end_of_valid() <= self.position);
        assert!(self.args.iter().all(|arg| arg.end + 2 <= self.parsed));
        assert!(self.args.is_sorted_by(|a, b| a.end < b.start));
    }
}

/// The seconds of a comment `#TS:1700000000`.
pub fn timestamp(comment: &[u8]) -> Option<i64> {
    parse_i64(comment.strip_prefix(b"#TS:")?)
}

#[cfg(test)]
mod tests;
