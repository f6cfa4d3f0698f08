//! Limits of a request. Every length that a client announces is compared with one of these first.

/// A client that has not authenticated yet may only send what AUTH and HELLO need.
pub const MULTIBULK_UNAUTHENTICATED_MAX: i64 = 10;

/// Spans hold 32-bit offsets, so one request ends before 4 GB.
pub const REQUEST_BYTES_MAX: usize = u32::MAX as usize;

#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// The most arguments of one request.
    pub multibulk_len_max: i64,
    /// The longest argument of a client that has not authenticated.
    pub bulk_unauthenticated_max: usize,
    pub authenticated: bool,
    /// The longest inline request, and the longest line that announces a length.
    pub inline_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk_bytes_max: 512 << 20,
            multibulk_len_max: i32::MAX as i64,
            bulk_unauthenticated_max: 16384,
            authenticated: true,
            inline_bytes_max: 64 << 10,
        }
    }
}
