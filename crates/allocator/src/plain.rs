//! Functions that only jemalloc has: the other allocators report so, or are asked size by size.

use std::path::Path;

use super::{Class, ClassUse, Decay, Options, ProfileError, class_bytes, name};

/// The classes that requests to 16 KB fall into, and 0 for what they are cut from: that is not reported.
pub fn classes() -> Vec<Class> {
    const REQUEST_BYTES_MAX: usize = 16 << 10;
    let mut sizes: Vec<usize> = (1..=REQUEST_BYTES_MAX).map(class_bytes).collect();
    sizes.dedup();
    sizes.into_iter().map(|size_bytes| Class { size_bytes, slab_bytes: 0 }).collect()
}

/// Returns nothing: these allocators do not report the contents of their classes.
pub fn class_uses() -> Vec<ClassUse> {
    Vec::new()
}

/// Threads cannot be bound.
pub fn own_arena() -> Result<(), String> {
    Err("only jemalloc has arenas that a thread can be bound to".to_string())
}

/// Waits for locks are not counted.
pub fn lock_waits() -> Option<u64> {
    None
}

/// Returns nothing: these allocators read environment variables of their own, and complain on standard error.
pub fn complaints() -> Vec<String> {
    Vec::new()
}

/// Returns `None`: these allocators have none of these options.
pub fn options() -> Option<Options> {
    None
}

pub fn set_decay(_: Decay, _: i64) -> Result<(), String> {
    Err(format!("this server was built with {}, which has no such parameter", name()))
}

pub fn profile(_: bool) -> Result<(), ProfileError> {
    Err(ProfileError::NotBuilt)
}

pub fn dump_profile(_: &Path) -> Result<(), ProfileError> {
    Err(ProfileError::NotBuilt)
}
