//! The first nine bytes: which line of the format, and which version.

use isotherm_stdx::format::{FormatPart, number, text};

use super::super::kind::{self, RdbType};
use super::head::{KEY_SECRET_BYTES, LOG_MARK, SWAP_KEY_SECRET, SWAP_LOG};

pub const MAGIC_BYTES: usize = 9;

const VALKEY_MIN: u16 = 80;
/// The last one of the other line whose opcodes are known.
const REDIS_READ: u16 = 14;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileVersion {
    pub number: u16,
    /// The file begins with `VALKEY`, or refers to values elsewhere.
    pub is_valkey: bool,
    /// Form of the references to values elsewhere; 0 for a file that has all values.
    pub references: u8,
}

const REFERRING_LINE: &[u8] = b"ISOTHERM";
/// Values lie elsewhere.
const REFERENCES: u8 = 1;
/// Keys too.
const REFERENCES_TO_BUNDLES: u8 = 2;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "RDB head",
    &[
        ("magic and version", number(MAGIC_BYTES)),
        ("version: plain", number(kind::VERSION_PLAIN as usize)),
        ("version: field times", number(kind::VERSION_FIELD_EXPIRY as usize)),
        ("magic of a file that refers", text(REFERRING_LINE)),
        ("refers to values", number(REFERENCES as usize)),
        ("refers to values and keys", number(REFERENCES_TO_BUNDLES as usize)),
        ("field: log of values", text(SWAP_LOG.as_bytes())),
        ("field: secret of the key hash", text(SWAP_KEY_SECRET.as_bytes())),
        ("field: number of the log", text(LOG_MARK.as_bytes())),
        ("secret of the key hash", number(KEY_SECRET_BYTES)),
    ],
);

impl FileVersion {
    /// Every Valkey, and Redis since 7.2, reads it.
    pub const PLAIN: FileVersion =
        FileVersion { number: kind::VERSION_PLAIN, is_valkey: false, references: 0 };
    /// Hashes whose fields expire need this one: Valkey from 9.0 on.
    pub const FIELD_EXPIRY: FileVersion =
        FileVersion { number: kind::VERSION_FIELD_EXPIRY, is_valkey: true, references: 0 };
    /// Version for files with keys whose values lie in the swap log. No RDB file has its first bytes, so a
    /// reader of plain files refuses it at once.
    pub const REFERRING: FileVersion = FileVersion { references: REFERENCES, ..FileVersion::FIELD_EXPIRY };

    /// Version for files with keys that lie in the swap log themselves. A reader that knows only values there
    /// refuses it at its first bytes.
    pub const REFERRING_TO_BUNDLES: FileVersion =
        FileVersion { references: REFERENCES_TO_BUNDLES, ..FileVersion::FIELD_EXPIRY };

    /// Returns whether keys may lie elsewhere with their values.
    pub fn has_bundles(self) -> bool {
        self.references >= REFERENCES_TO_BUNDLES
    }

    pub fn magic(self) -> [u8; MAGIC_BYTES] {
        let text = match (self.references, self.is_valkey) {
            (0, false) => format!("REDIS0{:03}", self.number),
            (0, true) => format!("VALKEY{:03}", self.number),
            (references, _) => format!("ISOTHERM{references}"),
        };
        *text.as_bytes().first_chunk().expect("nine letters and digits")
    }

    /// Returns the version that the first bytes of a file state; `None` if no such file begins with them.
    pub fn of_magic(magic: &[u8; MAGIC_BYTES]) -> Option<FileVersion> {
        if let Some(&[digit @ b'1'..=b'9']) = magic.strip_prefix(REFERRING_LINE) {
            return Some(FileVersion { references: digit - b'0', ..FileVersion::FIELD_EXPIRY });
        }
        let (line, digits) = magic.split_at(6);
        let is_valkey = match line {
            b"REDIS0" => false,
            b"VALKEY" => true,
            _ => return None,
        };
        let number = digits.iter().try_fold(0u16, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u16::from(digit - b'0'))
        })?;
        Some(FileVersion { number, is_valkey, references: 0 })
    }

    /// `strict`: later versions are refused. Without it they are tried (`rdb-version-check relaxed`).
    pub fn is_readable(self, strict: bool) -> bool {
        if self.references > REFERENCES_TO_BUNDLES {
            return false;
        }
        // COMPAT(persistence): RDB files of versions 12 to 14 are loaded too, as far as they hold nothing
        // that only Redis knows. Why: data can move over from Redis 7.4 and later.
        match self.is_valkey {
            true => self.number >= VALKEY_MIN && (!strict || self.number == VALKEY_MIN),
            false => self.number >= 1 && self.number < VALKEY_MIN && (!strict || self.number <= REDIS_READ),
        }
    }

    pub fn has_checksum(self) -> bool {
        self.number >= 5
    }

    pub fn type_of(self, code: u8) -> Option<RdbType> {
        let kind = RdbType::new(code, self.number)?;
        let is_common = code < RdbType::Hash2 as u8;
        (is_common || self.is_valkey || kind::is_foreign(self.number)).then_some(kind)
    }

    /// Returns the name of a type that is not read.
    pub fn name_of_unread(self, code: u8) -> Option<&'static str> {
        match code {
            _ if self.is_valkey => None,
            22 | 23 => Some("hash with field expiry of a Redis 7.4 release candidate"),
            24 | 25 => Some("hash with field expiry of Redis 7.4"),
            26 => Some("stream with idempotent producers of Redis 8"),
            27 => Some("stream with negative acknowledgements of Redis 8"),
            28 => Some("array of Redis 8"),
            100..=121 => Some("a type or opcode of Redis Enterprise"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_read_back() {
        for (version, magic) in [
            (FileVersion::PLAIN, b"REDIS0011"),
            (FileVersion::FIELD_EXPIRY, b"VALKEY080"),
            (FileVersion::REFERRING, b"ISOTHERM1"),
            (FileVersion::REFERRING_TO_BUNDLES, b"ISOTHERM2"),
        ] {
            assert_eq!(version.magic(), *magic);
            assert_eq!(FileVersion::of_magic(magic), Some(version));
        }
        for magic in [
            b"REDIS1011",
            b"REDIS00x1",
            b"VALKEY08 ",
            b"redis0011",
            b"ISOTHERM0",
            b"ISOTHERMx",
            b"*1\r\n$4\r\nP",
        ] {
            assert_eq!(FileVersion::of_magic(magic), None);
        }
        let readable = |magic: &[u8; 9], strict| FileVersion::of_magic(magic).unwrap().is_readable(strict);
        for magic in [b"REDIS0001", b"REDIS0014", b"VALKEY080"] {
            assert!(readable(magic, true));
        }
        for magic in [b"REDIS0000", b"VALKEY079", b"REDIS0080", b"ISOTHERM3"] {
            assert!(!readable(magic, false));
        }
        for magic in [b"REDIS0015", b"VALKEY081"] {
            assert!(!readable(magic, true) && readable(magic, false));
        }
    }
}
