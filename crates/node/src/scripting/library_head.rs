//! The first line of a library of functions: `#!lua name=mylib`.
//!
//! Words of the line may be quoted, as those of an inline request. Code and line end at a NUL, as in Valkey.

use isotherm_resp::errors;
use isotherm_stdx::args_split::{Dialect, args_split};

/// Why a library is not kept. Valkey's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused(pub Vec<u8>);

impl Refused {
    pub fn new(text: impl Into<Vec<u8>>) -> Refused {
        Refused(text.into())
    }

    /// `before`, a name, `behind`.
    pub fn about(before: &str, name: &[u8], behind: &str) -> Refused {
        Refused(errors::with_bytes(before, name, behind))
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// Name from the first line, and the code after it. The code begins with the end of that line, so that lines
/// keep their numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LibraryHead<'a> {
    pub name: Vec<u8>,
    pub code: &'a [u8],
}

/// Names of libraries and of functions.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

pub fn read(text: &[u8]) -> Result<LibraryHead<'_>, Refused> {
    const INVALID: &str = "Invalid library metadata";
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if !text.starts_with(b"#!") {
        return Err(Refused::new("Missing library metadata"));
    }
    let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(|| Refused::new(INVALID))?;
    let words = args_split(&text[..end], Dialect::Request).map_err(|_| Refused::new(INVALID))?;
    let (engine, options) = words.split_first().ok_or_else(|| Refused::new(INVALID))?;
    let name = name_of(options)?;
    if !is_name(&name) {
        return Err(Refused::new(
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ));
    }
    let engine = engine.get(2..).unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(Refused::about("Engine '", engine, "' not found"));
    }
    Ok(LibraryHead { name, code: &text[end..] })
}

fn name_of(options: &[Vec<u8>]) -> Result<Vec<u8>, Refused> {
    const KEY: &[u8] = b"name=";
    let mut name = None;
    for option in options {
        match option.split_at_checked(KEY.len()) {
            Some((key, value)) if key.eq_ignore_ascii_case(KEY) => {
                if name.replace(value.to_vec()).is_some() {
                    return Err(Refused::new(
                        "Invalid metadata value, name argument was given multiple times",
                    ));
                }
            }
            _ => return Err(Refused::about("Invalid metadata value given: ", option, "")),
        }
    }
    name.ok_or_else(|| Refused::new("Library name was not given"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First lines are read or refused as Valkey 9.1.2 has answered.
    #[test]
    fn first_lines() {
        let check = |text: &str, expected: Result<(&str, &str), &str>| {
            let head = read(text.as_bytes());
            let head = head
                .as_ref()
                .map(|head| (head.name.as_slice(), head.code))
                .map_err(std::string::ToString::to_string);
            let expected = expected.map(|(name, code)| (name.as_bytes(), code.as_bytes()));
            assert_eq!(head, expected.map_err(str::to_owned), "{text:?}");
        };
        check("#!lua name=my_lib1\nreturn 1", Ok(("my_lib1", "\nreturn 1")));
        check("#!LUA   NAME=a \r\n", Ok(("a", "\n")));
        check("#!lua 'name=q'\nx\0y", Ok(("q", "\nx")));
        check("#!lua \"name=q\n", Err("Invalid library metadata"));
        check("return 1", Err("Missing library metadata"));
        check("", Err("Missing library metadata"));
        check("#!lua", Err("Invalid library metadata"));
        check("#!lua name=a", Err("Invalid library metadata"));
        check("#!lua name=a\0\n", Err("Invalid library metadata"));
        check("#!lua\n", Err("Library name was not given"));
        check("#!\n", Err("Library name was not given"));
        check("#! name=a\n", Err("Engine '' not found"));
        check("#!js name=a\n", Err("Engine 'js' not found"));
        check("#!lua name=a name=b\n", Err("Invalid metadata value, name argument was given multiple times"));
        check("#!lua foo=b\n", Err("Invalid metadata value given: foo=b"));
        let bad = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";
        check("#!lua name=\n", Err(bad));
        check("#!lua name=a-b\n", Err(bad));
    }
}
