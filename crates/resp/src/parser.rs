//! Finding requests in a stream of bytes.
//!
//! ```text
//! multibulk   *<count>\r\n  then count times  $<length>\r\n<length bytes>\r\n
//! inline      SET key "a value"\r\n           (anything whose first byte is not '*')
//! ```
//! One `Parser` per connection. A worker calls `parse` over and over on what is left of its read buffer; the
//! usual request lies there complete and costs a few nanoseconds an argument. If the bytes end within a
//! request, the parser remembers how far it came and where the arguments lie, and the caller keeps the bytes
//! *from the request's first byte on* and calls again with these and more after them. No byte is looked at
//! twice except for the tail of an unfinished line, so neither a client that sends single bytes nor a million
//! arguments in small pieces costs more than its length.
//!
//! The parser takes no memory for announced lengths: the parser's only memory is 8 bytes for each argument
//! *seen*, and an argument is at least 6 bytes of input (`$0\r\n\r\n`).
//!
//! Invariants: `at <= scanned <= bytes given so far`; `found` is empty unless a multibulk request is
//! unfinished; in state `Start` everything is zero.

use std::fmt;

use isotherm_stdx::args_split::{Dialect, args_split, split_in_place};
use isotherm_stdx::parse_i64;

use crate::limits::{Limits, MULTIBULK_UNAUTHENTICATED_MAX, REQUEST_BYTES_MAX};
use crate::request::Span;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// Request whose arguments were pushed to `spans`; the next request begins `consumed` bytes further on.
    Request { consumed: usize },
    /// A blank inline line, or a multibulk of no arguments: nothing to run and nothing to answer.
    Empty { consumed: usize },
    /// At least `wanted` bytes are missing. A hint for the next read, from the client's mouth: cap it.
    Incomplete { wanted: usize },
    /// An error that is to be answered; the connection is closed after the answer.
    Error(ProtocolError),
}

/// Error in a request. `Display` gives the reply's text without the leading `-`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolError {
    BigInlineRequest,
    BigMultibulkCount,
    BigBulkCount,
    InvalidMultibulkLength,
    UnauthenticatedMultibulkLength,
    InvalidBulkLength,
    UnauthenticatedBulkLength,
    ExpectedDollar {
        got: u8,
    },
    InvalidCrlf,
    UnbalancedQuotes,
    /// Ours: the request passes `REQUEST_BYTES_MAX`. The query buffer limit (1 GB) usually closes such a
    /// client before.
    BigRequest,
}

#[derive(Debug, Default)]
pub struct Parser {
    state: State,
    /// Bytes of this request that are done with: the next header, argument or line begins here.
    at: u32,
    /// Bytes that hold no end of the line that begins at `at`.
    scanned: u32,
    /// Arguments that have not been seen completely.
    remaining: u32,
    /// The length of the argument at `at`, once its header was read.
    bulk: Option<u32>,
    /// The arguments seen so far, while the request is unfinished, and the sum of their lengths.
    found: Vec<Span>,
    found_bytes: u32,
}

const _: () = assert!(size_of::<Parser>() <= 64, "every idle connection carries one");

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Start,
    Multibulk,
    Inline,
}

/// Why parsing stopped before the request's end.
enum Stop {
    Incomplete(usize),
    Error(ProtocolError),
}

impl Parser {
    pub fn new() -> Parser {
        Parser::default()
    }

    /// Between two requests there is nothing to remember.
    pub fn is_idle(&self) -> bool {
        self.state == State::Start
    }

    /// Returns the bytes that the parser takes in addition to itself, for memory accounting.
    pub fn memory_bytes(&self) -> usize {
        self.found.capacity() * size_of::<Span>()
    }

    /// Bytes of the unfinished request that need not be looked at again, and how many of them are arguments.
    pub fn seen_bytes(&self) -> (usize, usize) {
        (self.at as usize, self.found_bytes as usize)
    }

    /// Length of the largest argument of the unfinished request, announced or seen; 0 where there are many.
    pub fn largest_argument_bytes(&self) -> usize {
        const LOOKS_MAX: usize = 16;
        if self.found.len() > LOOKS_MAX {
            return 0;
        }
        self.found.iter().map(|span| span.len).chain(self.bulk).max().unwrap_or(0) as usize
    }

