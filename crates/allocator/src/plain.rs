//! What only jemalloc can: the others say so, or are asked size by size.

use super::{Class, class_bytes};

/// The classes that requests to 16 KB fall into, and 0 for what they are cut from: that is not told.
pub fn classes() -> Vec<Class> {
    const REQUEST_BYTES_MAX: usize = 16 << 10;
    let mut sizes: Vec<usize> = (1..=REQUEST_BYTES_MAX).map(class_bytes).collect();
    sizes.dedup();
    sizes.into_iter().map(|size_bytes| Class { size_bytes, slab_bytes: 0 }).collect()
}

/// Threads cannot be bound.
pub fn own_arena() -> Result<(), String> {
    Err("only jemalloc has arenas that a thread can be bound to".to_string())
}

/// Waits for locks are not counted.
pub fn lock_waits() -> Option<u64> {
    None
}
