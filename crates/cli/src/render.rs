//! A reply as text: for eyes, for pipes, for spreadsheets and for programs.
//!
//! ```text
//! Standard     1) "a"            Raw    a       Csv   "a",1,"b"       Json   ["a",1,["b"]]
//!              2) (integer) 1           1
//!              3) 1) "b"                b
//! ```
//! Every form is that of valkey-cli to the byte, because scripts read it; `tests/beside_valkey.rs` compares.
//! Three kinds of value have no guide there, as it gives up on them: a big number is shown as its digits, a
//! bulk error as an error, and attributes are left out.

use isotherm_resp::reply_parse::Value;

use crate::text::{push_json, push_json_ascii, push_quoted, until_nul};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Format for people: types are named, strings quoted, lists numbered.
    Standard,
    Raw,
    Csv,
    Json,
    /// JSON of ASCII alone.
    QuotedJson,
}

/// Style in which replies are written.
#[derive(Clone, Debug)]
pub struct Style {
    pub format: Format,
    /// Between the parts of a raw reply.
    pub part_end: Vec<u8>,
    /// Bytes that follow a raw reply.
    pub reply_end: Vec<u8>,
}

impl Style {
    pub fn new(format: Format) -> Style {
        Style { format, part_end: b"\n".to_vec(), reply_end: b"\n".to_vec() }
    }

    pub fn render(&self, reply: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        match self.format {
            Format::Standard => standard(&mut out, reply, ""),
            Format::Raw => {
                self.raw(&mut out, reply);
                out.extend(&self.reply_end);
            }
            Format::Csv => {
                csv(&mut out, reply);
                out.push(b'\n');
            }
            Format::Json => {
                json(&mut out, reply, push_json);
                out.push(b'\n');
            }
            Format::QuotedJson => {
                json(&mut out, reply, push_json_ascii);
                out.push(b'\n');
            }
        }
        out
    }

    /// A text that is meant to be read as it is (INFO), whatever the format.
    pub fn verbatim(&self, reply: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        self.raw(&mut out, reply);
        out
    }

    fn raw(&self, out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::Null | Value::NullBulk | Value::NullArray => {}
            Value::Error(text) | Value::BulkError(text) => {
                out.extend(text);
                out.push(b'\n');
            }
            Value::Simple(text)
            | Value::Bulk(text)
            | Value::Verbatim { text, .. }
            | Value::Double(text)
            | Value::BigNumber(text) => out.extend(text),
            Value::Integer(number) => out.extend(number.to_string().bytes()),
            Value::Boolean(value) => out.extend(format!("({value})").bytes()),
            Value::Array(items) | Value::Set(items) | Value::Push(items) => {
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.extend(&self.part_end);
                    }
                    self.raw(out, item);
                }
            }
            Value::Map(pairs) => {
                for (i, (key, value)) in pairs.iter().enumerate() {
                    if i > 0 {
                        out.extend(&self.part_end);
                    }
                    self.raw(out, key);
                    out.push(b' ');
                    self.raw(out, value);
                }
            }
            // COMPAT(tools): isotherm-cli shows big numbers and bulk errors, and omits attributes; valkey-cli
            // gives up on all three. Why: RESP3 has them.
            Value::Attributed(_, value) => self.raw(out, value),
        }
    }
}

fn standard(out: &mut Vec<u8>, value: &Value, indent: &str) {
    match value {
        Value::Error(text) | Value::BulkError(text) => {
            out.extend(b"(error) ");
            out.extend(until_nul(text));
        }
        Value::Simple(text) => out.extend(until_nul(text)),
        Value::Integer(number) => out.extend(format!("(integer) {number}").bytes()),
        Value::Double(text) => {
            out.extend(b"(double) ");
            out.extend(text);
        }
        Value::BigNumber(text) => {
            out.extend(b"(big number) ");
            out.extend(text);
        }
        Value::Bulk(bytes) => push_quoted(out, bytes),
        Value::Verbatim { text, .. } => out.extend(text),
        Value::Null | Value::NullBulk | Value::NullArray => out.extend(b"(nil)"),
        Value::Boolean(value) => out.extend(format!("({value})").bytes()),
        Value::Array(items) => return numbered(out, items, "(empty array)", ')', indent),
        Value::Set(items) => return numbered(out, items, "(empty set)", '~', indent),
        Value::Push(items) => return numbered(out, items, "(empty push)", ')', indent),
        Value::Map(pairs) => return mapped(out, pairs, indent),
        Value::Attributed(_, value) => return standard(out, value, indent),
    }
    out.push(b'\n');
}

