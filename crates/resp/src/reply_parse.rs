//! Reading replies: the client's side of RESP2 and RESP3, for our tools and tests.
//!
//! Two steps. `ReplyReader` finds the end of a reply in a stream by counting values that are still to come,
//! without looking at any byte twice. `parse_value` then turns the complete bytes into a `Value`, which keeps
//! numbers as they were written, so that two servers can be compared byte for byte.

use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Integer(i64),
    Bulk(Vec<u8>),
    /// `_`, which only RESP3 has. The three kinds of nothing are kept apart, so that equal values mean equal
    /// bytes.
    Null,
    /// `$-1`, of RESP2.
    NullBulk,
    /// `*-1`, of RESP2.
    NullArray,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    /// Attributes and the value that they precede.
    Attributed(Vec<(Value, Value)>, Box<Value>),
    Boolean(bool),
    Double(Vec<u8>),
    BigNumber(Vec<u8>),
    BulkError(Vec<u8>),
    Verbatim {
        format: Vec<u8>,
        text: Vec<u8>,
    },
}

/// The peer does not speak RESP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadReply {
    pub reason: &'static str,
}

/// A line with a number is never longer; other lines may have any length.
const NUMBER_LINE_BYTES_MAX: usize = 32;
/// Replies nest a few levels (COMMAND DOCS: seven); this only keeps a hostile peer from using up the stack.
const DEPTH_MAX: usize = 64;

/// Finds where one reply ends.
#[derive(Debug)]
pub struct ReplyReader {
    at: usize,
    scanned: usize,
    /// Values still to come.
    pending: u64,
}

impl Default for ReplyReader {
    fn default() -> ReplyReader {
        ReplyReader { at: 0, scanned: 0, pending: 1 }
    }
}

impl ReplyReader {
    pub fn new() -> ReplyReader {
        ReplyReader::default()
    }

    /// The length of the reply at the front of `buf`, or `None` while it is incomplete: then call again with
    /// the same bytes and more after them.
    pub fn find_end(&mut self, buf: &[u8]) -> Result<Option<usize>, BadReply> {
        while self.pending > 0 {
            let Some(line_end) = find_crlf(buf, self.scanned.max(self.at)) else {
                // The last byte may be the first half of a line's end.
                self.scanned = buf.len().saturating_sub(1).max(self.at);
                return Ok(None);
            };
            let line = &buf[self.at..line_end];
            let children = children_of(line)?;
            let body = body_length(line)?;
            let next = line_end + 2 + body.map_or(0, |length| length + 2);
            if next > buf.len() {
                self.scanned = line_end;
                return Ok(None);
            }
            // An attribute is no value itself: what it precedes is still to come.
            let done = u64::from(line[0] != b'|');
            self.pending = self.pending.saturating_add(children) - done;
            self.at = next;
        }
        Ok(Some(self.at))
    }
}

fn find_crlf(buf: &[u8], from: usize) -> Option<usize> {
    let rest = buf.get(from..)?;
    rest.windows(2).position(|pair| pair == b"\r\n").map(|i| from + i)
}

/// Returns how many values follow a header.
fn children_of(line: &[u8]) -> Result<u64, BadReply> {
    let per_item = match line.first() {
        Some(b'*' | b'~' | b'>') => 1,
        Some(b'%' | b'|') => 2,
        _ => return Ok(0),
    };
    let count = number(line)?;
    if count < -1 || (count == -1 && line[0] != b'*') {
        return Err(BadReply { reason: "negative length" });
    }
    (count.max(0) as u64).checked_mul(per_item).ok_or(BadReply { reason: "length out of range" })
}

