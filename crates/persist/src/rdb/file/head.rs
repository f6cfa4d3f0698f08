//! Data that is written around the keys.

use isotherm_stdx::crc64::{crc64, crc64_combine};
use std::fmt;

use super::opcode;
use super::version::{FileVersion, MAGIC_BYTES};
use crate::rdb::write::Writer;
use crate::sink::Sink;

/// Facts that a file states about itself.
#[derive(Clone, Debug)]
pub struct FileHead<'a> {
    pub version: FileVersion,
    /// The Valkey whose format this is.
    pub valkey_version: &'a str,
    pub created_seconds: i64,
    pub used_memory_bytes: u64,
    /// Position of the file in the log of changes; `None` without a log.
    pub replication: Option<Replication<'a>>,
    /// The append-only file beside which it was begun, or behind whose end.
    pub log: Option<LogMark>,
    /// Changes in an append-only file follow it.
    pub is_aof_base: bool,
    /// Description of the swap log, in a base that refers to it.
    pub swap_log: Option<&'a [u8]>,
    /// Secret with which the keys are hashed, in a base with bundles.
    pub key_secret: Option<[u8; KEY_SECRET_BYTES]>,
    /// Libraries of functions, as they were loaded.
    pub functions: &'a [&'a [u8]],
}

/// Relation of a file to an append-only file of the same server: it was begun while that was written, and has
/// no more, or after it was switched off, and has no less. No clock says so, which may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogMark {
    /// Random number that the log has from being switched on to being switched off.
    pub id: u64,
    pub is_over: bool,
}

impl LogMark {
    /// Returns the mark that a field has: "8371445ee47ffb2b on", "8371445ee47ffb2b off".
    pub fn parse(text: &[u8]) -> Option<LogMark> {
        let (id, state) = std::str::from_utf8(text).ok()?.split_once(' ')?;
        let is_over = match state {
            "on" => false,
            "off" => true,
            _ => return None,
        };
        Some(LogMark { id: u64::from_str_radix(id, 16).ok()?, is_over })
    }
}

impl fmt::Display for LogMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} {}", self.id, if self.is_over { "off" } else { "on" })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Replication<'a> {
    pub id: &'a str,
    pub offset: i64,
    /// The database of the last change, or -1.
    pub db: i64,
}

/// The name of the field with the mark of the log.
pub const LOG_MARK: &str = "aof-run";
/// The name of the field that says which log is referred to.
pub const SWAP_LOG: &str = "swap-log";
/// The name of the field that says what keys are hashed with.
pub const SWAP_KEY_SECRET: &str = "swap-key-secret";
pub const KEY_SECRET_BYTES: usize = 16;

pub fn head<S: Sink>(writer: &mut Writer<S>, head: &FileHead<'_>) {
    writer.raw(&head.version.magic());
    aux(writer, "valkey-ver", head.valkey_version);
    aux(writer, "redis-bits", &usize::BITS.to_string());
    aux(writer, "ctime", &head.created_seconds.to_string());
    aux(writer, "used-mem", &head.used_memory_bytes.to_string());
    if let Some(log) = &head.log {
        aux(writer, LOG_MARK, &log.to_string());
    }
    if let Some(replication) = &head.replication {
        aux(writer, "repl-stream-db", &replication.db.to_string());
        aux(writer, "repl-id", replication.id);
        aux(writer, "repl-offset", &replication.offset.to_string());
    }
    aux(writer, "aof-base", if head.is_aof_base { "1" } else { "0" });
    if let Some(swap_log) = head.swap_log {
        writer.byte(opcode::AUX);
        writer.text(SWAP_LOG.as_bytes());
        writer.text(swap_log);
    }
    if let Some(key_secret) = &head.key_secret {
        writer.byte(opcode::AUX);
        writer.text(SWAP_KEY_SECRET.as_bytes());
        writer.text(key_secret);
    }
    for code in head.functions {
        writer.byte(opcode::FUNCTION2);
        writer.text(code);
    }
}

fn aux<S: Sink>(writer: &mut Writer<S>, name: &str, value: &str) {
    writer.byte(opcode::AUX);
    writer.text(name.as_bytes());
    writer.text(value.as_bytes());
}

/// The sum of a file's bytes (0: there is none), which follows the end mark of the keys.
pub fn end(sum: u64) -> [u8; 8] {
    sum.to_le_bytes()
}

/// The sum of a file of `bytes` bytes if its first nine were another magic. A file begins as a plain one;
/// only after its last key is it known whether it may stay that.
pub fn sum_with_magic(sum: u64, bytes: u64, before: FileVersion, after: FileVersion) -> u64 {
    let rest = bytes - MAGIC_BYTES as u64;
    let changed = crc64(0, &before.magic()) ^ crc64(0, &after.magic());
    sum ^ crc64_combine(changed, 0, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_the_log_is_read_as_it_was_written() {
        for mark in [LogMark { id: 0x83, is_over: true }, LogMark { id: u64::MAX, is_over: false }] {
            assert_eq!(LogMark::parse(mark.to_string().as_bytes()), Some(mark));
        }
        for text in ["", "83", "83 ", "83 later", "x on", "10000000000000000 on"] {
            assert_eq!(LogMark::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn another_magic_changes_the_sum() {
        let rest = b"fourscore and seven years ago".repeat(50);
        let of = |version: FileVersion| crc64(crc64(0, &version.magic()), &rest);
        let (plain, other) = (FileVersion::PLAIN, FileVersion::FIELD_EXPIRY);
        let bytes = (MAGIC_BYTES + rest.len()) as u64;
        assert_eq!(sum_with_magic(of(plain), bytes, plain, other), of(other));
    }
}
