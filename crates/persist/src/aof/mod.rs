//! The append-only file: the list of its files, and the commands in them.
//!
//! ```text
//!   appendonlydir/  appendonly.aof.manifest        which files, in which order      manifest.rs
//!                   appendonly.aof.2.base.rdb      a snapshot (or commands)
//!                   appendonly.aof.7.incr.aof      the commands since               stream.rs, commit.rs
//! ```

pub mod commit;
pub mod manifest;
pub mod stream;

/// Returns whether a file of the AOF begins as an RDB file does, or as one that refers to values elsewhere.
/// Such a file is a base, or an old single file with a preamble.
pub fn begins_as_rdb(bytes: &[u8]) -> bool {
    bytes.starts_with(b"REDIS0") || bytes.starts_with(b"VALKEY") || bytes.starts_with(b"ISOTHERM")
}
