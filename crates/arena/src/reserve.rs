//! Address space: reserved once, committed from the front, never unmapped while its owner lives.
//!
//! ```text
//!   base                     committed                         reserved        + GUARD_BYTES
//!   |  readable and writable | PROT_NONE: costs nothing         | guard, PROT_NONE |
//!   |  grows in steps --->   |                                  |                  |
//! ```
//!
//! * A reservation with PROT_NONE is charged neither to RSS nor to the commit limit, so twice the physical
//!   memory may be reserved even under overcommit_memory=2; a step is charged when mprotect opens it. `ulimit
//!   -v` counts the reservation itself, which is why `Arena::new` halves it when refused.
//! * Because the mapping stays, a racy reader (a hint) below `committed` never faults, whatever was freed
//!   meanwhile.
//! * The guard turns a write that runs off the last object into a fault, and keeps addresses that are
//!   computed from garbage lengths (up to 64 KB past an object) inside our own mapping.
//!
//! Invariants: committed <= reserved; committed only grows; bytes never written, or discarded, read as zero.

#![allow(unsafe_code)]

use crate::Exhausted;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// A page of 4 KB columns and a prefix sum over garbage lengths (248 x 255 B) both end before this.
pub(crate) const GUARD_BYTES: usize = 128 << 10;

const _: () = assert!(GUARD_BYTES >= 64 << 10);

/// Size of a huge page of x86-64 and aarch64 (with pages of 4 KB).
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Result of the attempt to put a range on a huge page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Collapsed {
    Done,
    /// Some of its pages are not there: a huge page would take memory.
    HasHoles,
    /// The kernel has no huge page available, or is busy.
    NotNow,
    /// The kernel, or its setting, does not do it; or something is odd about the range.
    Refused,
}

/// The kernel refused the address space, even at the smallest size tried.
#[derive(Debug)]
pub struct ReserveError {
    pub bytes: usize,
    pub errno: i32,
}

impl std::fmt::Display for ReserveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cause = std::io::Error::from_raw_os_error(self.errno);
        write!(f, "cannot reserve {} bytes of address space: {cause}", self.bytes)
    }
}

impl std::error::Error for ReserveError {}

pub(crate) struct Region {
    base: NonNull<u8>,
    reserved: usize,
    step: usize,
    /// Written under the arena's lock, read anywhere: a reader that sees an old value only sees less memory.
    committed: AtomicU64,
    /// A commit was refused: the reservation has ended, or the kernel has no memory.
    refused: AtomicBool,
}