/// The length of the bytes after a header that announces some.
fn body_length(line: &[u8]) -> Result<Option<usize>, BadReply> {
    match line.first() {
        Some(b'$' | b'=' | b'!') => match number(line)? {
            -1 if line[0] == b'$' => Ok(None),
            length @ 0..=0xffff_ffff => Ok(Some(length as usize)),
            _ => Err(BadReply { reason: "bulk length out of range" }),
        },
        Some(b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' | b'*' | b'~' | b'>' | b'%' | b'|') => Ok(None),
        _ => Err(BadReply { reason: "unknown type of reply" }),
    }
}

fn number(line: &[u8]) -> Result<i64, BadReply> {
    let digits = &line[1..];
    if digits.len() > NUMBER_LINE_BYTES_MAX {
        return Err(BadReply { reason: "number too long" });
    }
    isotherm_stdx::parse_i64(digits).ok_or(BadReply { reason: "not a number" })
}

/// The value at the front of `buf` and its length, or `None` if it is not complete.
pub fn parse_value(buf: &[u8]) -> Result<Option<(Value, usize)>, BadReply> {
    let Some(end) = ReplyReader::new().find_end(buf)? else { return Ok(None) };
    let mut at = 0;
    let value = read_value(&buf[..end], &mut at, 0)?;
    assert_eq!(at, end, "both steps agree where a reply ends");
    Ok(Some((value, end)))
}

/// Reads from bytes that `ReplyReader` has found complete.
fn read_value(buf: &[u8], at: &mut usize, depth: usize) -> Result<Value, BadReply> {
    if depth > DEPTH_MAX {
        return Err(BadReply { reason: "nested too deeply" });
    }
    let line_end = find_crlf(buf, *at).ok_or(BadReply { reason: "truncated" })?;
    let line = &buf[*at..line_end];
    *at = line_end + 2;
    let text = line[1..].to_vec();
    let body = match body_length(line)? {
        None => Vec::new(),
        Some(length) => {
            let body = buf[*at..*at + length].to_vec();
            *at += length;
            if !buf[*at..].starts_with(b"\r\n") {
                return Err(BadReply { reason: "bulk without its line end" });
            }
            *at += 2;
            body
        }
    };
    let values = |at: &mut usize| -> Result<Vec<Value>, BadReply> {
        (0..children_of(line)?).map(|_| read_value(buf, at, depth + 1)).collect()
    };
    let pairs = |at: &mut usize| -> Result<Vec<(Value, Value)>, BadReply> {
        (0..children_of(line)? / 2)
            .map(|_| Ok((read_value(buf, at, depth + 1)?, read_value(buf, at, depth + 1)?)))
            .collect()
    };
    Ok(match line[0] {
        b'+' => Value::Simple(text),
        b'-' => Value::Error(text),
        b':' => Value::Integer(number(line)?),
        b'$' if text == b"-1" => Value::NullBulk,
        b'$' => Value::Bulk(body),
        b'_' => Value::Null,
        b'*' if text == b"-1" => Value::NullArray,
        b'*' => Value::Array(values(at)?),
        b'~' => Value::Set(values(at)?),
        b'>' => Value::Push(values(at)?),
        b'%' => Value::Map(pairs(at)?),
        b'|' => Value::Attributed(pairs(at)?, Box::new(read_value(buf, at, depth + 1)?)),
        b'#' => match text.as_slice() {
            b"t" => Value::Boolean(true),
            b"f" => Value::Boolean(false),
            _ => return Err(BadReply { reason: "neither true nor false" }),
        },
        b',' => Value::Double(text),
        b'(' => Value::BigNumber(text),
        b'!' => Value::BulkError(body),
        b'=' if body.get(3) == Some(&b':') => {
            Value::Verbatim { format: body[..3].to_vec(), text: body[4..].to_vec() }
        }
        _ => return Err(BadReply { reason: "unknown type of reply" }),
    })
}

impl Value {
    /// Returns whether the value is null, in any form that the protocol has for it.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::NullBulk | Value::NullArray)
    }

    /// The text of an error.
    pub fn as_error(&self) -> Option<&[u8]> {
        match self {
            Value::Error(text) | Value::BulkError(text) => Some(text),
            _ => None,
        }
    }
}

