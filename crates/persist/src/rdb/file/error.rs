//! Why a file can't be read: what is wrong, and where.

use std::fmt;

use super::super::read::RdbError;
use super::version::{FileVersion, MAGIC_BYTES};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// Offset at which the unreadable part begins.
    pub offset: u64,
    pub db: u64,
    /// The key whose value it is.
    pub key: Option<Vec<u8>>,
    pub cause: FileCause,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileCause {
    Signature([u8; MAGIC_BYTES]),
    Version(FileVersion),
    /// Reference to values that the file does not contain, although the file is to be read by itself.
    Refers,
    /// The whole file is compressed in a way that is not read.
    Envelope,
    Value(RdbError),
    /// A type of the other line, or of no known one.
    UnreadType {
        code: u8,
        name: Option<&'static str>,
        version: FileVersion,
    },
    /// Data of a module outside of the keys.
    ModuleAux(String),
    /// Functions as a release candidate wrote them.
    OldFunctions,
    SlotImport,
    KeyMetadata,
    SlotInfo,
    Checksum {
        stored: u64,
        computed: u64,
    },
}

impl From<RdbError> for FileCause {
    fn from(error: RdbError) -> FileCause {
        FileCause::Value(error)
    }
}

impl FileError {
    /// The file ends before its end.
    pub fn is_short(&self) -> bool {
        self.cause == FileCause::Value(RdbError::Short)
    }
}

/// Writes Valkey's words where it has some. Omits the key, which not every reader may see.
impl fmt::Display for FileCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileCause::Signature(found) => {
                write!(f, "Wrong signature trying to load DB from file: {}", found.escape_ascii())
            }
            FileCause::Refers => f.write_str(
                "The file refers to values in a swap-dir (it is the base of an append-only file with swap-checkpoint yes), and is \
                 no complete RDB file",
            ),
            FileCause::Version(version) if version.references > 0 => write!(
                f,
                "Can't handle a base that refers to the swap log in version {} of the format",
                version.references
            ),
            FileCause::Version(version) => write!(f, "Can't handle RDB format version {}", version.number),
            FileCause::Envelope => f.write_str(
                "The RDB file is compressed as a whole (rdbcompression lz4), which is not supported",
            ),
            FileCause::Value(RdbError::Short) => f.write_str("Unexpected EOF reading RDB file"),
            FileCause::Value(RdbError::Corrupt(what)) => f.write_str(what),
            FileCause::Value(RdbError::Empty) => f.write_str("A collection without elements"),
            FileCause::Value(RdbError::UnknownType(code)) => write!(f, "Unknown RDB encoding type {code}"),
            FileCause::Value(RdbError::Module(name)) => {
                write!(f, "The RDB file contains module data I can't load: no matching module type '{name}'")
            }
            FileCause::Value(RdbError::TooLarge) => f.write_str("A string that is too long"),
            FileCause::UnreadType { code, name: Some(name), version } => write!(
                f,
                "Can't handle foreign type or opcode {code} ({name}) in RDB with version {}",
                version.number
            ),
            FileCause::UnreadType { code, name: None, version } if !version.is_valkey && *code >= 22 => {
                write!(f, "Can't handle foreign type or opcode {code} in RDB with version {}", version.number)
            }
            FileCause::UnreadType { code, .. } => write!(f, "Unknown RDB encoding type {code}"),
            FileCause::ModuleAux(name) => {
                write!(f, "The RDB file contains AUX module data I can't load: no matching module '{name}'")
            }
            FileCause::OldFunctions => f.write_str("Pre-release function format not supported."),
            FileCause::SlotImport => {
                f.write_str("The RDB file contains a slot import, which needs a cluster")
            }
            FileCause::KeyMetadata => f.write_str("The RDB file contains key metadata of Redis 8 modules"),
            FileCause::SlotInfo => f.write_str("Corrupt slot-info"),
            FileCause::Checksum { stored, computed } => {
                write!(f, "Wrong RDB checksum expected: ({computed:x}) but got ({stored:x}). Aborting now.")
            }
        }
    }
}
