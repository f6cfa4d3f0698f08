//! Progress of SWAP VERIFY.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// SWAP VERIFY: asked for, and how far it is. The figures of the last one stay.
#[derive(Default)]
pub struct Verify {
    pub is_wanted: AtomicBool,
    pub slots: AtomicU64,
    pub keys: AtomicU64,
    pub bytes: AtomicU64,
    pub bad: AtomicU64,
    /// Rounds that are complete.
    pub rounds: AtomicU64,
}