/// `1) "a"` and so on. The first line has no indent: the enclosing list has written to the left of it
/// already.
fn numbered(out: &mut Vec<u8>, items: &[Value], empty: &str, mark: char, indent: &str) {
    if items.is_empty() {
        return out.extend(format!("{empty}\n").bytes());
    }
    let width = items.len().to_string().len();
    let inner = format!("{indent}{:1$}", "", width + 2);
    for (i, item) in items.iter().enumerate() {
        let before = if i == 0 { "" } else { indent };
        out.extend(format!("{before}{:>width$}{mark} ", i + 1).bytes());
        standard(out, item, &inner);
    }
}

fn mapped(out: &mut Vec<u8>, pairs: &[(Value, Value)], indent: &str) {
    if pairs.is_empty() {
        return out.extend(b"(empty hash)\n");
    }
    let width = pairs.len().to_string().len();
    let inner = format!("{indent}{:1$}", "", width + 2);
    for (i, (key, value)) in pairs.iter().enumerate() {
        let before = if i == 0 { "" } else { indent };
        out.extend(format!("{before}{:>width$}# ", i + 1).bytes());
        standard(out, key, &inner);
        // The value stands after the arrow, or begins a line of its own if it takes several.
        out.pop();
        out.extend(b" => ");
        if is_multiline(value) {
            out.push(b'\n');
            out.extend(inner.bytes());
        }
        standard(out, value, &inner);
    }
}

fn is_multiline(value: &Value) -> bool {
    match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            items.len() > 1 || items.first().is_some_and(is_multiline)
        }
        Value::Map(pairs) => pairs.len() > 1 || pairs.first().is_some_and(|(_, value)| is_multiline(value)),
        Value::Attributed(_, value) => is_multiline(value),
        _ => false,
    }
}

fn csv(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Error(text) | Value::BulkError(text) => {
            out.extend(b"ERROR,");
            push_quoted(out, until_nul(text));
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => push_quoted(out, text),
        Value::Integer(number) => out.extend(number.to_string().bytes()),
        Value::Double(text) | Value::BigNumber(text) => out.extend(text),
        Value::Null | Value::NullBulk | Value::NullArray => out.extend(b"NULL"),
        Value::Boolean(value) => out.extend(value.to_string().bytes()),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            separated(out, items, csv);
        }
        // There are no maps in CSV: keys and values follow each other.
        Value::Map(pairs) => separated(out, pairs, |out, (key, value)| {
            csv(out, key);
            out.push(b',');
            csv(out, value);
        }),
        Value::Attributed(_, value) => csv(out, value),
    }
}

fn json(out: &mut Vec<u8>, value: &Value, string: fn(&mut Vec<u8>, &[u8])) {
    match value {
        Value::Error(text) | Value::BulkError(text) => {
            out.extend(b"error:");
            string(out, until_nul(text));
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim { text, .. } => string(out, text),
        Value::Integer(number) => out.extend(number.to_string().bytes()),
        Value::Double(text) | Value::BigNumber(text) => out.extend(text),
        Value::Null | Value::NullBulk | Value::NullArray => out.extend(b"null"),
        Value::Boolean(value) => out.extend(value.to_string().bytes()),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            out.push(b'[');
            separated(out, items, |out, item| json(out, item, string));
            out.push(b']');
        }
        Value::Map(pairs) => {
            out.push(b'{');
            separated(out, pairs, |out, (key, value)| {
                json_key(out, key, string);
                out.push(b':');
                json(out, value, string);
            });
            out.push(b'}');
        }
        Value::Attributed(_, value) => json(out, value, string),
    }
}

/// A key of a JSON object is a string, whatever it was in the reply.
fn json_key(out: &mut Vec<u8>, key: &Value, string: fn(&mut Vec<u8>, &[u8])) {
    let mut text = Vec::new();
    json(&mut text, key, string);
    if text.starts_with(b"\"") || key.as_error().is_some() {
        out.extend(text);
    } else {
        out.push(b'"');
        out.extend(text);
        out.push(b'"');
    }
}

fn separated<T>(out: &mut Vec<u8>, items: &[T], mut each: impl FnMut(&mut Vec<u8>, &T)) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        each(out, item);
    }
}