// SAFETY: the region is an address range and an atomic; what lies in it is shared by the rules of its users
// (the arena's lock for the bookkeeping, the owner's lock for an object).
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The guard included.
    pub fn addresses(&self) -> Range<usize> {
        let base = self.base.as_ptr() as usize;
        base..base + self.reserved + GUARD_BYTES
    }

    /// `bytes` and `step` are multiples of the system's page.
    pub fn reserve(bytes: usize, step: usize) -> Result<Region, ReserveError> {
        assert!(bytes > 0 && bytes.is_multiple_of(4096) && step.is_multiple_of(4096));
        let base = system::map(bytes + GUARD_BYTES).map_err(|errno| ReserveError { bytes, errno })?;
        let (committed, refused) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Region { base, reserved: bytes, step, committed, refused })
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn reserved(&self) -> usize {
        self.reserved
    }

    pub fn committed(&self) -> usize {
        self.committed.load(Relaxed) as usize
    }

    /// Makes the first `bytes` usable. Callers hold the arena's lock, so two commits never overlap.
    pub fn commit_to(&self, bytes: usize) -> Result<(), Exhausted> {
        let committed = self.committed();
        if bytes <= committed {
            return Ok(());
        }
        if bytes > self.reserved {
            return Err(self.refuse());
        }
        let target = bytes.next_multiple_of(self.step).min(self.reserved);
        // SAFETY: committed <= target <= reserved, so the range lies inside our mapping, after everything in
        // use.
        let opened = unsafe { system::open(self.base.as_ptr().add(committed), target - committed) };
        if !opened {
            return Err(self.refuse());
        }
        self.committed.store(target as u64, Relaxed);
        Ok(())
    }

    #[cold]
    fn refuse(&self) -> Exhausted {
        self.refused.store(true, Relaxed);
        Exhausted
    }

    /// Returns whether a commit was refused since `forget_refusal`.
    #[inline]
    pub fn was_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    pub fn forget_refusal(&self) {
        self.refused.store(false, Relaxed);
    }

    /// Gives the pages of a range back to the kernel; they read as zero afterwards. The range is unused
    /// meanwhile.
    pub fn discard(&self, offset: usize, bytes: usize) {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.committed()));
        // SAFETY: the range is committed, and the caller has taken it out of use.
        unsafe { system::discard(self.base.as_ptr().add(offset), bytes) }
    }

    /// Bytes before the first whole huge page.
    fn huge_start(&self) -> usize {
        self.base.as_ptr().align_offset(HUGE_BYTES)
    }

    /// Whole huge pages in what is committed.
    pub fn huge_ranges(&self) -> usize {
        self.committed().saturating_sub(self.huge_start()) / HUGE_BYTES
    }

    /// Returns the huge ranges that these bytes touch.
    pub fn huge_ranges_of(&self, offset: usize, bytes: usize) -> std::ops::Range<usize> {
        let start = self.huge_start();
        let end = (offset + bytes).saturating_sub(start).div_ceil(HUGE_BYTES);
        offset.saturating_sub(start) / HUGE_BYTES..end
    }

    /// Puts a range on a huge page, if all its pages are there. Its bytes stay what they are.
    pub fn collapse(&self, range: usize) -> Collapsed {
        assert!(range < self.huge_ranges());
        // SAFETY: the range is committed; neither call changes what is read there.
        unsafe { system::collapse(self.base.as_ptr().add(self.huge_start() + range * HUGE_BYTES)) }
    }

    /// The address of a byte; `offset` is checked against what is committed.
    pub fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset + bytes <= self.committed(), "the address lies outside the arena");
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and the last user is gone with the arena.
        unsafe { system::unmap(self.base, self.reserved + GUARD_BYTES) }
    }
}

#[cfg(not(miri))]
mod system {
    use super::{Collapsed, HUGE_BYTES};
    use std::ptr::NonNull;

    pub fn map(bytes: usize) -> Result<NonNull<u8>, i32> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        // A huge page would keep 2 MB resident for a few live bytes; full ranges get theirs later (`huge`). A
        // kernel without them refuses the advice, which is as good. SAFETY: advice on the mapping just made.
        unsafe { libc::madvise(address, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(NonNull::new(address.cast()).expect("mmap returned an address"))
    }

    /// # Safety
    /// The range lies inside a mapping made by `map`.
    pub unsafe fn open(address: *mut u8, bytes: usize) -> bool {
        // SAFETY: by the caller.
        unsafe { libc::mprotect(address.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 }
    }

    /// # Safety
    /// The range lies inside a mapping made by `map`, and its contents are no longer wanted.
    pub unsafe fn discard(address: *mut u8, bytes: usize) {
        // SAFETY: by the caller.
        let result = unsafe { libc::madvise(address.cast(), bytes, libc::MADV_DONTNEED) };
        // It cannot fail on a private anonymous mapping, unless the pages are locked (mlockall) or the
        // system's pages are larger than a chunk: then they stay.
        debug_assert!(result == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL));
    }

    /// # Safety
    /// The `HUGE_BYTES` at the address lie inside a mapping made by `map`, and were opened.
    pub unsafe fn collapse(address: *mut u8) -> Collapsed {
        let (range, mut there) = (address.cast(), [0u8; HUGE_BYTES / 4096]);
        // SAFETY: by the caller; a byte is written for each page of the system, of 4 KB at least.
        let failed = unsafe { libc::mincore(range, HUGE_BYTES, there.as_mut_ptr().cast()) };
        if failed != 0 || there.iter().any(|page| page & 1 == 0) {
            return Collapsed::HasHoles;
        }
        // The range is open to huge pages for just this moment: later ones would be taken for a first byte.
        // SAFETY: by the caller; what the kernel copies reads the same before and after.
        let result = unsafe {
            libc::madvise(range, HUGE_BYTES, libc::MADV_HUGEPAGE);
            let result = libc::madvise(range, HUGE_BYTES, MADV_COLLAPSE);
            let errno = std::io::Error::last_os_error().raw_os_error();
            libc::madvise(range, HUGE_BYTES, libc::MADV_NOHUGEPAGE);
            if result == 0 { Ok(()) } else { Err(errno) }
        };
        match result {
            Ok(()) => Collapsed::Done,
            Err(Some(libc::EINVAL)) => Collapsed::Refused,
            Err(_) => Collapsed::NotNow,
        }
    }

    /// Since Linux 6.1; older ones refuse it.
    const MADV_COLLAPSE: i32 = 25;

    /// # Safety
    /// The mapping was made by `map(bytes)` and is no longer used.
    pub unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
    }
}

