//! The arena's lock: one byte, spinning, for sections of some ten to a few hundred nanoseconds.
//!
//! ```text
//!   take     swap(1, acquire)        free before: in. Taken: read until it looks free, then swap again
//!   release  store(0, release)       no second read-modify-write, no thread to wake
//! ```
//!
//! A holder neither waits nor allocates nor calls the kernel, except for a commit (one mprotect per MB) and
//! page faults, so its holder is about to leave, and going to sleep for it would cost a hundred times the
//! section. If the holder was preempted, the waiter soon yields its processor, and at last sleeps.
//!
//! Invariant: `Guard` exists at most once per lock.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

/// Reads before the processor is yielded: some 3 us, ten times the longest usual section.
const SPINS: u32 = 100;
/// Rounds before sleeping: the holder has lost its processor to a thread that does not yield.
const NAPS_FROM: u32 = SPINS + 100;
const NAP: Duration = Duration::from_micros(50);

pub(crate) struct Lock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard (one exists at a time), or through `&mut Lock`.
unsafe impl<T: Send> Sync for Lock<T> {}

pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    pub fn new(value: T) -> Lock<T> {
        Lock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.taken.swap(true, Acquire) {
            self.wait();
        }
        Guard { lock: self }
    }

    #[cold]
    fn wait(&self) {
        let mut rounds = 0;
        loop {
            if !self.taken.load(Relaxed) && !self.taken.swap(true, Acquire) {
                return;
            }
            rounds += 1;
            match rounds {
                0..SPINS => std::hint::spin_loop(),
                SPINS..NAPS_FROM => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, and no other exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` excludes other borrows through this guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_increment_is_lost() {
        let rounds = if cfg!(miri) { 50 } else { 100_000 };
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * rounds);
    }

    #[test]
    fn a_waiter_sleeps_out_a_holder_that_stays() {
        let lock = Lock::new(0);
        let guard = lock.lock();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| *lock.lock() += 1);
            std::thread::sleep(Duration::from_millis(5));
            assert!(!waiter.is_finished());
            drop(guard);
        });
        assert_eq!(*lock.lock(), 1);
    }
}
