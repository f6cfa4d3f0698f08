//! Source text without what is not code: comments, the contents of strings, and items that only tests have.
//!
//! Text that is left out becomes blanks of the same length, so that places and line numbers stay what they
//! were. This is no parser: it knows where a comment, a string, a character and a block end, which is all
//! that a search for names needs.

use super::File;

/// The sources of the crates as code alone, and the manifests as they are.
pub fn files(files: &[File]) -> Vec<File> {
    let ours = files.iter().filter(|file| file.path.starts_with("crates/"));
    ours.filter_map(|file| {
        let text = match file.path.rsplit('.').next()? {
            "rs" if file.path.contains("/src/") => code(&file.text),
            "toml" => file.text.clone(),
            _ => return None,
        };
        Some(File { path: file.path.clone(), text })
    })
    .collect()
}

/// The code of a file: comments, strings, characters and `#[cfg(test)]` items are blank.
pub fn code(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    blank_texts(&mut bytes, |_| true);
    blank_tests(&mut bytes);
    String::from_utf8(bytes).expect("blanks stand for whole characters")
}

/// Returns the parts of a file that are written for readers, names and comments: strings and characters are
/// blank.
pub fn names_and_comments(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    blank_texts(&mut bytes, |text| !text.starts_with(b"//") && !text.starts_with(b"/*"));
    String::from_utf8(bytes).expect("blanks stand for whole characters")
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// Blanks comments, strings and characters, as far as `is_blanked`.
fn blank_texts(bytes: &mut [u8], is_blanked: fn(&[u8]) -> bool) {
    let mut at = 0;
    while at < bytes.len() {
        let end = text_end(bytes, at);
        match end {
            Some(end) => {
                if is_blanked(&bytes[at..end]) {
                    blank(&mut bytes[at..end]);
                }
                at = end;
            }
            // The `r` of a raw string begins a text; the `r` that ends a name does not.
            None if is_name(bytes[at]) => at += name_length(&bytes[at..]),
            None => at += 1,
        }
    }
}

/// The end of the comment, string or character that begins at `at`, if one does.
fn text_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(at + block_comment_length(rest));
    }
    let prefix = rest.iter().take_while(|byte| matches!(byte, b'b' | b'c' | b'r')).count();
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let raw = rest[..prefix].contains(&b'r');
    let quote = prefix + if raw { hashes } else { 0 };
    match rest.get(quote) {
        Some(b'"') if prefix <= 2 && raw => Some(at + quote + 1 + raw_length(&rest[quote + 1..], hashes)),
        Some(b'"') if prefix <= 1 => Some(at + quote + 1 + escaped_length(&rest[quote + 1..], b'"')),
        Some(b'\'') if prefix <= 1 && !raw => {
            character_length(&rest[quote..]).map(|length| at + quote + length)
        }
        _ => None,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Returns the length of a raw string after its opening quote, its closing quote and hashes included.
fn raw_length(rest: &[u8], hashes: usize) -> usize {
    let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    rest.windows(closing.len()).position(|part| part == closing).map_or(rest.len(), |at| at + closing.len())
}

/// Returns the length of a string after its opening quote, the closing one included; a backslash takes the
/// next byte with it.
fn escaped_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character in quotes; none for a lifetime.
fn character_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return Some(1 + escaped_length(&rest[1..], b'\''));
    }
    // One character, of up to four bytes.
    (3..=6)
        .find(|end| rest.get(end - 1) == Some(&b'\''))
        .filter(|end| std::str::from_utf8(&rest[1..end - 1]).is_ok_and(|inner| inner.chars().count() == 1))
}

/// Blanks each item under `#[cfg(test)]`: to the end of its block, or to its semicolon.
fn blank_tests(bytes: &mut [u8]) {
    let mut from = 0;
    while let Some(found) = find(&bytes[from..], b"#[cfg(") {
        let at = from + found;
        let condition = &bytes[at + 6..];
        if condition.starts_with(b"test)") || condition.starts_with(b"all(test") {
            let end = at + item_length(&bytes[at..]);
            blank(&mut bytes[at..end]);
        }
        from = at + 6;
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|part| part == what)
}

/// An item with its attributes: to the brace that closes its first block, or to a semicolon or comma before
/// any.
pub fn item_length(rest: &[u8]) -> usize {
    let mut depth = 0;
    for (at, byte) in rest.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' => depth -= 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b';' | b',' if depth == 0 => return at + 1,
            _ => {}
        }
        if depth < 0 {
            // The block around the item ends: a last field or match arm.
            return at;
        }
    }
    rest.len()
}

pub fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 128
}

pub fn name_length(rest: &[u8]) -> usize {
    rest.iter().take_while(|byte| is_name(**byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(code: &str) -> Vec<&str> {
        code.split(|c: char| !c.is_alphanumeric()).filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn comments_strings_and_characters_are_blank() {
        let text = "a(\"x \\\" // y\", 'c', '\\'', b'\"') /* in /* out */ */ + r#\"b \"quoted\" \"# // rest\n&'life T";
        let code = code(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(names(&code), ["a", "life", "T"]);
    }

    #[test]
    fn what_only_tests_have_is_blank() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c(); }\n}\n#[cfg(test)]\nmod d;\nstruct E { #[cfg(test)] f: u8 }\nfn g() {}";
        let code = code(text);
        assert_eq!(names(&code), ["fn", "a", "struct", "E", "fn", "g"]);
        assert_eq!(code.lines().count(), text.lines().count());
    }
}
