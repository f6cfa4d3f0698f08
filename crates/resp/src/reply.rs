//! Writing replies.
//!
//! | written      | RESP2          | RESP3          |
//! |--------------|----------------|----------------|
//! | null         | `$-1`          | `_`            |
//! | null array   | `*-1`          | `_`            |
//! | map of n     | `*2n`          | `%n`           |
//! | set of n     | `*n`           | `~n`           |
//! | push of n    | `*n`           | `>n`           |
//! | boolean      | `:1` `:0`      | `#t` `#f`      |
//! | double       | bulk           | `,1.5`         |
//! | big number   | bulk           | `(123`         |
//! | verbatim     | bulk           | `=len txt:...` |
//!
//! A handler writes values and never asks which version the client speaks. Writing is appending to one `Vec`;
//! headers of small numbers are appends of constant size, which compile to two stores and one capacity check.
//!
//! A large reply that is the same for many clients can stand outside of that `Vec`, as parts that are not
//! copied:
//!
//! ```text
//! out      +OK\r\n *2\r\n :1\r\n
//! shared              ^ at 9: 25 KB, 25 KB, 18 KB        each part stands behind a byte of its own reply
//! ```

mod parts;

use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::{push_f64, push_i64};
use std::sync::Arc;

use crate::shared::SharedBytes;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    /// Returns the number that HELLO takes and reports.
    pub fn version(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Capacity that is kept for the next replies: what usual ones need.
const KEPT_BYTES_MAX: usize = 1 << 20;

#[derive(Default, Debug)]
pub struct Reply {
    pub out: Vec<u8>,
    pub proto: Protocol,
    /// A client that would be sent as much is closed instead; 0 for never.
    pub bytes_max: usize,
    /// The worker that sends it sends shared parts too; elsewhere they are copied.
    pub shares: bool,
    /// Shared parts in ascending order of their places in `out`.
    shared: Vec<SharedPart>,
    shared_bytes: usize,
    errors: u64,
    last_error: ErrorCode,
}

/// A part of a reply that stands in front of `out[at..]`.
#[derive(Clone, Debug)]
pub struct SharedPart {
    pub at: usize,
    pub bytes: Arc<SharedBytes>,
}

/// The first word of an error ("ERR", "WRONGTYPE"), under which INFO errorstats counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErrorCode {
    bytes: [u8; ErrorCode::BYTES_MAX],
    len: u8,
}

/// An aggregate whose length is not known yet; to be closed with `close_array` and its siblings.
#[must_use = "an open aggregate is invalid protocol"]
#[derive(Debug)]
pub struct Deferred {
    at: usize,
}

/// Placeholder of an open aggregate until it is closed: the shortest header, so that small aggregates need no
/// moving.
const DEFERRED_HEADER: &[u8] = b"*0\r\n";

impl Reply {
    pub fn new(proto: Protocol) -> Reply {
        Reply { proto, ..Reply::default() }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns the number of bytes for the client, those of shared parts included; `len` is without them.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.out.len() + self.shared_bytes
    }

    /// Returns whether further output will not be read: a handler that repeats itself may stop.
    #[inline]
    pub fn is_discarded(&self) -> bool {
        self.bytes_max > 0 && self.bytes() >= self.bytes_max
    }

    /// Sets the number of errors back to `count`: the command that has written errors since then was not run,
    /// and runs again.
    pub fn forget_errors(&mut self, count: u64) {
        self.errors = count;
    }

    /// Takes back what was written since `len()` was `mark`. Errors counted since then stay counted.
    pub fn truncate(&mut self, mark: usize) {
        self.out.truncate(mark);
        while let Some(part) = self.shared.pop_if(|part| part.at > mark) {
            self.shared_bytes -= part.bytes.len();
        }
    }

    /// Takes back what was written since `len()` was `mark`, and the memory that a large reply took: nothing
    /// of it is written soon. Errors counted since then stay counted.
    pub fn drop_since(&mut self, mark: usize) {
        self.truncate(mark);
        self.give_back();
    }

    /// Gives back the memory that a large reply has taken, and keeps what usual ones need.
    #[inline]
    pub fn give_back(&mut self) {
        if self.out.capacity() > KEPT_BYTES_MAX {
            self.out.shrink_to_fit();
        }
    }