    /// Looks for one request at the front of `buf` and appends its spans, relative to `buf`.
    ///
    /// After `Incomplete`, call again with the same bytes and more after them; `limits` may change in
    /// between. The buffer is mutable because quoted inline arguments are decoded where they lie. While
    /// `limits.authenticated` is false, run each request before parsing the next: it may be the AUTH that
    /// lifts the limits.
    #[inline]
    pub fn parse(&mut self, buf: &mut [u8], limits: &Limits, spans: &mut Vec<Span>) -> Parsed {
        if self.state == State::Start {
            match buf.first() {
                // COMPAT(protocol): A request that begins with the byte 0xff is a command of that name;
                // Valkey skips the byte. Why: the protocol gives this byte no meaning.
                Some(b'*') => return self.parse_fresh(buf, limits, spans),
                Some(_) => self.state = State::Inline,
                None => return Parsed::Incomplete { wanted: 1 },
            }
        }
        self.parse_further(buf, limits, spans)
    }

    /// The usual case: nothing is remembered, and the spans go straight to where the caller wants them.
    #[inline]
    fn parse_fresh(&mut self, buf: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Parsed {
        let first_span = spans.len();
        let mut cursor = Cursor::default();
        let outcome = cursor.read_count(buf, limits).and_then(|()| cursor.read_arguments(buf, limits, spans));
        match outcome {
            Ok(()) => finished(cursor.at, spans.len() - first_span),
            Err(stop) => {
                if let Stop::Incomplete(_) = stop {
                    self.found_bytes = sum_bytes(&spans[first_span..]);
                    self.found.extend(spans.drain(first_span..));
                }
                spans.truncate(first_span);
                self.remember(cursor);
                stop.into()
            }
        }
    }

    #[cold]
    fn parse_further(&mut self, buf: &mut [u8], limits: &Limits, spans: &mut Vec<Span>) -> Parsed {
        if self.state == State::Inline {
            return self.parse_inline(buf, limits, spans);
        }
        let mut cursor = Cursor {
            at: self.at as usize,
            scanned: self.scanned as usize,
            remaining: self.remaining,
            bulk: self.bulk,
        };
        let mut found = std::mem::take(&mut self.found);
        let before = found.len();
        let counted = if cursor.at == 0 { cursor.read_count(buf, limits) } else { Ok(()) };
        match counted.and_then(|()| cursor.read_arguments(buf, limits, &mut found)) {
            Ok(()) => {
                let count = found.len();
                spans.append(&mut found);
                *self = Parser::new();
                finished(cursor.at, count)
            }
            Err(stop) => {
                self.found_bytes += sum_bytes(&found[before..]);
                self.found = found;
                self.remember(cursor);
                stop.into()
            }
        }
    }

    #[cold]
    fn remember(&mut self, cursor: Cursor) {
        self.state = State::Multibulk;
        self.at = u32::try_from(cursor.at).expect("every argument was checked against REQUEST_BYTES_MAX");
        // The place at which the search for a line's end continues is only a saving: too low a number repeats
        // some of the search.
        self.scanned = cursor.scanned.min(REQUEST_BYTES_MAX) as u32;
        self.remaining = cursor.remaining;
        self.bulk = cursor.bulk;
    }

    fn parse_inline(&mut self, buf: &mut [u8], limits: &Limits, spans: &mut Vec<Span>) -> Parsed {
        // Valkey searches with strchr: a NUL hides every newline after it, and such a line never ends.
        let searched = self.scanned as usize;
        let end = buf[searched..].iter().position(|&byte| byte == b'\n' || byte == 0).map(|i| searched + i);
        let newline = match end {
            Some(end) if buf[end] == b'\n' => end,
            _ if buf.len() > limits.inline_bytes_max => {
                return Parsed::Error(ProtocolError::BigInlineRequest);
            }
            _ => {
                self.scanned = end.unwrap_or(buf.len()) as u32;
                return Parsed::Incomplete { wanted: 1 };
            }
        };
        let line_end = newline - usize::from(newline > 0 && buf[newline - 1] == b'\r');
        let first_span = spans.len();
        // A line that is wrong stays as it came: a caller that cannot run what precedes it meets it again.
        let line = &buf[..line_end];
        if has_quotes(line) && args_split(line, Dialect::Request).is_err() {
            *self = Parser::new();
            return Parsed::Error(ProtocolError::UnbalancedQuotes);
        }
        let split = split_in_place(&mut buf[..line_end], Dialect::Request, |start, length| {
            spans.push(Span { start: start as u32, len: length as u32 });
        });
        *self = Parser::new();
        split.expect("only quotes can be wrong, and they were looked at");
        finished(newline + 1, spans.len() - first_span)
    }

    /// The line at the front of `buf`, provided that `parse` would find it complete and decode quotes in it.
    /// To parse the same bytes a second time, put it back.
    #[inline]
    pub fn quoted_line<'b>(&self, buf: &'b [u8]) -> Option<&'b [u8]> {
        if buf.first() == Some(&b'*') { None } else { self.find_quoted_line(buf) }
    }

    #[cold]
    fn find_quoted_line<'b>(&self, buf: &'b [u8]) -> Option<&'b [u8]> {
        // Everything before was searched by an earlier call.
        let searched = self.scanned as usize;
        let end = searched + buf.get(searched..)?.iter().position(|&byte| byte == b'\n')?;
        has_quotes(&buf[..end]).then_some(&buf[..end])
    }
}

