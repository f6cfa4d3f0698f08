//! Splitting a line into arguments: an inline request, or a line of a configuration file.
//!
//! ```text
//! set  "a \x41\n"'it\'s' plain      ->   set | a A<LF>it's | plain
//! ```
//! Blanks separate; double quotes know `\n \r \t \b \a \xHH` and `\` before anything else; single quotes know
//! `\'`. Quoted pieces may touch each other. An argument never grows, so it is decoded where it lies: an
//! inline request needs no memory besides the read buffer. The line ends early at a NUL.

use crate::number::is_c_space;

/// A quote that is opened and never closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unbalanced;

/// Rule for an escape at the very end of the line. Valkey's reader of requests demands one more byte after an
/// escape, so that `"a\"` at the end of a request is `a\` and closed, while in a file it is unbalanced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    Request,
    File,
}

/// The arguments of `line` as owned strings.
pub fn args_split(line: &[u8], dialect: Dialect) -> Result<Vec<Vec<u8>>, Unbalanced> {
    let mut copy = line.to_vec();
    let mut spans = Vec::new();
    split_in_place(&mut copy, dialect, |start, length| spans.push(start..start + length))?;
    Ok(spans.into_iter().map(|span| copy[span].to_vec()).collect())
}

/// Decodes every argument within `line` and reports its start and length.
pub fn split_in_place(
    line: &mut [u8],
    dialect: Dialect,
    mut found: impl FnMut(usize, usize),
) -> Result<(), Unbalanced> {
    let end = line.iter().position(|&byte| byte == 0).unwrap_or(line.len());
    let line = &mut line[..end];
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|&&byte| is_c_space(byte)).count();
        if at == line.len() {
            return Ok(());
        }
        let start = at;
        let length;
        (at, length) = decode_argument(line, start, dialect)?;
        found(start, length);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// Decodes the argument that begins at `start` onto itself; gives the place after it and its decoded length.
fn decode_argument(line: &mut [u8], start: usize, dialect: Dialect) -> Result<(usize, usize), Unbalanced> {
    let escapes_end = line.len() - usize::from(dialect == Dialect::Request && !line.is_empty());
    let (mut at, mut write) = (start, start);
    let mut quote = Quote::None;
    while at < line.len() {
        let byte = line[at];
        let (decoded, width) = match (quote, byte) {
            (Quote::None, b' ' | b'\n' | b'\r' | b'\t') => return Ok((at + 1, write - start)),
            (Quote::None, b'"') => {
                quote = Quote::Double;
                (None, 1)
            }
            (Quote::None, b'\'') => {
                quote = Quote::Single;
                (None, 1)
            }
            (Quote::Double, b'"') | (Quote::Single, b'\'') => {
                quote = Quote::None;
                (None, 1)
            }
            (Quote::Double, b'\\') => decode_escape(&line[at..escapes_end.max(at)]),
            (Quote::Single, b'\\') if line[at..escapes_end.max(at)].starts_with(b"\\'") => (Some(b'\''), 2),
            _ => (Some(byte), 1),
        };
        at += width;
        if let Some(byte) = decoded {
            line[write] = byte;
            write += 1;
        }
    }
    if quote == Quote::None { Ok((at, write - start)) } else { Err(Unbalanced) }
}

/// An escape inside double quotes. A backslash with nothing after it stands for itself.
fn decode_escape(rest: &[u8]) -> (Option<u8>, usize) {
    match *rest {
        [_, b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (Some(hex_value(high) * 16 + hex_value(low)), 4)
        }
        [_, b'n', ..] => (Some(b'\n'), 2),
        [_, b'r', ..] => (Some(b'\r'), 2),
        [_, b't', ..] => (Some(b'\t'), 2),
        [_, b'b', ..] => (Some(0x08), 2),
        [_, b'a', ..] => (Some(0x07), 2),
        [_, other, ..] => (Some(other), 2),
        _ => (Some(b'\\'), 1),
    }
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        for dialect in [Dialect::Request, Dialect::File] {
            let args = args_split(line.as_bytes(), dialect).unwrap();
            let expected: Vec<Vec<u8>> = expected.iter().map(|arg| arg.as_bytes().to_vec()).collect();
            assert_eq!(args, expected, "{line:?}");
        }
    }

    #[test]
    fn plain_lines() {
        check("", &[]);
        check("   \t ", &[]);
        check("ping", &["ping"]);
        check("  set  a\tb\r", &["set", "a", "b"]);
        check("a\x0bb", &["a\x0bb"]);
        check("\x0ba", &["a"]);
        check("a\0b", &["a"]);
    }

    #[test]
    fn quotes() {
        check("\"\"", &[""]);
        check("'' x", &["", "x"]);
        check("set \"\"\"tes\"t-'k'e\"y\" \"test\"'-'value", &["set", "test-key", "test-value"]);
        check("\"a\\x41\\n\\r\\t\\b\\a\\q\\\\\" z", &["aA\n\r\t\x08\x07q\\", "z"]);
        check("\"\\xzz\" z", &["xzz", "z"]);
        check("'it\\'s \\n' z", &["it's \\n", "z"]);
        check("a\\nb", &["a\\nb"]);
        assert_eq!(args_split(b"\"\\xff\" ", Dialect::File), Ok(vec![vec![0xff]]));
    }

    #[test]
    fn unbalanced_quotes() {
        for line in ["\"", "'", "set foo \"b\"a\"r", "set foo 'b'a'r", "\"abc", "a\"\0\"", "\"\\"] {
            for dialect in [Dialect::Request, Dialect::File] {
                assert_eq!(args_split(line.as_bytes(), dialect), Err(Unbalanced), "{line:?}");
            }
        }
    }

    #[test]
    fn an_escape_at_the_very_end_depends_on_the_dialect() {
        assert_eq!(args_split(b"\"a\\\"", Dialect::Request), Ok(vec![b"a\\".to_vec()]));
        assert_eq!(args_split(b"\"a\\\"", Dialect::File), Err(Unbalanced));
        assert_eq!(args_split(b"'a\\'", Dialect::Request), Ok(vec![b"a\\".to_vec()]));
        assert_eq!(args_split(b"'a\\'", Dialect::File), Err(Unbalanced));
    }

    #[test]
    fn any_bytes_decode_without_panic_and_without_growing() {
        let mut prng = Prng::new(9);
        for _ in 0..100_000 {
            let alphabet = b"ab \"'\\x4\0\n\xff";
            let line: Vec<u8> = (0..prng.below(16)).map(|_| *prng.pick(alphabet)).collect();
            for dialect in [Dialect::Request, Dialect::File] {
                if let Ok(args) = args_split(&line, dialect) {
                    assert!(args.iter().map(Vec::len).sum::<usize>() <= line.len());
                }
            }
        }
    }
}
