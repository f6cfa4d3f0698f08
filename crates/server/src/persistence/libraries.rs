//! Libraries of functions, as their text. There is no engine to run them yet: what a file brings is kept, and written again.
//!
//! ```text
//!   #!lua name=mylib\n ...code...         the first line is the engine, and the name under which the library is kept
//!
//!   RDB file, FUNCTION LOAD of an AOF --> Libraries --> RDB file, base of an AOF (as RDB, or FUNCTION LOAD)
//! ```
//! The code is not looked at: what is written is what was read, byte for byte. It changes only while data is loaded.
//!
//! **Invariants.** `bytes` is the sum of names and texts; no two libraries have the same name.

use isotherm_persist::Limits;
use isotherm_persist::rdb::file::{FileReader, FileVersion, Item, Options, Step};
use isotherm_stdx::crc64::crc64;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One library: all of its text.
pub type Code = Arc<[u8]>;

#[derive(Default)]
pub struct Libraries {
    by_name: Mutex<BTreeMap<Vec<u8>, Code>>,
    bytes: AtomicU64,
}

/// Why a library is not kept. Valkey's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    NoHeader,
    NoName,
    BadName,
    Repeated(Vec<u8>),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::NoHeader => f.write_str("Missing library metadata"),
            Refused::NoName => f.write_str("Library name was not given"),
            Refused::BadName => f.write_str(
                "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
            ),
            Refused::Repeated(name) => write!(f, "Library '{}' already exists", name.escape_ascii()),
        }
    }
}

impl Libraries {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Code>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a library. `replaces`: in the place of one of the same name.
    pub fn add(&self, code: &[u8], replaces: bool) -> Result<(), Refused> {
        let name = name_of(code)?;
        let mut by_name = self.lock();
        if !replaces && by_name.contains_key(name) {
            return Err(Refused::Repeated(name.to_vec()));
        }
        if let Some(old) = by_name.insert(name.to_vec(), code.into()) {
            self.bytes.fetch_sub(bytes_of(name, &old), Relaxed);
        }
        self.bytes.fetch_add(bytes_of(name, code), Relaxed);
        Ok(())
    }

    pub fn remove(&self, name: &[u8]) {
        if let Some(old) = self.lock().remove(name) {
            self.bytes.fetch_sub(bytes_of(name, &old), Relaxed);
        }
    }

    pub fn clear(&self) {
        self.lock().clear();
        self.bytes.store(0, Relaxed);
    }

    pub fn all(&self) -> Vec<Code> {
        self.lock().values().cloned().collect()
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

/// What the allocator gives for them.
fn bytes_of(name: &[u8], code: &[u8]) -> u64 {
    /// The two counts of an `Arc`.
    const COUNTS: usize = 2 * size_of::<usize>();
    let class = isotherm_allocator::class_bytes;
    (class(name.len()) + class(code.len() + COUNTS)) as u64
}

/// The name in the first line, `#!ENGINE name=NAME`.
fn name_of(code: &[u8]) -> Result<&[u8], Refused> {
    let line = code.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_prefix(b"#!").ok_or(Refused::NoHeader)?;
    if line.len() == code.len() - 2 {
        // Nothing follows it.
        return Err(Refused::NoHeader);
    }
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).skip(1);
    let is_name = |word: &&[u8]| word.len() >= 5 && word[..5].eq_ignore_ascii_case(b"name=");
    let name = &words.find(is_name).ok_or(Refused::NoName)?[5..];
    let is_sound = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if name.is_empty() || !name.iter().all(is_sound) {
        return Err(Refused::BadName);
    }
    Ok(name)
}

/// The libraries of a payload of FUNCTION DUMP: the body of a file that has nothing else, and the footer of DUMP.
pub fn of_payload(payload: &[u8]) -> Option<Vec<Vec<u8>>> {
    const FOOTER_BYTES: usize = 10;
    const END: u8 = 255;
    let body = payload.len().checked_sub(FOOTER_BYTES)?;
    let sum = crc64(0, &payload[..payload.len() - 8]).to_le_bytes();
    if sum != payload[payload.len() - 8..] {
        return None;
    }
    let options = Options { limits: Limits::default(), strict_version: false, checksum: false };
    let mut reader = FileReader::new(options);
    let head = FileVersion::PLAIN.magic();
    [&head[..], &payload[..body], &[END], &[0; 8]].into_iter().for_each(|part| reader.feed(part));
    let mut all = Vec::new();
    loop {
        match reader.step().ok()? {
            Step::Item(Item::Function(code)) => all.push(code.to_vec()),
            Step::End => return Some(all),
            Step::Item(Item::NoChecksum) => {}
            Step::NeedsMore | Step::Item(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_kept_under_the_name_of_its_first_line() {
        let check = |code: &str, expected: Result<&str, Refused>| {
            assert_eq!(name_of(code.as_bytes()).map(|name| std::str::from_utf8(name).unwrap()), expected);
        };
        check("#!lua name=my_lib1\nreturn 1", Ok("my_lib1"));
        check("#!LUA   NAME=a\n", Ok("a"));
        check("#!js engine=7 name=b \r\nx", Ok("b"));
        check("return 1", Err(Refused::NoHeader));
        check("#!lua name=a", Err(Refused::NoHeader));
        check("#!lua\nreturn", Err(Refused::NoName));
        check("#!lua name=\nreturn", Err(Refused::BadName));
        check("#!lua name=a-b\nreturn", Err(Refused::BadName));
        check("", Err(Refused::NoHeader));
    }

    #[test]
    fn their_bytes_are_counted() {
        let libraries = Libraries::default();
        let (first, second) = (b"#!lua name=a\nreturn 1", b"#!lua name=a\nreturn 1 + 2 + 3 + 4 + 5 + 6");
        libraries.add(first, false).unwrap();
        assert_eq!(libraries.add(second, false), Err(Refused::Repeated(b"a".to_vec())));
        assert_eq!(libraries.all(), [Code::from(&first[..])]);
        let small = libraries.bytes();
        libraries.add(second, true).unwrap();
        assert!(libraries.count() == 1 && libraries.bytes() > small);
        libraries.add(b"#!lua name=b\n\n", false).unwrap();
        libraries.remove(b"a");
        libraries.remove(b"none");
        assert_eq!(libraries.count(), 1);
        libraries.remove(b"b");
        assert_eq!(libraries.bytes(), 0);
        libraries.add(first, false).unwrap();
        libraries.clear();
        assert_eq!((libraries.count(), libraries.bytes()), (0, 0));
    }
}
