//! The lock of a partition for a step of work, whose hold is measured.

use crate::access::sync::MutexGuard;
use std::ops::{Deref, DerefMut};

/// Learns how long partitions are locked for work that no command asked for (expiry, eviction, ...), and for
/// reports. The keyspace has no clock: `begin` is called when the lock was taken, and `end` gets its value
/// before the lock is released.
#[derive(Clone, Copy, Debug)]
pub struct HoldWatch {
    pub begin: fn() -> u64,
    pub end: fn(u64),
}

impl HoldWatch {
    pub const NONE: HoldWatch = HoldWatch { begin: || 0, end: |_| () };
}

/// Data locked for a step of work, with the watch that measures the hold.
pub(crate) struct WorkGuard<'k, T> {
    guard: MutexGuard<'k, T>,
    watch: HoldWatch,
    from: u64,
}

impl<'k, T> WorkGuard<'k, T> {
    pub fn new(watch: HoldWatch, guard: MutexGuard<'k, T>) -> WorkGuard<'k, T> {
        WorkGuard { guard, watch, from: (watch.begin)() }
    }
}

impl<T> Deref for WorkGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for WorkGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for WorkGuard<'_, T> {
    fn drop(&mut self) {
        (self.watch.end)(self.from);
    }
}
