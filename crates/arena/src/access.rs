//! Access from handles to bytes: the checked way under the owner's lock, and hints that look without any
//! lock.
//!
//! A hint may meet anything: an object that was freed, bytes that another thread writes at this moment, a
//! handle made of garbage. Its value is only ever used to choose what to prefetch, and the work is done again
//! under the lock. It cannot fault: below `committed` the mapping is readable for as long as the arena lives,
//! and above it a hint does not read.

#![allow(unsafe_code)]

use crate::Arena;
use crate::handle::{Handle, UNIT_BYTES};
use std::marker::PhantomData;
use std::ptr::NonNull;

const LINE_BYTES: usize = 64;

impl Arena {
    /// The address of an object. Only an address: reading it is the caller's promise.
    #[inline]
    pub fn pointer(&self, handle: Handle) -> NonNull<u8> {
        let offset = handle.raw() as usize * UNIT_BYTES;
        debug_assert!(offset < self.memory.committed(), "the handle lies outside the arena");
        let address = self.memory.base().as_ptr().wrapping_add(offset);
        NonNull::new(address).expect("base + 64 GB does not wrap in a user's address space")
    }

    /// The first `len` bytes of an object.
    ///
    /// # Safety
    /// The caller holds the lock of the object's owner while the slice lives; the object stays allocated and
    /// no thread writes to it meanwhile; `len` is at most its class size.
    #[inline]
    pub unsafe fn bytes(&self, handle: Handle, len: usize) -> &[u8] {
        // SAFETY: by the caller the bytes lie in one live object, which lies in committed memory (zeroed by
        // the kernel or written since), and no thread writes them while the slice lives.
        unsafe { std::slice::from_raw_parts(self.pointer(handle).as_ptr(), len) }
    }

    /// The first `len` bytes of an object, to write.
    ///
    /// # Safety
    /// As for `bytes`, and no thread reads the object meanwhile either.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, handle: Handle, len: usize) -> &mut [u8] {
        // SAFETY: as above; objects do not overlap each other or the arena's own bytes, so the slice is the
        // only reference to them.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(handle).as_ptr(), len) }
    }

    /// Asks the processor for a cache line. Any number will do: a prefetch never faults.
    #[inline]
    pub fn prefetch(&self, handle_raw: u32, byte_offset: usize) {
        let offset = (handle_raw as usize * UNIT_BYTES).wrapping_add(byte_offset);
        prefetch_line(self.memory.base().as_ptr().wrapping_add(offset));
    }

    /// Asks for all lines of an object from byte `from` to byte `to`.
    #[inline]
    pub fn prefetch_range(&self, handle_raw: u32, from: usize, to: usize) {
        let start = self.memory.base().as_ptr().wrapping_add(handle_raw as usize * UNIT_BYTES);
        let mut at = from;
        while at < to {
            prefetch_line(start.wrapping_add(at));
            at += LINE_BYTES;
        }
    }

    /// `N` bytes of an object, to be looked at as they may be at the moment; none outside the committed
    /// memory.
    #[inline]
    pub fn hint<const N: usize>(&self, handle_raw: u32, byte_offset: u32) -> Option<Hint<'_, N>> {
        // 2^36 + 2^32 + N: there is nothing to overflow.
        let offset = handle_raw as usize * UNIT_BYTES + byte_offset as usize;
        let inside = offset + N <= self.memory.committed();
        inside.then(|| Hint { address: self.memory.base().as_ptr().wrapping_add(offset), arena: PhantomData })
    }

    /// Copies the first bytes of one object to another. Both belong to the caller of `reallocate`: the old
    /// one because its owner's lock is held, the new one because no other thread knows it yet.
    pub(crate) fn copy(&self, from: Handle, to: Handle, bytes: usize) {
        let (from, to) = (self.pointer(from), self.pointer(to));
        // SAFETY: two different live objects of at least `bytes` bytes (asserted by the caller) in committed
        // memory.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes) }
    }
}

/// Bytes of an arena's committed memory, which is readable for as long as the arena lives.
#[derive(Clone, Copy)]
pub struct Hint<'a, const N: usize> {
    address: *const u8,
    arena: PhantomData<&'a Arena>,
}

impl<const N: usize> Hint<'_, N> {
    /// Four bytes from byte `at` on.
    #[inline(always)]
    pub fn u32(self, at: usize) -> u32 {
        assert!(at + 4 <= N);
        // SAFETY: `Arena::hint` makes this only of N committed bytes, and four of them begin at `at`.
        unsafe { racy::read_u32(self.address.add(at)) }
    }

    /// Eight bytes, in the same way.
    #[inline(always)]
    pub fn u64(self, at: usize) -> u64 {
        assert!(at + 8 <= N);
        // SAFETY: as above.
        unsafe { racy::read_u64(self.address.add(at)) }
    }
}

/// Asks the processor for all lines of a value, which is not read.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    let address = std::ptr::from_ref(value).cast::<u8>();
    (0..size_of::<T>()).step_by(LINE_BYTES).for_each(|at| prefetch_line(address.wrapping_add(at)));
}

#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint; it reads no memory that the program could observe and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

/// Single loads of any alignment that may race with writers. They are written in assembly because a racing
/// load of the language is undefined whatever it is used for; here the compiler only learns that some number
/// came back.
mod racy {
    /// # Safety
    /// The four bytes are readable.
    #[inline]
    pub unsafe fn read_u32(address: *const u8) -> u32 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a load from readable memory, by the caller.
        unsafe {
            let value: u32;
            std::arch::asm!("mov {0:e}, dword ptr [{1}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags, readonly));
            value
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            let value: u32;
            std::arch::asm!("ldr {0:w}, [{1}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags, readonly));
            value
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        // SAFETY: as above.
        unsafe {
            u32::from_le_bytes(read_bytes(address))
        }
    }

    /// # Safety
    /// The eight bytes are readable.
    #[inline]
    pub unsafe fn read_u64(address: *const u8) -> u64 {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a load from readable memory, by the caller.
        unsafe {
            let value: u64;
            std::arch::asm!("mov {0}, qword ptr [{1}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags, readonly));
            value
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: as above.
        unsafe {
            let value: u64;
            std::arch::asm!("ldr {0}, [{1}]", out(reg) value, in(reg) address,
                options(nostack, preserves_flags, readonly));
            value
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        // SAFETY: as above.
        unsafe {
            u64::from_le_bytes(read_bytes(address))
        }
    }

    /// Elsewhere byte by byte, volatile: every byte is one that was there, and torn words are expected.
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    unsafe fn read_bytes<const N: usize>(address: *const u8) -> [u8; N] {
        // SAFETY: N readable bytes, by the caller.
        std::array::from_fn(|i| unsafe { address.add(i).read_volatile() })
    }
}
