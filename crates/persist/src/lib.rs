//! The byte formats in which data leaves a process: today the values of an RDB file, as DUMP and RESTORE
//! exchange them.
//!
//! **Architecture invariant:** `persist` knows no file descriptors, no keyspace and no clock. Bytes come in
//! as slices and go out into a [`Sink`]; the crates above know what stands behind it and where the values
//! live.
//!
//! Input comes from outside and is never believed: a value is handed out only when all of it has been
//! checked, no length takes memory before it was compared with what is really there, and nothing recurses.

pub mod lzf;

pub mod sink;

pub mod rdb;

pub mod dump;

pub mod aof;

pub use dump::{Dump, DumpError};
pub use rdb::{Limits, RdbError, RdbValue, Texts};
pub use sink::{Chunks, Sink};

/// Formats of files of ours, and marks in those that others have too.
pub const FORMATS: &[isotherm_stdx::format::FormatPart] =
    &[rdb::file::FORMAT, rdb::record::FORMAT, aof::stream::FORMAT];