/// Writes the value as a command line client would show it, on one line.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, open: &str, items: &[Value], close: &str| {
            f.write_str(open)?;
            for (i, item) in items.iter().enumerate() {
                let comma = if i == 0 { "" } else { ", " };
                write!(f, "{comma}{item}")?;
            }
            f.write_str(close)
        };
        let pairs = |f: &mut fmt::Formatter<'_>, open: &str, items: &[(Value, Value)]| {
            f.write_str(open)?;
            for (i, (key, value)) in items.iter().enumerate() {
                let comma = if i == 0 { "" } else { ", " };
                write!(f, "{comma}{key} => {value}")?;
            }
            f.write_str("}")
        };
        match self {
            Value::Simple(text) => write!(f, "+{}", text.escape_ascii()),
            Value::Error(text) | Value::BulkError(text) => write!(f, "(error) {}", text.escape_ascii()),
            Value::Integer(value) => write!(f, "(integer) {value}"),
            Value::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Value::Null => f.write_str("(null)"),
            Value::NullBulk => f.write_str("(nil)"),
            Value::NullArray => f.write_str("(nil array)"),
            Value::Array(items) => list(f, "[", items, "]"),
            Value::Set(items) => list(f, "~[", items, "]"),
            Value::Push(items) => list(f, ">[", items, "]"),
            Value::Map(items) => pairs(f, "{", items),
            Value::Attributed(items, value) => {
                pairs(f, "|{", items)?;
                write!(f, " {value}")
            }
            Value::Boolean(value) => write!(f, "({value})"),
            Value::Double(text) => write!(f, "(double) {}", text.escape_ascii()),
            Value::BigNumber(text) => write!(f, "(big number) {}", text.escape_ascii()),
            Value::Verbatim { format, text } => {
                write!(f, "{}:\"{}\"", format.escape_ascii(), text.escape_ascii())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Value {
        let (value, length) = parse_value(text).unwrap().expect("a complete reply");
        assert_eq!(length, text.len());
        value
    }

    const EVERY_KIND: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-5\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$4\r\na\r\nb\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
        b"_\r\n",
        b"#t\r\n",
        b",1.5\r\n",
        b"(123\r\n",
        b"!5\r\nERR x\r\n",
        b"=6\r\ntxt:hi\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n:2\r\n",
        b">2\r\n+message\r\n_\r\n",
        b"|1\r\n+ttl\r\n:3\r\n*1\r\n:9\r\n",
    ];

    #[test]
    fn every_kind() {
        let shown: Vec<String> = EVERY_KIND.iter().map(|text| parse(text).to_string()).collect();
        let expected = [
            "+OK",
            "(error) ERR no",
            "(integer) -5",
            "(nil)",
            "\"\"",
            "\"a\\r\\nb\"",
            "(nil array)",
            "[]",
            "[[(integer) 1], \"x\"]",
            "(null)",
            "(true)",
            "(double) 1.5",
            "(big number) 123",
            "(error) ERR x",
            "txt:\"hi\"",
            "{+a => (integer) 1, +b => ~[(integer) 2]}",
            ">[+message, (null)]",
            "|{+ttl => (integer) 3} [(integer) 9]",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_reply_may_come_in_single_bytes() {
        for text in EVERY_KIND {
            let mut reader = ReplyReader::new();
            for end in 0..text.len() {
                assert_eq!(reader.find_end(&text[..end]), Ok(None), "{} at {end}", text.escape_ascii());
            }
            let followed = [text, &b"+next\r\n"[..]].concat();
            assert_eq!(reader.find_end(&followed), Ok(Some(text.len())), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn garbage_is_refused() {
        for text in [
            &b"hello\r\n"[..],
            b"\r\n",
            b"$-2\r\n",
            b"$x\r\n",
            b"*-2\r\n",
            b"%-1\r\n",
            b"*9223372036854775807x\r\n",
            b"#x\r\n",
            b"=2\r\nab\r\n",
            b"$1\r\nabc",
        ] {
            assert!(parse_value(text).is_err(), "{}", text.escape_ascii());
        }
        let deep = [&b"*1\r\n".repeat(1000)[..], b":1\r\n"].concat();
        assert!(parse_value(&deep).is_err(), "too deep");
        assert_eq!(parse_value(b"*9223372036854775807\r\n"), Ok(None), "announced, and no memory taken");
    }
}