/// `-> invalidate: 'a', 'b'`, if this is word of keys that a tracking client should forget.
pub fn invalidation(push: &Value) -> Option<Vec<u8>> {
    let Value::Push(items) = push else { return None };
    let [Value::Bulk(kind), Value::Array(keys)] = items.as_slice() else { return None };
    if !kind.starts_with(b"invalidate") {
        return None;
    }
    let mut out = b"-> invalidate: ".to_vec();
    for (i, key) in keys.iter().enumerate() {
        let Value::Bulk(key) = key else { return None };
        out.extend(if i == 0 { &b"'"[..] } else { b", '" });
        out.extend(until_nul(key));
        out.push(b'\'');
    }
    out.push(b'\n');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::reply_parse::parse_value;

    #[track_caller]
    fn check(reply: &str, expected: [&str; 5]) {
        let (value, _) = parse_value(reply.as_bytes()).unwrap().expect("a complete reply");
        let formats = [Format::Standard, Format::Raw, Format::Csv, Format::Json, Format::QuotedJson];
        for (format, expected) in formats.into_iter().zip(expected) {
            let text = String::from_utf8(Style::new(format).render(&value)).unwrap();
            assert_eq!(text, expected, "{format:?} of {reply:?}");
        }
    }

    #[test]
    fn single_values() {
        check("+OK\r\n", ["OK\n", "OK\n", "\"OK\"\n", "\"OK\"\n", "\"OK\"\n"]);
        check(
            "-ERR x\r\n",
            ["(error) ERR x\n", "ERR x\n\n", "ERROR,\"ERR x\"\n", "error:\"ERR x\"\n", "error:\"ERR x\"\n"],
        );
        check(
            "!5\r\nERR x\r\n",
            ["(error) ERR x\n", "ERR x\n\n", "ERROR,\"ERR x\"\n", "error:\"ERR x\"\n", "error:\"ERR x\"\n"],
        );
        check("|1\r\n+ttl\r\n:3\r\n:1\r\n", ["(integer) 1\n", "1\n", "1\n", "1\n", "1\n"]);
        check(":-3\r\n", ["(integer) -3\n", "-3\n", "-3\n", "-3\n", "-3\n"]);
        check("$-1\r\n", ["(nil)\n", "\n", "NULL\n", "null\n", "null\n"]);
        check("#f\r\n", ["(false)\n", "(false)\n", "false\n", "false\n", "false\n"]);
        check(",1.5\r\n", ["(double) 1.5\n", "1.5\n", "1.5\n", "1.5\n", "1.5\n"]);
        check("(12\r\n", ["(big number) 12\n", "12\n", "12\n", "12\n", "12\n"]);
        check("=6\r\ntxt:a\"\r\n", ["a\"\n", "a\"\n", "\"a\\\"\"\n", "\"a\\\"\"\n", "\"a\\\\\"\"\n"]);
    }

    #[test]
    fn lists_within_lists() {
        check("*0\r\n", ["(empty array)\n", "\n", "\n", "[]\n", "[]\n"]);
        check(
            "*2\r\n$1\r\na\r\n*2\r\n:1\r\n~1\r\n+x\r\n",
            [
                "1) \"a\"\n2) 1) (integer) 1\n   2) 1~ x\n",
                "a\n1\nx\n",
                "\"a\",1,\"x\"\n",
                "[\"a\",[1,[\"x\"]]]\n",
                "[\"a\",[1,[\"x\"]]]\n",
            ],
        );
        let ten = format!("*10\r\n{}", ":1\r\n".repeat(10));
        let text = Style::new(Format::Standard).render(&parse_value(ten.as_bytes()).unwrap().unwrap().0);
        assert!(text.starts_with(b" 1) (integer) 1\n 2)") && text.ends_with(b"10) (integer) 1\n"));
    }

    #[test]
    fn maps() {
        check("%0\r\n", ["(empty hash)\n", "\n", "\n", "{}\n", "{}\n"]);
        check(
            "%2\r\n$1\r\na\r\n*2\r\n:1\r\n:2\r\n:7\r\n$1\r\nb\r\n",
            [
                "1# \"a\" => \n   1) (integer) 1\n   2) (integer) 2\n2# (integer) 7 => \"b\"\n",
                "a 1\n2\n7 b\n",
                "\"a\",1,2,7,\"b\"\n",
                "{\"a\":[1,2],\"7\":\"b\"}\n",
                "{\"a\":[1,2],\"7\":\"b\"}\n",
            ],
        );
    }

    #[test]
    fn what_a_tracking_client_should_forget() {
        let push = |text: &[u8]| invalidation(&parse_value(text).unwrap().unwrap().0);
        assert_eq!(
            push(b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n").as_deref(),
            Some(&b"-> invalidate: 'a', 'b'\n"[..])
        );
        assert_eq!(push(b">2\r\n$10\r\ninvalidate\r\n_\r\n"), None);
    }
}
