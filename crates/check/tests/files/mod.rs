//! Files to check, and a folder for them.

use isotherm_persist::rdb::Writer;
use isotherm_persist::rdb::file::{FileHead, FileVersion, end, head};
use isotherm_persist::rdb::record;
use isotherm_stdx::crc64::crc64;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of its own, gone with this.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("isotherm-check-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a new folder");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).expect("a file is written");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).expect("a file is read")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Commands with stamps and a transaction.
pub fn aof() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, words) in [
        &["SELECT", "0"][..],
        &["SET", "key", "a value"],
        &["multi"],
        &["INCR", "n"],
        &["EXEC"],
        &["DEL", "key"],
    ]
    .iter()
    .enumerate()
    {
        if number % 2 == 0 {
            bytes.extend_from_slice(format!("#TS:{}\r\n", 1_700_000_000 + number).as_bytes());
        }
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in *words {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
    }
    bytes
}

/// Keys of every type in two databases, some that expire; element by element, as large ones are written.
pub fn rdb(version: u16, has_sum: bool) -> Vec<u8> {
    let mut writer = Writer::new(true);
    let version = FileVersion { number: version, is_valkey: version >= 80, references: 0 };
    head(
        &mut writer,
        &FileHead {
            version,
            valkey_version: "9.1.2",
            created_seconds: 1_700_000_000,
            used_memory_bytes: 1_000_000,
            replication: None,
            log: None,
            is_aof_base: false,
            swap_log: None,
            key_secret: None,
            functions: &[],
        },
    );
    for db in [0, 3] {
        writer.byte(record::SELECT_DB);
        writer.byte(db);
        for (kind, key) in [(0, "string"), (1, "list"), (2, "set"), (5, "zset"), (4, "hash")] {
            for expiry_ms in [None, Some(1_000_i64), Some(9_000_000_000_000)] {
                if let Some(expiry_ms) = expiry_ms {
                    writer.byte(record::EXPIRE_MS);
                    writer.raw(&expiry_ms.to_le_bytes());
                }
                writer.byte(kind);
                writer.text(format!("{key}-{expiry_ms:?}").as_bytes());
                if kind > 0 {
                    writer.byte(3);
                }
                for number in 0..if kind > 0 { 3 } else { 1 } {
                    writer.text(format!("element {number}").repeat(1 + number * 9).as_bytes());
                    match kind {
                        4 => writer.text(b"12345"),
                        5 => writer.raw(&(number as f64 * 1.5).to_le_bytes()),
                        _ => {}
                    }
                }
            }
        }
    }
    writer.byte(record::EOF);
    let mut bytes = writer.into_bytes();
    let sum = if has_sum { crc64(0, &bytes) } else { 0 };
    bytes.extend_from_slice(&end(sum));
    bytes
}
