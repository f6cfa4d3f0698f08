//! Bytes as text, in Valkey's ways: quoted and escaped, JSON, sizes for people, numbers at the front of a
//! word.

use std::fmt::Write as _;

pub use isotherm_stdx::quoted::push_quoted;

pub fn quoted(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    push_quoted(&mut out, bytes);
    String::from_utf8(out).expect("quoted text is ASCII")
}

/// A JSON string. Bytes that are no UTF-8 pass through as they are: the client that stored them knows what
/// they mean.
pub fn push_json(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for &byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            0x0c => out.extend(b"\\f"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0x08 => out.extend(b"\\b"),
            0..=0x1f => out.extend(format!("\\u{byte:04x}").bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A JSON string of ASCII alone: the quoted form with its backslashes doubled.
pub fn push_json_ascii(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in quoted(bytes).bytes() {
        if byte == b'\\' {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

/// `100B`, `1.50K`, `2.00G`; nothing from a terabyte on, as in Valkey's tool.
pub fn size_human(bytes: i64) -> String {
    let mut text = String::new();
    if bytes < 0 {
        text.push('-');
    }
    let size = bytes.unsigned_abs();
    match size {
        0..=1023 => write!(text, "{size}B"),
        1024..0x10_0000 => write!(text, "{:.2}K", size as f64 / 1024.0),
        0x10_0000..0x4000_0000 => write!(text, "{:.2}M", size as f64 / f64::from(1u32 << 20)),
        _ => write!(text, "{:.2}G", size as f64 / f64::from(1u32 << 30)),
    }
    .expect("a string takes all that is written");
    text
}

/// The whole number at the front of a word, 0 if there is none: options are read as leniently as scripts
/// expect.
pub fn leading_i64(text: &str) -> i64 {
    let text = text.trim_start();
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    let number = &text[usize::from(text.starts_with('+'))..sign + digits];
    match number.parse() {
        Ok(value) => value,
        Err(_) if digits == 0 => 0,
        Err(_) if number.starts_with('-') => i64::MIN,
        Err(_) => i64::MAX,
    }
}

/// The decimal number at the front of a word, 0 if there is none.
pub fn leading_f64(text: &str) -> f64 {
    let text = text.trim_start();
    (1..=text.len())
        .rev()
        .filter(|&end| text.is_char_boundary(end))
        .find_map(|end| text[..end].parse().ok())
        .unwrap_or(0.0)
}

/// Returns the part of the bytes that a C program would print with `%s`.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// The reason of an I/O error without the number that Rust puts after it.
pub fn reason(why: &std::io::Error) -> String {
    let text = why.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_json() {
        assert_eq!(quoted(b"a\\\"\n\r\t\x07\x08\x00\xf0z"), r#""a\\\"\n\r\t\a\b\x00\xf0z""#);
        let check = |push: fn(&mut Vec<u8>, &[u8]), bytes: &[u8], expected: &[u8]| {
            let mut out = Vec::new();
            push(&mut out, bytes);
            assert_eq!(out, expected, "{}", bytes.escape_ascii());
        };
        check(
            push_json,
            b"a\\\"\n\x0c\r\t\x08\x01\x1f\xc3\xb0",
            b"\"a\\\\\\\"\\n\\f\\r\\t\\b\\u0001\\u001f\xc3\xb0\"",
        );
        check(push_json_ascii, b"K\x00y", b"\"K\\\\x00y\"");
    }

    #[test]
    fn sizes() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (-3 << 20, "-3.00M"), (1 << 31, "2.00G")]
        {
            assert_eq!(size_human(bytes), text);
        }
    }

    #[test]
    fn numbers_at_the_front() {
        for (text, value) in [
            ("12ab", 12),
            (" -7", -7),
            ("+3", 3),
            ("x", 0),
            ("", 0),
            ("-", 0),
            ("99999999999999999999", i64::MAX),
        ] {
            assert_eq!(leading_i64(text), value, "{text:?}");
        }
        for (text, value) in [("0.1", 0.1), ("2s", 2.0), ("x", 0.0), ("", 0.0), ("1e2", 100.0)] {
            assert_eq!(leading_f64(text), value, "{text:?}");
        }
    }
}