/// Miri knows no mprotect: there the reservation is a zeroed allocation.
#[cfg(miri)]
mod system {
    use super::Collapsed;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("a reservation fits the address space")
    }

    pub fn map(bytes: usize) -> Result<NonNull<u8>, i32> {
        // SAFETY: the size is not zero.
        Ok(NonNull::new(unsafe { alloc_zeroed(layout(bytes)) }).expect("Miri has memory"))
    }

    pub unsafe fn open(_: *mut u8, _: usize) -> bool {
        true
    }

    pub unsafe fn discard(address: *mut u8, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { std::ptr::write_bytes(address, 0, bytes) }
    }

    pub unsafe fn collapse(_: *mut u8) -> Collapsed {
        Collapsed::Refused
    }

    pub unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
        // SAFETY: by the caller.
        unsafe { dealloc(base.as_ptr(), layout(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_from_the_front_in_steps_and_stops_at_the_end() {
        let region = Region::reserve(64 << 10, 16 << 10).unwrap();
        assert_eq!(region.committed(), 0);
        region.commit_to(1).unwrap();
        assert_eq!(region.committed(), 16 << 10);
        region.commit_to(50 << 10).unwrap();
        assert_eq!(region.committed(), 64 << 10);
        assert!(region.commit_to((64 << 10) + 1).is_err());
        // SAFETY: committed, and no other thread knows the region.
        unsafe { region.at(65535, 1).write(7) };
        region.discard(48 << 10, 16 << 10);
        // SAFETY: as above.
        assert_eq!(unsafe { region.at(65535, 1).read() }, 0);
    }

    #[test]
    #[cfg(not(miri))]
    fn only_a_range_without_holes_is_collapsed_and_its_bytes_stay() {
        let region = Region::reserve(8 << 20, 1 << 20).unwrap();
        region.commit_to(8 << 20).unwrap();
        assert!(region.huge_ranges() >= 3);
        let start = region.huge_start();
        assert_eq!(region.huge_ranges_of(start, HUGE_BYTES + 1), 0..2);
        assert_eq!(region.huge_ranges_of(start + HUGE_BYTES - 1, 1), 0..1);
        assert_eq!(region.collapse(0), Collapsed::HasHoles);
        for page in (0..HUGE_BYTES).step_by(4096) {
            // SAFETY: committed, and no other thread knows the region.
            unsafe { region.at(start + page, 1).write((page / 4096) as u8) };
        }
        // Whether it works is the system's business; what is read is ours.
        assert_ne!(region.collapse(0), Collapsed::HasHoles);
        for page in (0..HUGE_BYTES).step_by(4096) {
            // SAFETY: as above.
            assert_eq!(unsafe { region.at(start + page, 1).read() }, (page / 4096) as u8);
        }
        region.discard(start, 16 << 10);
        assert_eq!(region.collapse(0), Collapsed::HasHoles);
    }

    #[test]
    #[cfg(not(miri))]
    fn an_impossible_reservation_is_an_error() {
        let error = Region::reserve(1 << 60, 1 << 20).err().unwrap();
        assert_eq!(error.errno, libc::ENOMEM);
    }
}