/// Without quotes nothing is decoded: the arguments lie in the line as they are.
fn has_quotes(line: &[u8]) -> bool {
    line.iter().any(|byte| matches!(byte, b'"' | b'\''))
}

/// Arguments lie side by side in one request, whose bytes fit 32 bits.
fn sum_bytes(arguments: &[Span]) -> u32 {
    arguments.iter().map(|span| span.len).sum()
}

#[inline]
fn finished(consumed: usize, arguments: usize) -> Parsed {
    if arguments > 0 { Parsed::Request { consumed } } else { Parsed::Empty { consumed } }
}

impl From<Stop> for Parsed {
    fn from(stop: Stop) -> Parsed {
        match stop {
            Stop::Incomplete(wanted) => Parsed::Incomplete { wanted },
            Stop::Error(error) => Parsed::Error(error),
        }
    }
}

/// The parser's place within one multibulk request, kept in registers while it runs.
#[derive(Default)]
struct Cursor {
    at: usize,
    scanned: usize,
    remaining: u32,
    bulk: Option<u32>,
}

impl Cursor {
    /// Reads `*<count>\r\n` at the front.
    #[inline]
    fn read_count(&mut self, buf: &[u8], limits: &Limits) -> Result<(), Stop> {
        if let Some((count, width)) = short_header(buf, b'*')
            && i64::from(count) <= MULTIBULK_UNAUTHENTICATED_MAX.min(limits.multibulk_len_max)
        {
            self.remaining = count;
            self.at = width;
            return Ok(());
        }
        self.read_odd_count(buf, limits)
    }

    fn read_odd_count(&mut self, buf: &[u8], limits: &Limits) -> Result<(), Stop> {
        let end = self.find_line_end(buf, limits, ProtocolError::BigMultibulkCount)?;
        if buf[end + 1] != b'\n' {
            return Err(Stop::Error(ProtocolError::InvalidCrlf));
        }
        let count = match parse_i64(&buf[1..end]) {
            Some(count) if count <= limits.multibulk_len_max => count,
            _ => return Err(Stop::Error(ProtocolError::InvalidMultibulkLength)),
        };
        if count > MULTIBULK_UNAUTHENTICATED_MAX && !limits.authenticated {
            return Err(Stop::Error(ProtocolError::UnauthenticatedMultibulkLength));
        }
        self.remaining = u32::try_from(count.max(0)).expect("multibulk_len_max fits 32 bits");
        self.at = end + 2;
        Ok(())
    }

    #[inline]
    fn read_arguments(&mut self, buf: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Result<(), Stop> {
        while self.remaining > 0 {
            let length = match self.bulk {
                Some(length) => length as usize,
                None => self.read_length(buf, limits)?,
            };
            let end = self.at + length;
            match buf.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(Stop::Error(ProtocolError::InvalidCrlf)),
                None => {
                    self.bulk = Some(length as u32);
                    self.scanned = self.at;
                    return Err(Stop::Incomplete(end + 2 - buf.len()));
                }
            }
            spans.push(Span { start: self.at as u32, len: length as u32 });
            self.bulk = None;
            self.remaining -= 1;
            self.at = end + 2;
        }
        Ok(())
    }

    /// Reads `$<length>\r\n` and moves to the byte after it.
    #[inline]
    fn read_length(&mut self, buf: &[u8], limits: &Limits) -> Result<usize, Stop> {
        let rest = buf.get(self.at..).unwrap_or_default();
        if let Some((length, width)) = short_header(rest, b'$')
            && length as usize <= limits.bulk_bytes_max.min(limits.bulk_unauthenticated_max)
            && self.at < REQUEST_BYTES_MAX / 2
        {
            self.at += width;
            return Ok(length as usize);
        }
        self.read_odd_length(buf, limits)
    }

