//! Slowing of the clients that fill memory to the pace at which values leave it.
//!
//! ```text
//!   limit   limit + 1/64
//!     |        | writers wait
//!     |     |    and go on, each time some of it has left
//! ```
//! A writer waits for one group of values at a time, some milliseconds, instead of once for all that is
//! too much. Loading, which has no client that could wait, pauses by itself (`durability`).

use super::health::State;
use super::state::Tier;
use crate::mail::Mail;

/// Writers wait when memory exceeds its limit by one part in `BEHIND_DIVISOR`,
const BEHIND_DIVISOR: u64 = 64;
/// and continue when it has come down from there by these bytes, or half of the way: they leave memory in 1
/// to 2 ms.
const RELIEF_BYTES_MAX: u64 = 128 << 10;

pub fn waits_above(limit_bytes: u64) -> u64 {
    limit_bytes + limit_bytes / BEHIND_DIVISOR
}

pub fn goes_on_below(limit_bytes: u64) -> u64 {
    waits_above(limit_bytes) - RELIEF_BYTES_MAX.min(limit_bytes / BEHIND_DIVISOR / 2)
}

/// Lets writers wait until values that are on their way have left.
pub fn hold_writers(mail: &Mail, tier: &Tier) {
    mail.set_sinker_behind(true);
    tier.note_slowed(true);
    // The sinker looks at the mark after each of its steps; its last one may have been before.
    if tier.state() != State::Works {
        mail.set_sinker_behind(false);
        tier.note_slowed(false);
    }
}
