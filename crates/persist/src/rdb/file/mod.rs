//! An RDB file: its head, databases with their keys, its end.
//!
//! ```text
//! REDIS0011 | VALKEY080
//! [fa][name][value] ...               auxiliary fields: who wrote it, when
//! [f5][text] ...                      libraries of functions
//! [fe][db] [fb][keys][volatile]       a database; the numbers at its first appearance
//!   [fc][expiry, ms i64] [f8][idle seconds] [f9][frequency u8]        if the key has them
//!   [type][key][value]
//!   ...
//! [ff][crc64 of all before it, little endian; 0 = none]               the sum from version 5 on
//! ```
//! A base of an append-only file may refer to values in the swap log, instead of having them
//! (`swap-checkpoint`):
//! ```text
//! ISOTHERM1 | ISOTHERM2                                                no RDB file begins so: what reads plain ones refuses it
//! [fa]["swap-log"][which log, segments, lengths] before the first key   what is referred to (`isotherm-tier`)
//! [fa]["swap-key-secret"][16 B]                                         of 2: what the keys of bundles are hashed with
//!   [expiry ...][e0][key][form u8][reference u64]                       in place of [type][key][value]
//!   [fc][bound, ms i64][e1][name 5 B][slot u16][reference u64][keys u16][volatile u16][u16 of each key]
//!                                                                       of 2: keys that lie there with their values (a bundle);
//!                                                                       the bound if some of them expire
//!   [expiry ...][e4][key][form u8][reference u64][ms i64]               the same as e0 of a hash whose fields have times: when the first is due
//! ```
//! Numbers are little endian. `e2` to `f2` are left for what a later version refers to in another way; they
//! are refused.
//!
//! [`head`] and [`end`] write what is around the keys, which `codec` writes. [`FileReader`] takes a file in
//! pieces of any size and hands out one item after the other. It keeps what it has not understood yet: at
//! most twice the longest string, or a piece of a large collection. Its input is never believed: a length
//! takes no memory before its bytes are there.

mod bundle;
mod error;
mod head;
mod pieces;
mod read;
mod version;

pub use bundle::{BUNDLE_NAME_BYTES, Bundle};
pub use error::{FileCause, FileError};
pub use head::{
    FileHead, KEY_SECRET_BYTES, LOG_MARK, LogMark, Replication, SWAP_KEY_SECRET, SWAP_LOG, end, head,
    sum_with_magic,
};
pub use read::{FileReader, Item, Key, Options, Piece, PieceValue, Step};
pub(crate) use version::FORMAT;
pub use version::{FileVersion, MAGIC_BYTES};

/// Codes that may stand in the place of a type.
pub(super) mod opcode {
    /// Slots that are being imported (Valkey 9), or metadata of a key (from version 13 of the other line on).
    pub const SLOT_IMPORT: u8 = 243;
    pub use crate::rdb::record::{BUNDLE, COLD, COLD_TIMED};
    pub const SLOT_INFO: u8 = 244;
    pub const FUNCTION2: u8 = 245;
    pub const FUNCTION_PRE_GA: u8 = 246;
    pub const MODULE_AUX: u8 = 247;
    pub const AUX: u8 = 250;
    pub const EXPIRE_SECONDS: u8 = 253;
    pub use crate::rdb::record::{EOF, EXPIRE_MS, FREQ, IDLE, RESIZE_DB, SELECT_DB};
}
