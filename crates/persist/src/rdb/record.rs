//! Records around keys in the body of an RDB file. `file/mod.rs` has the drawing of the whole file.

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
