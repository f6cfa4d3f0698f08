//! End of a message in a sequence of bytes, found by its first 14 bytes.
//!
//! ```text
//!   |RCmb|total 4|version 2|port 2|type 2| ...
//! ```
//! A reader must not allocate what `total` says, only what has come: a length up to its cap is a claim.

use super::layout::{
    HEADER_BYTES, LIGHT, LIGHT_HEADER_BYTES, PREFIX_BYTES, SIGNATURE, SIGNATURE_TEXT, TOTAL, TYPE,
};
use super::{Malformed, Type};

/// Longest PING, PONG or MEET, in bytes: 65,535 nodes x 104 B = 6.5 MB, and extensions.
pub const PING_BYTES_MAX: usize = 16 << 20;

/// Longest message of a type whose body has a fixed length, in bytes. A later version might send more than
/// that body; such a message is read and then ignored.
pub const FIXED_BYTES_MAX: usize = 64 << 10;

/// Limits that the caller sets.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Largest payload in bytes: that of a channel with its message, of a module message, or of an unknown
    /// type.
    pub payload_bytes: usize,
}

/// The length of the message that `bytes` begin with; less of it may have come. `None`: too little to say.
pub fn frame(bytes: &[u8], caps: Caps) -> Result<Option<usize>, Malformed> {
    if bytes.len() < PREFIX_BYTES {
        return Ok(None);
    }
    if SIGNATURE.of(bytes) != SIGNATURE_TEXT {
        return Err(Malformed::closes("not a message of the cluster bus"));
    }
    let total = TOTAL.u32(bytes) as usize;
    let head = if TYPE.u16(bytes) & LIGHT == 0 { HEADER_BYTES } else { LIGHT_HEADER_BYTES };
    if total < head {
        return Err(Malformed::closes("shorter than its header"));
    }
    if total > bytes_max(Type::of_bytes(bytes), caps) {
        return Err(Malformed::closes("longer than its type allows"));
    }
    Ok(Some(total))
}

fn bytes_max(kind: Option<Type>, caps: Caps) -> usize {
    match kind {
        Some(Type::Ping | Type::Pong | Type::Meet) => PING_BYTES_MAX,
        Some(Type::Fail | Type::VoteRequest | Type::Vote | Type::Update | Type::ManualFailover) => {
            FIXED_BYTES_MAX
        }
        Some(Type::Publish | Type::Module | Type::PublishShard) | None => {
            caps.payload_bytes.saturating_add(HEADER_BYTES + super::layout::module::HEAD_BYTES)
        }
    }
}