    /// Takes out what was written since `len()` was `mark`, with shared parts copied. Errors counted since
    /// then stay counted.
    pub fn split_off(&mut self, mark: usize) -> Vec<u8> {
        let first = self.shared.partition_point(|part| part.at <= mark);
        let (mut taken, mut from) = (Vec::new(), mark);
        for part in self.shared.drain(first..) {
            taken.extend_from_slice(&self.out[from..part.at]);
            taken.extend_from_slice(&part.bytes);
            from = part.at;
            self.shared_bytes -= part.bytes.len();
        }
        taken.extend_from_slice(&self.out[from..]);
        self.out.truncate(mark);
        taken
    }

    /// Drops the contents, which are no longer needed.
    #[inline]
    pub fn clear(&mut self) {
        self.out.clear();
        if self.has_shared() {
            (self.shared, self.shared_bytes) = (Vec::new(), 0);
        }
    }

    // --- simple values
    // -------------------------------------------------------------------------------------------

    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    #[inline]
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']), "a simple string is one line");
        self.out.push(b'+');
        self.line(text.as_bytes());
    }

    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + HEADER_BYTES_MAX + 2);
        self.header(b'$', bytes.len() as i64);
        self.line(bytes);
    }

    /// A number as a bulk string: what GET gives for a value that is kept as a number.
    #[inline]
    pub fn bulk_i64(&mut self, value: i64) {
        let mut buffer = [0; I64_BYTES_MAX];
        self.bulk(write_i64(value, &mut buffer));
    }

    #[inline]
    pub fn null(&mut self) {
        match self.proto {
            Protocol::Resp2 => self.out.extend_from_slice(b"$-1\r\n"),
            Protocol::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    pub fn null_array(&mut self) {
        match self.proto {
            Protocol::Resp2 => self.out.extend_from_slice(b"*-1\r\n"),
            Protocol::Resp3 => self.out.extend_from_slice(b"_\r\n"),
        }
    }

    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.proto, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    pub fn double(&mut self, value: f64) {
        match self.proto {
            Protocol::Resp2 => {
                let mut text = Vec::with_capacity(isotherm_stdx::float::F64_BYTES_MAX);
                push_f64(&mut text, value);
                self.bulk(&text);
            }
            Protocol::Resp3 => {
                self.out.push(b',');
                push_f64(&mut self.out, value);
                self.end_line();
            }
        }
    }

    /// An integer of any size, given as its digits.
    pub fn big_number(&mut self, digits: &str) {
        match self.proto {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => {
                self.out.push(b'(');
                self.line(digits.as_bytes());
            }
        }
    }

    /// A text for people (INFO, LOLWUT): clients show it as it is. `ext` is "txt" or "mkd".
    pub fn verbatim(&mut self, ext: &str, bytes: &[u8]) {
        assert_eq!(ext.len(), 3, "the format's name has three characters");
        match self.proto {
            Protocol::Resp2 => self.bulk(bytes),
            Protocol::Resp3 => {
                self.header(b'=', bytes.len() as i64 + 4);
                self.out.extend_from_slice(ext.as_bytes());
                self.out.push(b':');
                self.line(bytes);
            }
        }
    }

    /// Bytes that are a reply already.
    #[inline]
    pub fn raw(&mut self, reply: &[u8]) {
        self.out.extend_from_slice(reply);
    }

    // --- errors
    // --------------------------------------------------------------------------------------------------

    /// `text` begins with its code: "ERR no such key". Line ends at both sides are cut off, those within
    /// become blanks: parts of the text may be a client's.
    #[cold]
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let text = text.as_ref();
        let start = text.iter().take_while(|&byte| is_line_end(byte)).count();
        let end = text.len() - text[start..].iter().rev().take_while(|&byte| is_line_end(byte)).count();
        let text = &text[start..end];
        self.errors += 1;
        self.last_error = ErrorCode::of(text);
        self.out.push(b'-');
        self.out.extend(text.iter().map(|byte| if is_line_end(byte) { b' ' } else { *byte }));
        self.end_line();
    }

    /// Errors written so far. The runner of a command compares before and after, and asks for `last_error`.
    #[inline]
    pub fn error_count(&self) -> u64 {
        self.errors
    }

    pub fn last_error(&self) -> ErrorCode {
        self.last_error
    }

    // --- aggregates
    // ----------------------------------------------------------------------------------------------

    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    pub fn map(&mut self, len: usize) {
        let (sigil, len) = self.map_header(len);
        self.header(sigil, len as i64);
    }

    pub fn set(&mut self, len: usize) {
        self.header(self.set_sigil(), len as i64);
    }

    pub fn push(&mut self, len: usize) {
        self.header(self.push_sigil(), len as i64);
    }

    /// Attributes precede a value and exist only in RESP3: a handler that writes them asks for the version.
    pub fn attribute(&mut self, len: usize) {
        assert_eq!(self.proto, Protocol::Resp3, "RESP2 has no attributes");
        self.header(b'|', len as i64);
    }

    /// Opens an aggregate whose length is known only at its end. They may nest, and are closed from the
    /// inside out.
    #[inline]
    pub fn defer(&mut self) -> Deferred {
        let at = self.out.len();
        self.out.extend_from_slice(DEFERRED_HEADER);
        Deferred { at }
    }

    pub fn close_array(&mut self, open: Deferred, len: usize) {
        self.close(open, b'*', len);
    }

    pub fn close_map(&mut self, open: Deferred, len: usize) {
        let (sigil, len) = self.map_header(len);
        self.close(open, sigil, len);
    }

    pub fn close_set(&mut self, open: Deferred, len: usize) {
        self.close(open, self.set_sigil(), len);
    }

    pub fn close_push(&mut self, open: Deferred, len: usize) {
        self.close(open, self.push_sigil(), len);
    }

    /// Puts the real header in place; one longer than the reserved four bytes moves what follows once.
    fn close(&mut self, open: Deferred, sigil: u8, len: usize) {
        let reserved = open.at..open.at + DEFERRED_HEADER.len();
        let mut header = Vec::with_capacity(HEADER_BYTES_MAX);
        push_header(&mut header, sigil, len as i64);
        if header.len() == reserved.len() {
            self.out[reserved].copy_from_slice(&header);
        } else {
            let more = header.len() - reserved.len();
            self.shared.iter_mut().filter(|part| part.at > open.at).for_each(|part| part.at += more);
            self.out.splice(reserved, header);
        }
    }

    fn map_header(&self, len: usize) -> (u8, usize) {
        match self.proto {
            Protocol::Resp2 => (b'*', len * 2),
            Protocol::Resp3 => (b'%', len),
        }
    }

    fn set_sigil(&self) -> u8 {
        if self.proto == Protocol::Resp2 { b'*' } else { b'~' }
    }

    fn push_sigil(&self) -> u8 {
        if self.proto == Protocol::Resp2 { b'*' } else { b'>' }
    }

    // --- bytes
    // ---------------------------------------------------------------------------------------------------

    #[inline]
    fn header(&mut self, sigil: u8, value: i64) {
        push_header(&mut self.out, sigil, value);
    }

    #[inline]
    fn line(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.end_line();
    }

    #[inline]
    fn end_line(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// A sigil, a number, a line end: 1 + 20 + 2.
const HEADER_BYTES_MAX: usize = 1 + I64_BYTES_MAX + 2;

#[inline]
fn push_header(out: &mut Vec<u8>, sigil: u8, value: i64) {
    let digit = |value: i64| b'0' + value as u8;
    match value {
        0..=9 => out.extend_from_slice(&[sigil, digit(value), b'\r', b'\n']),
        10..=99 => out.extend_from_slice(&[sigil, digit(value / 10), digit(value % 10), b'\r', b'\n']),
        _ => push_long_header(out, sigil, value),
    }
}

fn push_long_header(out: &mut Vec<u8>, sigil: u8, value: i64) {
    out.push(sigil);
    push_i64(out, value);
    out.extend_from_slice(b"\r\n");
}

impl ErrorCode {
    /// Valkey looks for the code's end within 32 bytes, the `-` included.
    const BYTES_MAX: usize = 31;
    const DEFAULT: &[u8] = b"ERR";

    fn of(text: &[u8]) -> ErrorCode {
        let searched = &text[..text.len().min(Self::BYTES_MAX)];
        // Line ends become blanks.
        let word = match searched.iter().position(|&byte| matches!(byte, b' ' | b'\r' | b'\n')) {
            Some(end) => &searched[..end],
            None => Self::DEFAULT,
        };
        let mut bytes = [0; Self::BYTES_MAX];
        bytes[..word.len()].copy_from_slice(word);
        ErrorCode { bytes, len: word.len() as u8 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(write: impl Fn(&mut Reply), resp2: &str, resp3: &str) {
        for (proto, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut reply = Reply::new(proto);
            write(&mut reply);
            assert_eq!(String::from_utf8_lossy(&reply.out), expected, "{proto:?}");
        }
    }

    #[test]
    fn every_kind_in_both_versions() {
        check(|r| r.ok(), "+OK\r\n", "+OK\r\n");
        check(|r| r.simple("PONG"), "+PONG\r\n", "+PONG\r\n");
        check(|r| r.integer(7), ":7\r\n", ":7\r\n");
        check(|r| r.integer(42), ":42\r\n", ":42\r\n");
        check(|r| r.integer(-1), ":-1\r\n", ":-1\r\n");
        check(|r| r.integer(i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n");
        check(|r| r.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n");
        check(|r| r.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n");
        check(|r| r.bulk(&[b'x'; 12]), "$12\r\nxxxxxxxxxxxx\r\n", "$12\r\nxxxxxxxxxxxx\r\n");
        check(|r| r.bulk_i64(-100), "$4\r\n-100\r\n", "$4\r\n-100\r\n");
        check(|r| r.null(), "$-1\r\n", "_\r\n");
        check(|r| r.null_array(), "*-1\r\n", "_\r\n");
        check(|r| r.boolean(true), ":1\r\n", "#t\r\n");
        check(|r| r.boolean(false), ":0\r\n", "#f\r\n");
        check(|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(|r| r.double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n");
        check(|r| r.big_number("123"), "$3\r\n123\r\n", "(123\r\n");
        check(|r| r.verbatim("txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
        check(|r| r.array(3), "*3\r\n", "*3\r\n");
        check(|r| r.array(1000), "*1000\r\n", "*1000\r\n");
        check(|r| r.map(6), "*12\r\n", "%6\r\n");
        check(|r| r.set(2), "*2\r\n", "~2\r\n");
        check(|r| r.push(2), "*2\r\n", ">2\r\n");
    }

    #[test]
    fn errors_are_one_line_and_counted() {
        check(|r| r.error("ERR no such key"), "-ERR no such key\r\n", "-ERR no such key\r\n");
        check(|r| r.error("ERR a\r\nb\r\n"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        check(|r| r.error("\r\nERR x"), "-ERR x\r\n", "-ERR x\r\n");
        check(|r| r.error("\r\n\r\n"), "-\r\n", "-\r\n");
        let mut reply = Reply::default();
        let mut code = |text: &str| {
            reply.error(text);
            String::from_utf8_lossy(reply.last_error().as_bytes()).into_owned()
        };
        assert_eq!(code("WRONGTYPE Operation"), "WRONGTYPE");
        assert_eq!(code("ERR x"), "ERR");
        assert_eq!(code("NOSPACE"), "ERR");
        assert_eq!(code(&format!("{} x", "A".repeat(30))), "A".repeat(30));
        assert_eq!(code(&format!("{} x", "A".repeat(31))), "ERR");
        assert_eq!(reply.error_count(), 5);
    }

    #[test]
    fn deferred_aggregates() {
        let fill = |r: &mut Reply, n: usize| (0..n).for_each(|i| r.integer(i as i64 % 10));
        for n in [0, 1, 9, 10, 100, 1000] {
            let mut deferred = Reply::new(Protocol::Resp3);
            let outer = deferred.defer();
            deferred.ok();
            let inner = deferred.defer();
            fill(&mut deferred, n);
            deferred.close_set(inner, n);
            deferred.close_array(outer, 2);
            let mut known = Reply::new(Protocol::Resp3);
            known.array(2);
            known.ok();
            known.set(n);
            fill(&mut known, n);
            assert_eq!(deferred.out, known.out, "{n}");
        }
        check(
            |r| {
                let open = r.defer();
                (0..12).for_each(|_| r.ok());
                r.close_map(open, 6);
            },
            &format!("*12\r\n{}", "+OK\r\n".repeat(12)),
            &format!("%6\r\n{}", "+OK\r\n".repeat(12)),
        );
        check(
            |r| {
                let open = r.defer();
                r.close_push(open, 0);
            },
            "*0\r\n",
            ">0\r\n",
        );
    }

    #[test]
    fn truncate_takes_back() {
        let mut reply = Reply::default();
        reply.ok();
        let mark = reply.len();
        reply.bulk(b"lost");
        reply.truncate(mark);
        assert_eq!(reply.out, b"+OK\r\n");
        assert!(!reply.is_empty());
    }
}
