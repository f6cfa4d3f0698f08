//! Log lines about a file: the notes of its writer, and the reason why it cannot be loaded. The lines are
//! Valkey's.

use isotherm_codec::LoadError;
use isotherm_keyspace::{BuildError, Db};
use isotherm_persist::rdb::file::{FileCause, FileError};
use isotherm_persist::rdb::{RdbError, is_foreign};
use isotherm_stdx::parse_i64;
use std::sync::atomic::Ordering::Relaxed;

use super::gathering::NotStored;
use super::{Counts, LoadFailure};
use isotherm_node::persistence::Store;
use isotherm_node::scripting::library_head::Refused;
use isotherm_runtime::log;
use isotherm_runtime::time::unix_now;

/// Skipped keys that are named in the log.
const EMPTY_NAMED_MAX: u64 = 10;

/// Log lines and errors of one load.
pub struct Texts {
    pub store: Store<'static>,
    /// Name of the file.
    pub name: String,
}

pub fn log_counts(counts: &Counts) {
    let Counts { loaded, expired, empty, fields_expired, .. } = counts;
    let empty = if *empty > 0 { format!(" empty keys skipped: {empty},") } else { String::new() };
    log::notice(format!(
        "Done loading RDB, keys loaded: {loaded}, keys expired: {expired},{empty} all fields expired hashes: \
         {fields_expired}."
    ));
}

impl Texts {
    pub fn note_aux(&self, name: &[u8], value: &[u8]) {
        let shown = value.escape_ascii();
        match name.to_ascii_lowercase().as_slice() {
            b"redis-ver" => log::notice(format!("Loading RDB produced by Redis version {shown}")),
            b"valkey-ver" => log::notice(format!("Loading RDB produced by Valkey version {shown}")),
            b"ctime" => {
                let created = parse_i64(value).unwrap_or_default();
                let age = (unix_now().0 / 1000).saturating_sub(created).max(0);
                log::notice(format!("RDB age {age} seconds"));
            }
            b"used-mem" => {
                let bytes = parse_i64(value).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default();
                self.store.state.loading.used_memory_bytes.store(bytes, Relaxed);
                log::notice(format!(
                    "RDB memory usage when created {:.2} Mb",
                    bytes as f64 / (1 << 20) as f64
                ));
            }
            b"aof-base" if value == b"1" => log::notice("RDB is base AOF"),
            b"aof-preamble" if value == b"1" => log::notice("RDB has an AOF tail"),
            _ if name.starts_with(b"%") => log::notice(format!("RDB '{}': {shown}", name.escape_ascii())),
            _ => {}
        }
    }

    /// Logs that a key without elements was skipped, unless too many were. `count` were so far, this one
    /// included.
    pub fn note_empty(&self, count: u64, name: &[u8]) {
        if count <= EMPTY_NAMED_MAX {
            let name = self.name_of(name).map_or(String::new(), |name| format!(": {name}"));
            log::notice(format!("rdbLoadObject skipping empty key{name}"));
        }
    }

    /// A library of functions.
    pub fn failure_of_library(&self, why: &Refused) -> LoadFailure {
        LoadFailure(vec![format!("Failed creating the library: {why} ({})", self.name)])
    }

    /// A reference that the log has nothing for.
    pub fn failure_of_reference(&self, db: Db, name: &[u8]) -> LoadFailure {
        let of_key = self.of_key(u64::from(db.0), Some(name));
        LoadFailure(vec![format!(
            "A reference to a value that the swap log does not have ({}{of_key})",
            self.name
        )])
    }

    /// Returns the failure for a reference to keys that the swap log does not have.
    pub fn failure_of_bundle(&self, db: Db) -> LoadFailure {
        LoadFailure(vec![format!(
            "A reference to keys that the swap log does not have, or that no server writes ({}, database {})",
            self.name, db.0
        )])
    }

    /// A key's name, unless it is to stay out of the log.
    fn name_of(&self, name: &[u8]) -> Option<String> {
        (!self.store.config.hides_user_data()).then(|| name.escape_ascii().to_string())
    }

    fn of_key(&self, db: u64, name: Option<&[u8]>) -> String {
        match name.map(|name| self.name_of(name)) {
            Some(Some(name)) => format!(", key '{name}' in DB {db}"),
            Some(None) => format!(", a key in DB {db}"),
            None => String::new(),
        }
    }

    pub fn failure_of(&self, error: &FileError) -> LoadFailure {
        let path = &self.name;
        if let FileCause::Signature(_) | FileCause::Version(_) | FileCause::Envelope = error.cause {
            return LoadFailure(vec![format!("{} ({path})", error.cause)]);
        }
        let FileError { offset, cause, .. } = error;
        let mut lines = Vec::new();
        match cause {
            FileCause::Value(RdbError::Short) => {
                lines.push("Short read or OOM loading DB. Unrecoverable error, aborting now.".to_string());
            }
            FileCause::Checksum { .. } => lines.push(format!("RDB CRC error: {cause}")),
            _ => {}
        }
        let of_key = self.of_key(error.db, error.key.as_deref());
        lines.push(format!("Internal error in RDB reading offset {offset}, file {path}{of_key} -> {cause}"));
        if let FileCause::UnreadType { name: None, version, .. } = cause
            && (version.is_valkey || !is_foreign(version.number))
        {
            let line = "Unknown type or opcode when loading DB. Unrecoverable error, aborting now.";
            lines.push(line.to_string());
        }
        if let FileCause::Value(RdbError::Corrupt(_)) = cause {
            // As `check-rdb` shows it, which Valkey runs here.
            lines.push(format!("[offset {offset}] {cause}"));
            lines.push("Terminating server after rdb file reading failure.".to_string());
        }
        LoadFailure(lines)
    }

    /// Returns the failure for a key that was gathered.
    pub fn failure_to_build(&self, NotStored { db, error }: NotStored) -> LoadFailure {
        match error {
            BuildError::Repeated(name) => self.failure_to_store(db, &name, LoadError::RepeatedKey),
            // It is not known which key found no room.
            BuildError::Full => self.failure_to_store(db, b"", LoadError::Full),
        }
    }

    pub fn failure_to_store(&self, db: Db, name: &[u8], error: LoadError) -> LoadFailure {
        let (path, db) = (&self.name, u64::from(db.0));
        let key = self.of_key(db, Some(name));
        let what = match error {
            LoadError::RepeatedKey => match self.name_of(name) {
                Some(name) => format!("RDB has duplicated key '{name}' in DB {db}"),
                None => format!("RDB has duplicated key in DB {db}"),
            },
            LoadError::RepeatedElement => format!("RDB has a duplicated element{key}"),
            LoadError::Full => {
                let loading = &self.store.state.loading;
                format!(
                    "Out of memory loading DB{key}: {} of {} bytes of the file are loaded",
                    loading.loaded_bytes.load(Relaxed),
                    loading.total_bytes.load(Relaxed)
                )
            }
        };
        LoadFailure(vec![format!("{what} ({path})")])
    }
}
