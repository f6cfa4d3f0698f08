//! Records around keys in the body of an RDB file. `file/mod.rs` has the drawing of the whole file.

use isotherm_stdx::format::{FormatPart, number};

/// Ours: a key whose value lies in the swap log.
pub const COLD: u8 = 0xe0;
/// Ours: keys that lie in the swap log with their values, as one record.
pub const BUNDLE: u8 = 0xe1;
/// Ours: the same of a hash whose fields have times, and when the first of them is due.
pub const COLD_TIMED: u8 = 0xe4;
pub const IDLE: u8 = 0xf8;
pub const FREQ: u8 = 0xf9;
pub const RESIZE_DB: u8 = 0xfb;
pub const EXPIRE_MS: u8 = 0xfc;
pub const SELECT_DB: u8 = 0xfe;
pub const EOF: u8 = 0xff;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "RDB record",
    &[
        ("value in the swap log", number(COLD as usize)),
        ("keys in the swap log", number(BUNDLE as usize)),
        ("hash with field times in the swap log", number(COLD_TIMED as usize)),
        ("idle time", number(IDLE as usize)),
        ("frequency", number(FREQ as usize)),
        ("sizes of a database", number(RESIZE_DB as usize)),
        ("expiry", number(EXPIRE_MS as usize)),
        ("database", number(SELECT_DB as usize)),
        ("end", number(EOF as usize)),
    ],
);