    fn read_odd_length(&mut self, buf: &[u8], limits: &Limits) -> Result<usize, Stop> {
        let end = self.find_line_end(buf, limits, ProtocolError::BigBulkCount)?;
        if buf[self.at] != b'$' {
            return Err(Stop::Error(ProtocolError::ExpectedDollar { got: buf[self.at] }));
        }
        if buf[end + 1] != b'\n' {
            return Err(Stop::Error(ProtocolError::InvalidCrlf));
        }
        let length = match parse_i64(&buf[self.at + 1..end]).map(usize::try_from) {
            Some(Ok(length)) if length <= limits.bulk_bytes_max => length,
            _ => return Err(Stop::Error(ProtocolError::InvalidBulkLength)),
        };
        if length > limits.bulk_unauthenticated_max && !limits.authenticated {
            return Err(Stop::Error(ProtocolError::UnauthenticatedBulkLength));
        }
        // The argument, its end and one more header must stay addressable with 32 bits.
        if end + 2 + length + 2 + limits.inline_bytes_max + 2 > REQUEST_BYTES_MAX {
            return Err(Stop::Error(ProtocolError::BigRequest));
        }
        self.at = end + 2;
        Ok(length)
    }

    /// The place of the first `\r` from `at` on, provided that one more byte follows it.
    fn find_line_end(&mut self, buf: &[u8], limits: &Limits, too_big: ProtocolError) -> Result<usize, Stop> {
        let from = self.scanned.max(self.at).min(buf.len());
        match buf[from..].iter().position(|&byte| byte == b'\r').map(|i| from + i) {
            Some(end) if end + 1 < buf.len() => Ok(end),
            Some(end) => {
                self.scanned = end;
                Err(Stop::Incomplete(1))
            }
            None if buf.len().saturating_sub(self.at) > limits.inline_bytes_max => Err(Stop::Error(too_big)),
            None => {
                self.scanned = buf.len();
                Err(Stop::Incomplete(1))
            }
        }
    }
}

/// `<sigil><canonical number of 1 to 5 digits>\r\n` at the front of `rest`: the number and the header's
/// width. Anything else, wrong or merely long, is left to the slow path, which knows every case.
#[inline(always)]
fn short_header(rest: &[u8], sigil: u8) -> Option<(u32, usize)> {
    let digit = |byte: u8| byte.is_ascii_digit();
    let value = |byte: u8| u32::from(byte - b'0');
    match *rest {
        [s, a, b'\r', b'\n', ..] if s == sigil && digit(a) => Some((value(a), 4)),
        [s, a, b, b'\r', b'\n', ..] if s == sigil && digit(a) && a != b'0' && digit(b) => {
            Some((value(a) * 10 + value(b), 5))
        }
        [s, a, b, c, d, ..] if s == sigil && digit(a) && a != b'0' && digit(b) && digit(c) => {
            let three = value(a) * 100 + value(b) * 10 + value(c);
            match (d, &rest[5..]) {
                (b'\r', [b'\n', ..]) => Some((three, 6)),
                (d, [b'\r', b'\n', ..]) if digit(d) => Some((three * 10 + value(d), 7)),
                (d, [e, b'\r', b'\n', ..]) if digit(d) && digit(*e) => {
                    Some((three * 100 + value(d) * 10 + value(*e), 8))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

impl ProtocolError {
    /// The whole reply without the leading `-`; a byte that is no text may be among it.
    pub fn text(self) -> Vec<u8> {
        let reason: &str = match self {
            ProtocolError::BigInlineRequest => "too big inline request",
            ProtocolError::BigMultibulkCount => "too big mbulk count string",
            ProtocolError::BigBulkCount => "too big bulk count string",
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
            ProtocolError::ExpectedDollar { got } => {
                return [&b"ERR Protocol error: expected '$', got '"[..], &[got], b"'"].concat();
            }
            ProtocolError::InvalidCrlf => "invalid CRLF in request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::BigRequest => "too big request",
        };
        format!("ERR Protocol error: {reason}").into_bytes()
    }

    /// Returns the name of the error in the log.
    pub fn log_text(self) -> &'static str {
        match self {
            ProtocolError::BigInlineRequest => "too big inline request",
            ProtocolError::BigMultibulkCount => "too big mbulk count string",
            ProtocolError::BigBulkCount => "too big bulk count string",
            ProtocolError::InvalidMultibulkLength => "invalid mbulk count",
            ProtocolError::UnauthenticatedMultibulkLength => "unauth mbulk count",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauth bulk length",
            ProtocolError::ExpectedDollar { .. } => "expected $ but got something else",
            ProtocolError::InvalidCrlf => "invalid CRLF in request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in inline request",
            ProtocolError::BigRequest => "too big request",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text()))
    }
}

#[cfg(test)]
mod tests;
